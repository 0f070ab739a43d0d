package link

import (
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// Limits of words about voters. They are kept for as long as this member runs, compared
// with each other, and told in events, so a false leader's words must not be larger than
// a true leader's can be.
const (
	maxSet  = 32  // voters of a VoterSet: servers of a raft configuration, at most
	maxAddr = 512 // bytes of an address
)

// sound reports whether a leader of this version can have told the set.
func sound(set wire.VoterSet) bool {
	if len(set.Voters) > maxSet || set.Wanted < 0 || set.Wanted > maxSet {
		return false
	}
	seen := make(map[string]bool, len(set.Voters))
	for _, v := range set.Voters {
		if _, _, err := member.ParseRaftID(v.Raft); err != nil || seen[v.Raft] || len(v.Addr) > maxAddr || v.Zone != "" && member.CheckName(v.Zone) != nil {
			return false
		}
		seen[v.Raft] = true
	}
	return true
}

// firstAddrs returns the first addresses of a list that may be addresses, as many as are
// asked at a time, in memory of their own: a long list is not kept for the few.
func firstAddrs(addrs []string) (out []string) {
	for _, addr := range addrs {
		if len(out) == maxVoters {
			break
		}
		if addr != "" && len(addr) <= maxAddr {
			out = append(out, addr)
		}
	}
	return out
}

// readHint decodes a hint. An unreadable hint is none, and so is a leader that no member
// can be.
func readHint(body []byte) (h wire.Hint, ok bool) {
	if wire.Unmarshal(body, &h) != nil || h.Leader != "" && member.CheckName(h.Leader) != nil || len(h.Addr) > maxAddr {
		return wire.Hint{}, false
	}
	h.Voters = firstAddrs(h.Voters)
	return h, true
}
