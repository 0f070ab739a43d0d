package founding

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file bounds the word of a single other member.
//
// # Ballots
//
// A ballot belongs to the process that the ballot names: Prepare and Accept are
// taken on a stream of that very process alone.
//
// The round of a ballot is at most the milliseconds since 1970, by the clock of
// the member asked. Honest rounds begin at 1 and grow by one with each ballot, a
// few a second at the most, so the clock runs away from honest rounds. A member that
// sends the highest round allowed, once or a million times, leaves the founding
// blocked for the difference of the members' clocks and no longer: a moment later
// the clock allows higher rounds, and the next honest proposer uses one. A bound on
// the step above the own promise would not do: many small steps would lead as far
// as a large one, in one member at a time, and the others would refuse to follow.
// Rounds end at 2^64, and the clock reaches 2^64 ms in 584 million years.
//
// # Chosen foundings
//
// A member believes the news of a choice in two cases: the member has accepted that
// very value itself; or a majority of the value's voters, or of Founders, say on
// their own streams that they have accepted the value or live in its cluster. Why
// not the members' own acceptance alone: of five founders with disks, three accept
// a value, and two of its three voters are not among them. Why not the word of one:
// a single message would put a member into a cluster that does not exist, and the
// member would wait for that cluster's leader for ever.
//
// # Limits
//
// A declared founder, or a voter, that lies as the proposer of a ballot can found
// different clusters with different members: no Paxos is safe against its proposers.
// Such clusters meet before either of them grants, and only one of them goes on.
// A member of a dead cluster holds the founding of others back, on purpose, and so
// can a member that claims to be one on its own stream, without the voter role too.
// Progress names the member. A member without the voter role can also refuse to take
// part in a founding on a word; an operator names such a member as gone.

// skew is how far the clocks of founders may differ, in milliseconds: a member
// accepts rounds so far ahead of its own clock.
const skew = uint64(time.Minute / time.Millisecond)

// latestRound returns the highest round that a proposer uses at the given time.
func latestRound(now time.Time) uint64 { return uint64(max(now.UnixMilli(), 1)) }

// refuseBallot returns why a message of the process from in ballot b is refused, or
// "".
func refuseBallot(from member.Process, b wire.Ballot, now time.Time) string {
	switch {
	case b.Name != from.Name || b.Boot != from.Boot:
		return "a ballot of another process"
	case b.Round == 0 || b.Round > latestRound(now)+skew:
		return fmt.Sprintf("a ballot of round %d", b.Round)
	}
	return ""
}

// refusesBallot is refuseBallot with the refusal noted.
func (r *Runner) refusesBallot(from member.Process, b wire.Ballot) bool {
	why := refuseBallot(from, b, r.cfg.Self.Clock.Wall())
	if why != "" {
		r.cfg.Self.Refused.Note(refused.Claim, from.Name, why)
	}
	return why != ""
}

// nextRound returns the round after the highest round that others mention, and
// ignores rounds that the clock does not allow.
func nextRound(round, mentioned uint64, now time.Time) uint64 {
	if mentioned > latestRound(now) {
		return round
	}
	return max(round, mentioned)
}

// Limits of a founding message, far above the limits of any configuration.
const (
	maxFounders = 64   // names in Founders
	maxGroup    = 2048 // members of a group
	maxAddr     = 512  // bytes of an address
	maxSize     = 1 << 16
)

// checkPrepare reports whether the parts of a request have possible sizes.
func checkPrepare(req wire.PrepareRequest) bool {
	if len(req.Founders) > maxFounders || req.Size < 0 || req.Size > maxSize || req.Voters < 0 || req.Voters > maxSize {
		return false
	}
	for _, name := range req.Founders {
		if member.CheckName(name) != nil {
			return false
		}
	}
	return checkGroupSizes(req.Group)
}

func checkGroupSizes(group []wire.GroupMember) bool {
	return len(group) <= maxGroup && !slices.ContainsFunc(group, func(g wire.GroupMember) bool {
		return member.CheckName(g.Name) != nil || len(g.Addr) > maxAddr
	})
}

// most of a founding's numbers: see Check.
const (
	mostFloor = uint64(machine.MaxToken) - 1<<46 // leaves tokens for a year of 2^21 grants a second
	mostTTL   = machine.MaxTTL
)

