package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
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
	round := n.id.get().Promise.Promised.Round // a ballot is never used twice
	var since time.Time                        // since when the group has been enough
	for n.founding.Load() == nil {
		changed := n.gossip.changed.wait()
		if n.adoptFromMembers(ctx) {
			return
		}
		wait := foundingRetry
		if group := n.foundingGroup(); group == nil {
			since = time.Time{}
		} else {
			if since.IsZero() {
				since = time.Now()
			}
			// The first by name proposes; the others wait longer each, and
			// step in if it fails.
			rank := slices.IndexFunc(group, func(s sighting) bool { return s.name == n.cfg.Name })
			if wait = time.Until(since.Add(time.Duration(rank) * foundingTurn)); wait <= 0 {
				round = n.tryFounding(ctx, group, round+1)
				wait = foundingRetry/2 + mrand.N(foundingRetry)
				changed = nil // news do not hurry the next ballot
			}
		}
		t := time.NewTimer(wait)
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

const (
	// A founding waits at least for so long before it grants, and members look
	// twice as often for those that their Join names and nobody gossips of. So
	// a cluster that was founded beside a living one learns of it while it has
	// granted nothing, and ends.
	leastFoundingWait = 2 * seekEvery

	foundingRetry = time.Second
	foundingTurn  = 2 * time.Second
)

// adoptFromMembers asks the members that say they are in a cluster which it is.
func (n *Node) adoptFromMembers(ctx context.Context) bool {
	for _, s := range n.gossip.alive() {
		if s.meta.Cluster == (machine.ClusterID{}) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		var who wire.WhoAnswer
		err := n.control.askInto(ctx, s.at(), wire.Who, nil, &who)
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
	// Of one name, or of one address, only the newest process lives: gossip
	// needs some seconds to give the others up.
	byName, byAddr := make(map[string]sighting), make(map[string]uint64)
	for _, s := range n.gossip.alive() {
		byAddr[s.addr] = max(byAddr[s.addr], s.boot)
		if s.boot >= byName[s.name].boot {
			byName[s.name] = s
		}
	}
	var group []sighting
	self := false
	for _, s := range byName {
		if s.meta.Founder && s.meta.Cluster == (machine.ClusterID{}) && s.boot == byAddr[s.addr] &&
			(len(n.cfg.Founders) == 0 || slices.Contains(n.cfg.Founders, s.name)) {
			group = append(group, s)
			self = self || s.name == n.cfg.Name && s.boot == n.boot
		}
	}
	slices.SortFunc(group, func(a, b sighting) int { return cmp.Compare(a.name, b.name) })
	m := n.declared(len(group))
	if len(group) < foundingQuorum(m, firstVoters(m, n.cfg.Voters)) || !self {
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
	ballot := wire.Ballot{Round: round, Name: n.cfg.Name, Boot: n.boot}
	n.log.Debug("founding ballot", "round", round, "group", len(group))

	answers := n.askGroup(ctx, group, wire.Prepare, wire.Marshal(&wire.PrepareRequest{
		Ballot: ballot, Size: n.declared(0), Voters: n.cfg.Voters,
	}))
	promises := make(map[string]wire.PrepareAnswer)
	for name, f := range answers {
		var p wire.PrepareAnswer
		if wire.Unmarshal(f.Body, &p) != nil {
			continue
		}
		round = max(round, p.Promised.Round)
		if own, _, err := splitRaftID(p.Raft); f.Code == wire.CodeOK && err == nil && own == name {
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
			f, err := n.control.ask(ctx, s.at(), t, body)
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
		if wire.Unmarshal(body, &req) != nil || checkFounding(req.Value) != nil {
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
		if req.Size != n.declared(0) || req.Voters != n.cfg.Voters {
			n.conflict(Member{Name: b.Name, Boot: b.Boot}, fmt.Sprintf("it expects %d first members and %d voters, this member %d and %d",
				req.Size, req.Voters, n.declared(0), n.cfg.Voters))
			return wire.CodeNo, wire.Marshal(&wire.PrepareAnswer{})
		}
	}
	var rec identityRecord
	ok := false
	err := n.id.update(func(r *identityRecord) {
		if r.Founding != nil {
			return
		}
		r.Promise, ok = step(r.Promise)
		rec = *r // what is answered is what is stored
	})
	if err != nil {
		n.log.Error("founding promise not stored", "error", err)
		return wire.CodeNo, wire.Marshal(&wire.PrepareAnswer{})
	}
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
	if err := checkFounding(v); err != nil {
		return err
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
