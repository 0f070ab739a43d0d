package cluster

import (
	"context"
	"crypto/rand"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// foundLoop brings this member into a cluster: an existing one as soon as it
// meets any of its members, or else a new one, if it was declared a founder.
// The rules are in founding.go.
func (n *Node) foundLoop(ctx context.Context) {
	// A member that founds before it has looked for others could found beside
	// them.
	select {
	case <-n.joined:
	case <-ctx.Done():
		return
	}
	var round uint64
	for n.founding.Load() == nil {
		changed := n.gossip.changed.wait()
		wait := time.Duration(0)
		if n.adoptFromMembers(ctx) {
			return
		}
		if group := n.foundingGroup(); group != nil {
			// The first by name proposes; the others wait longer each, and
			// step in when it fails.
			rank := slices.IndexFunc(group, func(s sighting) bool { return s.name == n.cfg.Name })
			wait = time.Duration(rank)*2*time.Second + mrand.N(500*time.Millisecond)
			if rank == 0 || round > 0 {
				round = n.tryFounding(ctx, group, round+1)
			} else {
				round = 1
			}
		}
		if n.founding.Load() != nil {
			return
		}
		var timer <-chan time.Time
		if wait > 0 {
			t := time.NewTimer(wait)
			defer t.Stop()
			timer = t.C
		}
		select {
		case <-changed:
		case <-timer:
		case <-ctx.Done():
			return
		}
	}
}

// adoptFromMembers asks the members that say they are in a cluster which it is.
func (n *Node) adoptFromMembers(ctx context.Context) bool {
	for _, s := range n.gossip.alive() {
		if s.meta.Cluster == (machine.ClusterID{}) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		var who wire.WhoAnswer
		err := n.control.askInto(ctx, s.addr, wire.Who, nil, &who)
		cancel()
		if err == nil && who.Founding != nil && n.adopt(*who.Founding) == nil {
			return true
		}
	}
	return false
}

// foundingGroup is who could found a cluster now, if this member is of them
// and they may be enough.
func (n *Node) foundingGroup() []sighting {
	if !n.founder() {
		return nil
	}
	var group []sighting
	seen := make(map[string]bool)
	for _, s := range n.gossip.alive() {
		if s.meta.Founder && s.meta.Cluster == (machine.ClusterID{}) && !seen[s.name] &&
			(len(n.cfg.Founders) == 0 || slices.Contains(n.cfg.Founders, s.name)) {
			seen[s.name] = true
			group = append(group, s)
		}
	}
	m := n.declared(len(group))
	if len(group) < foundingQuorum(m, firstVoters(m, n.cfg.Voters)) || !seen[n.cfg.Name] {
		return nil
	}
	return group
}

// founder reports whether this member was declared one that founds.
func (n *Node) founder() bool {
	return n.cfg.InitialSize > 0 || slices.Contains(n.cfg.Founders, n.cfg.Name)
}

// declared is M, the number of members that the founding's majorities are
// counted from. Where they were declared by number, seeing more than that
// raises it: then a majority of those seen is needed.
func (n *Node) declared(seen int) int {
	if len(n.cfg.Founders) > 0 {
		return len(n.cfg.Founders)
	}
	return max(n.cfg.InitialSize, seen)
}

// tryFounding runs one ballot. It returns the highest round it heard of.
func (n *Node) tryFounding(ctx context.Context, group []sighting, round uint64) uint64 {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ballot := wire.Ballot{Round: round, Name: n.cfg.Name}
	n.log.Debug("founding ballot", "round", round, "group", len(group))

	answers := n.askGroup(ctx, group, wire.Prepare, wire.Marshal(&wire.PrepareRequest{Ballot: ballot}))
	promises := make(map[string]wire.PrepareAnswer)
	for name, f := range answers {
		var p wire.PrepareAnswer
		if wire.Unmarshal(f.Body, &p) != nil {
			continue
		}
		round = max(round, p.Promised.Round)
		if f.Code == wire.CodeOK {
			promises[name] = p
		}
	}
	m := n.declared(len(group))
	if len(n.cfg.Founders) == 0 {
		for _, p := range promises {
			m = max(m, p.Members)
		}
	}
	value := propose(promises, m, n.cfg.Voters, n.freshFounding)
	if value == nil {
		return round
	}
	answers = n.askGroup(ctx, group, wire.Accept, wire.Marshal(&wire.AcceptRequest{Ballot: ballot, Value: *value}))
	accepted := 0
	for name, f := range answers {
		if _, promised := promises[name]; promised && f.Code == wire.CodeOK {
			accepted++
		}
	}
	if accepted < foundingQuorum(m, len(value.Voters)) {
		return round
	}
	// Chosen. Whoever does not hear it from us asks, or proposes and is told.
	if err := n.adopt(*value); err != nil {
		n.log.Error("founding not adopted", "error", err)
		return round
	}
	n.askGroup(ctx, group, wire.Chosen, wire.Marshal(value))
	return round
}

// freshFounding is the value that this member proposes if it is free to.
func (n *Node) freshFounding(voters []string, promises map[string]wire.PrepareAnswer) wire.Founding {
	// 2^21 tokens for each second since 1970, the fraction included: above
	// all tokens of a cluster founded earlier, as long as it granted fewer than
	// that a second since, which one raft group cannot.
	now := time.Now()
	v := wire.Founding{Voters: voters, Floor: uint64(now.Unix())<<21 + uint64(now.Nanosecond())<<21/1e9}
	rand.Read(v.Cluster[:])
	for _, p := range promises {
		v.Floor = max(v.Floor, p.Token+1)
		v.TTL = max(v.TTL, p.TTL)
	}
	return v
}

// askGroup asks every member of the group, this one included, and collects
// the answers that came before ctx ended.
func (n *Node) askGroup(ctx context.Context, group []sighting, t wire.Type, body []byte) map[string]wire.Frame {
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := make(map[string]wire.Frame)
	for _, s := range group {
		if s.name == n.cfg.Name {
			code, body := n.foundingStep(t, body)
			mu.Lock()
			answers[s.name] = wire.Frame{Code: code, Body: body}
			mu.Unlock()
			continue
		}
		wg.Go(func() {
			f, err := n.control.ask(ctx, s.addr, t, body)
			if err != nil {
				n.log.Debug("founding member did not answer", "member", s, "error", err)
				return
			}
			mu.Lock()
			answers[s.name] = f
			mu.Unlock()
		})
	}
	wg.Wait()
	return answers
}

// foundingStep is this member's part in somebody's ballot. What it promises or
// accepts is stored before it answers.
func (n *Node) foundingStep(t wire.Type, body []byte) (wire.Code, []byte) {
	if t == wire.Chosen {
		var v wire.Founding
		if wire.Unmarshal(body, &v) != nil {
			return wire.CodeBad, nil
		}
		if n.adopt(v) != nil {
			return wire.CodeNo, nil
		}
		return wire.CodeOK, nil
	}
	if !n.founder() || n.founding.Load() != nil {
		return wire.CodeNo, wire.Marshal(&wire.PrepareAnswer{})
	}
	var b wire.Ballot
	step := func(a acceptor) (acceptor, bool) { return a.prepare(b) }
	if t == wire.Accept {
		var req wire.AcceptRequest
		if wire.Unmarshal(body, &req) != nil || len(req.Value.Voters) == 0 {
			return wire.CodeBad, nil
		}
		b = req.Ballot
		step = func(a acceptor) (acceptor, bool) { return a.accept(b, req.Value) }
	} else {
		var req wire.PrepareRequest
		if wire.Unmarshal(body, &req) != nil {
			return wire.CodeBad, nil
		}
		b = req.Ballot
	}
	ok := false
	err := n.id.update(func(r *identityRecord) {
		if r.Founding != nil {
			return
		}
		r.Promise, ok = step(r.Promise)
	})
	if err != nil {
		n.log.Error("founding promise not stored", "error", err)
		return wire.CodeNo, wire.Marshal(&wire.PrepareAnswer{})
	}
	rec := n.id.get()
	seen := 0
	if len(n.cfg.Founders) == 0 {
		for _, s := range n.gossip.alive() {
			if s.meta.Founder && s.meta.Cluster == (machine.ClusterID{}) {
				seen++
			}
		}
	}
	answer := wire.PrepareAnswer{
		Promised: rec.Promise.Promised,
		Accepted: rec.Promise.Accepted,
		Value:    rec.Promise.Value,
		Raft:     raftID(n.cfg.Name, rec.Generation),
		Durable:  n.cfg.Dir != "",
		Token:    rec.Token,
		TTL:      uint64(n.cfg.TTL / time.Millisecond),
		Members:  seen,
	}
	if !ok {
		return wire.CodeNo, wire.Marshal(&answer)
	}
	return wire.CodeOK, wire.Marshal(&answer)
}

// adopt takes the member into the cluster that v founded. It fails if the
// member is in another, and does nothing if it is in this one already.
func (n *Node) adopt(v wire.Founding) error {
	n.adopting.Lock()
	defer n.adopting.Unlock()
	if own := n.founding.Load(); own != nil {
		if own.Cluster != v.Cluster {
			return errForeign
		}
		return nil
	}
	if v.Cluster == (machine.ClusterID{}) || len(v.Voters) == 0 {
		return errForeign
	}
	if err := n.id.update(func(r *identityRecord) { r.Founding, r.Promise = &v, acceptor{} }); err != nil {
		return err
	}
	n.founding.Store(&v)
	n.gossip.update(func(m *metadata) { m.Cluster = v.Cluster })
	n.event(Event{Kind: ClusterFounded, Detail: clusterText(v.Cluster)})
	if slices.Contains(v.Voters, raftID(n.cfg.Name, n.id.get().Generation)) {
		n.roles.found()
	}
	n.link.wake()
	return nil
}