// believes reports whether the founding v was chosen, as far as this member can
// tell: see the rules above. believes asks others, and blocks for timing.Dial at
// most.
func (r *Runner) believes(ctx context.Context, v wire.Founding) bool {
	if r.supports(v) {
		return true
	}
	supporters := r.supporters(ctx, v)
	var names []string
	for _, id := range v.Voters {
		name, _, _ := member.ParseRaftID(id)
		names = append(names, name)
	}
	if among(names, supporters) >= majority(len(names)) {
		return true
	}
	return len(r.cfg.Founders) > 0 && among(r.cfg.Founders, supporters) >= majority(len(r.cfg.Founders))
}

// supports reports whether this member has accepted v, or is in the cluster of v.
func (r *Runner) supports(v wire.Founding) bool {
	own, accepted := r.value.Load(), r.cfg.Record.Get().Promise.Value
	return equal(own, v) || equal(accepted, v)
}

// Accepted returns the value that this member has accepted last, or nil.
func (r *Runner) Accepted() *wire.Founding { return r.cfg.Record.Get().Promise.Value }

func equal(a *wire.Founding, b wire.Founding) bool {
	return a != nil && a.Cluster == b.Cluster && a.Floor == b.Floor && a.TTL == b.TTL &&
		slices.Equal(a.Voters, b.Voters) && slices.Equal(a.Predecessors, b.Predecessors)
}

// among counts the names that are in list.
func among(names, list []string) (n int) {
	for _, name := range names {
		if slices.Contains(list, name) {
			n++
		}
	}
	return n
}

// supporters asks the voters of v and the named founders, each on a stream of its
// own, and returns the names of the members that have accepted v or live in its
// cluster.
func (r *Runner) supporters(ctx context.Context, v wire.Founding) (names []string) {
	asks, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	wanted := slices.Clone(r.cfg.Founders)
	for _, id := range v.Voters {
		name, _, _ := member.ParseRaftID(id)
		wanted = append(wanted, name)
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, s := range r.living() {
		if !slices.Contains(wanted, s.Name) || r.cfg.Self.Is(s.Process) {
			continue
		}
		asking.Go(func() {
			who, mere, ok := r.who(asks, s.Process)
			if !ok || mere || !equal(who.Founding, v) && !equal(who.Accepted, v) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			names = append(names, s.Name)
		})
	}
	asking.Wait()
	return names
}

// claimed notes a founding that a member passes on and that nobody confirms.
func (r *Runner) claimed(from string, v wire.Founding) {
	r.cfg.Self.Refused.Note(refused.Claim, from, "cluster "+clusterText(v.Cluster)+" is said to be founded, and no majority confirms it")
}

// longestText bounds a text of another member that is told or logged.
const longestText = 1024

// soundPromise bounds the texts of an answer to Prepare, and refuses for the member
// that answers if the numbers or the accepted value are impossible. Repeated, such
// a value would be refused by all.
func soundPromise(p *wire.PrepareAnswer, now time.Time) {
	p.Differs, p.Refused = clip(p.Differs), clip(p.Refused)
	switch {
	case p.Token >= mostFloor || p.TTL > mostTTL || p.Members < 0 || p.Members > maxSize:
		p.Refused = "its numbers are impossible"
	case p.Value != nil && (Check(*p.Value) != nil || p.Accepted.Round > latestRound(now)+skew):
		p.Refused, p.Value = "the value that it accepted is impossible", nil
	case p.Decided != nil && Check(*p.Decided) != nil:
		p.Refused, p.Decided = "the cluster that it is in is impossible", nil
	}
}

// soundRetirement is soundPromise for an answer to Retire.
func soundRetirement(a *wire.RetireAnswer) {
	a.Refused = clip(a.Refused)
	if a.Token >= mostFloor || a.TTL > mostTTL || a.TokenAge > mostAge {
		a.Refused = "its numbers are impossible"
	}
}

// mostAge is the largest age of a token that counts, in milliseconds: a century.
const mostAge = uint64(100 * 365 * 24 * time.Hour / time.Millisecond)

// clip bounds a text, and keeps its printable characters alone: operators read the text in
// terminals.
func clip(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(text[:min(len(text), longestText)], "?"))
}
