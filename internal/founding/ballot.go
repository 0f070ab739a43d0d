package founding

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// group returns the members ready to found a cluster now, sorted by name. The
// group is nil if this member is not included or the members are too few.
func (r *Runner) group() []member.Sighting {
	if !r.Declared() {
		return nil
	}
	// Of several processes with the same name, or with the same address, only the
	// newest lives. Gossip needs some seconds to give up the others.
	byName, byAddr := make(map[string]member.Sighting), make(map[string]uint64)
	for _, s := range r.cfg.Members.Alive() {
		byAddr[s.Addr] = max(byAddr[s.Addr], s.Boot)
		if s.Boot >= byName[s.Name].Boot {
			byName[s.Name] = s
		}
	}
	var group []member.Sighting
	self := false
	for _, s := range byName {
		if s.Meta.Founder && !s.Meta.InCluster() && s.Boot == byAddr[s.Addr] &&
			(len(r.cfg.Founders) == 0 || slices.Contains(r.cfg.Founders, s.Name)) {
			group = append(group, s)
			self = self || r.cfg.Self.Is(s.Process)
		}
	}
	slices.SortFunc(group, member.Compare)
	m := r.declaredSize(len(group))
	if len(group) < quorum(m, firstVoters(m, r.cfg.Voters)) || !self {
		return nil
	}
	return group
}

// declaredSize returns M, the number of members from which the majorities of
// the founding are counted. If the members are declared by number and more
// members are seen, M is the number seen: then a majority of the seen members is
// needed.
func (r *Runner) declaredSize(seen int) int {
	if len(r.cfg.Founders) > 0 {
		return len(r.cfg.Founders)
	}
	return max(r.cfg.InitialSize, seen)
}

// tryBallot runs a ballot, and adopts the value if the ballot chooses any. The
// result is the highest round mentioned by any answer, or the ballot's own.
func (r *Runner) tryBallot(ctx context.Context, group []member.Sighting, round uint64) uint64 {
	ctx, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	ballot := wire.Ballot{Round: round, Name: r.cfg.Self.Name, Boot: r.cfg.Self.Boot}
	r.cfg.Self.Log.Debug("founding ballot", "round", round, "group", len(group))

	promises, round := r.collectPromises(ctx, group, ballot)
	m := r.declaredSize(len(group))
	if len(r.cfg.Founders) == 0 {
		for _, p := range promises {
			m = max(m, p.Members)
		}
	}
	value := propose(promises, m, r.cfg.Voters, r.freshValue)
	if value == nil {
		return round
	}
	answers := r.askGroup(ctx, group, wire.Accept, wire.Marshal(&wire.AcceptRequest{Ballot: ballot, Value: *value}))
	accepted := 0
	for name, f := range answers {
		if _, promised := promises[name]; promised && f.Code == wire.CodeOK {
			accepted++
		}
	}
	if accepted < quorum(m, len(value.Voters)) {
		return round
	}
	// Chosen. A member that misses the news asks later, or proposes and is told.
	if err := r.Adopt(*value); err != nil {
		r.cfg.Self.Log.Error("founding not adopted", "error", err)
		return round
	}
	r.askGroup(ctx, group, wire.Chosen, wire.Marshal(value))
	return round
}

// collectPromises asks the group to promise the ballot. It returns the promises
// by member name, and the highest round that any answer mentions.
func (r *Runner) collectPromises(ctx context.Context, group []member.Sighting, ballot wire.Ballot) (map[string]wire.PrepareAnswer, uint64) {
	answers := r.askGroup(ctx, group, wire.Prepare, wire.Marshal(&wire.PrepareRequest{
		Ballot: ballot, Size: r.declaredSize(0), Voters: r.cfg.Voters,
	}))
	promises := make(map[string]wire.PrepareAnswer)
	round := ballot.Round
	for name, f := range answers {
		var p wire.PrepareAnswer
		if wire.Unmarshal(f.Body, &p) != nil {
			continue
		}
		round = max(round, p.Promised.Round)
		if own, _, err := member.ParseRaftID(p.Raft); f.Code == wire.CodeOK && err == nil && own == name {
			promises[name] = p
		}
	}
	return promises, round
}

// freshValue is this member's own proposal, for a ballot without an earlier value
// to repeat.
func (r *Runner) freshValue(voters []string, promises map[string]wire.PrepareAnswer) wire.Founding {
	// 2^21 tokens for each second since 1970, the fraction of a second included.
	// This is above all tokens of any cluster founded earlier, as long as the
	// earlier cluster granted fewer tokens than 2^21 a second since then. No raft
	// group can grant so many.
	now := time.Now()
	v := wire.Founding{Voters: voters, Floor: uint64(now.Unix())<<21 + uint64(now.Nanosecond())<<21/1e9}
	rand.Read(v.Cluster[:])
	for _, p := range promises {
		v.Floor = max(v.Floor, p.Token+1)
		v.TTL = max(v.TTL, p.TTL)
	}
	return v
}

// askGroup asks every member of the group, this member included, and returns the
// answers received before ctx ended, by member name.
func (r *Runner) askGroup(ctx context.Context, group []member.Sighting, t wire.Type, body []byte) map[string]wire.Frame {
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := make(map[string]wire.Frame)
	for _, s := range group {
		if s.Name == r.cfg.Self.Name {
			code, body := r.Step(t, body)
			mu.Lock()
			answers[s.Name] = wire.Frame{Code: code, Body: body}
			mu.Unlock()
			continue
		}
		wg.Go(func() {
			f, err := r.cfg.Ask.Ask(ctx, s.Process, t, body)
			if err != nil {
				r.cfg.Self.Log.Debug("founding member did not answer", "member", s, "error", err)
				return
			}
			mu.Lock()
			answers[s.Name] = f
			mu.Unlock()
		})
	}
	wg.Wait()
	return answers
}
