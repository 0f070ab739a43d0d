package link

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

const (
	maxHops  = 3 // hints followed in a search
	maxTried = 8 // members of gossip tried in a search
)

// connect searches the leader once and attaches to the leader found. It returns
// nil if no leader serves this member now.
func (k *Link) connect(ctx context.Context) upstream {
	if !k.inCluster() {
		return nil
	}
	if up := k.connectLocal(); up != nil {
		return up
	}
	candidates := k.candidates()
	tried := make(map[string]bool)
	hops := 0
	for len(candidates) > 0 && ctx.Err() == nil {
		addr := candidates[0]
		candidates = candidates[1:]
		if tried[addr] || addr == k.cfg.Self.Addr {
			continue
		}
		tried[addr] = true
		up, hint := k.connectRemote(ctx, addr)
		if up != nil {
			return up
		}
		if up := k.connectLocal(); up != nil {
			return up
		}
		if hint.Addr != "" && hops < maxHops {
			hops++
			candidates = append([]string{hint.Addr}, candidates...)
		}
	}
	return nil
}

// connectLocal attaches to this node's own term, if this node leads and no newer
// leader has served this member.
func (k *Link) connectLocal() upstream {
	leader := k.cfg.Leading()
	if leader == nil || leader.Number() < k.servedTerm() || !leader.Join(k.subscriber) {
		return nil
	}
	k.install(leader, k.cfg.Self.Name, k.cfg.Self.Addr, wire.AttachAnswer{Term: leader.Number(), TTL: leader.Bound()})
	leader.Attach(k.subscriber, k.sessions())
	return leader
}

// candidates lists the addresses where the leader may be, the best guess first:
//
//  1. the leader of this node's own raft;
//  2. members that claim to lead, the newest term first;
//  3. voters;
//  4. all other members.
//
// The order within a group is random.
func (k *Link) candidates() []string {
	var out []string
	if p, ok := k.cfg.Guess(); ok {
		out = append(out, p.Addr)
	}
	members := slices.Clone(k.cfg.Members())
	rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	slices.SortStableFunc(members, func(a, b member.Sighting) int {
		if a.Meta.Leads != b.Meta.Leads {
			return cmp.Compare(b.Meta.Leads, a.Meta.Leads)
		}
		switch {
		case a.Meta.Voter == b.Meta.Voter:
			return 0
		case a.Meta.Voter:
			return -1
		}
		return 1
	})
	for _, m := range members[:min(len(members), maxTried)] {
		out = append(out, m.Addr)
	}
	return out
}

// connectRemote asks the member at addr to serve this member. After a refusal it
// returns nil and the hint of the other member, if any.
func (k *Link) connectRemote(ctx context.Context, addr string) (upstream, wire.Hint) {
	ctx, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	conn, name, err := k.cfg.Dial(ctx, addr)
	if err != nil {
		return nil, wire.Hint{}
	}
	up := &remote{stream: stream.New(conn, k.handle)}
	up.stream.Start()
	a, hint, ok := k.attach(ctx, up.stream)
	if !ok {
		up.stream.Close()
		return nil, hint
	}
	up.term = a.Term
	k.install(up, name, addr, a)
	return up, wire.Hint{}
}

// attach asks the peer to serve this member and to route the events of every
// attached session here. After a refusal ok is false, and hint is the peer's, if any.
func (k *Link) attach(ctx context.Context, s *stream.Stream) (a wire.AttachAnswer, hint wire.Hint, ok bool) {
	served := k.servedTerm()
	sessions := k.sessions()
	for more := true; more; more = len(sessions) > 0 {
		part := sessions[:min(len(sessions), wire.MaxAttach)]
		sessions = sessions[len(part):]
		f, err := s.Call(ctx, wire.Attach, wire.Marshal(&wire.AttachRequest{Sessions: part, Term: served}))
		if err != nil {
			return a, hint, false
		}
		if f.Code == wire.CodeNotLeader {
			_ = wire.Unmarshal(f.Body, &hint) // an unreadable hint is no hint
		}
		if f.Code != wire.CodeOK || wire.Unmarshal(f.Body, &a) != nil {
			return a, hint, false
		}
	}
	return a, hint, true
}

// handle takes the leader's notices.
func (k *Link) handle(q *stream.Request) {
	switch q.Type {
	case wire.Event:
		if e, err := machine.DecodeEvent(q.Body); err == nil {
			k.deliver(e)
		}
	case wire.Bound:
		var a wire.AttachAnswer
		if wire.Unmarshal(q.Body, &a) == nil {
			k.setBound(a)
		}
	default:
		q.Answer(wire.CodeBad, nil)
	}
}
