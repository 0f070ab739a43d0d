package founding

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// tryBallot runs a ballot without a word, and adopts the value if the ballot
// chooses any. At least so many members must promise. The result is the highest round mentioned by any answer, or the
// ballot's own.
func (r *Runner) tryBallot(ctx context.Context, group []member.Sighting, round uint64, least int) uint64 {
	floor, trouble := r.tokenFloor(ctx)
	if trouble != nil {
		r.setNote("") // Progress tells
		return round - 1
	}
	ballot := r.ballot(round)
	r.cfg.Self.Log.Debug("founding ballot", "round", round, "group", len(group))

	at := processes(group)
	// Each half of the ballot has its own time: a founder that is seen and does not
	// answer uses up the time of the promises, and the others found without it.
	asks, cancel := context.WithTimeout(ctx, timing.Dial)
	promises, round := r.collectPromises(asks, at, r.prepareRequest(ballot, floor))
	cancel()
	ctx, cancel = context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	for name, p := range promises {
		if p.Decided != nil {
			r.spread(ctx, at, name, *p.Decided)
			if r.value.Load() == nil {
				r.setNote("%s says that it is in cluster %s, which is not confirmed", name, clusterText(p.Decided.Cluster))
			}
			return round
		}
	}
	for name, p := range promises {
		if p.Claimed {
			r.setNote("%s refuses: %s", name, p.Refused)
			return round // that cluster may live: see heard.go
		}
	}
	refusals := whoRefuses(promises)
	maps.DeleteFunc(promises, func(_ string, p wire.PrepareAnswer) bool { return !promised(p) })
	if len(promises) < least {
		r.setNote("%d of %d founders promised so far%s", len(promises), least, refusals)
		return round
	}
	named, m := len(r.cfg.Founders) > 0, r.declaredSize(len(group))
	if !named {
		for _, p := range promises {
			m = max(m, p.Members)
		}
	}
	value := propose(promises, named, m, r.cfg.Voters, func(voters []string, promises map[string]wire.PrepareAnswer) wire.Founding {
		return freshValue(voters, floorOf(r.cfg.Self.Clock.Wall(), floor, promises, nil), silenceOf(promises, nil), nil)
	})
	if value == nil {
		r.setNote("%d of %d founders promised, too few%s%s", len(promises), m, whoSees(promises, r.declaredSize(len(group))), refusals)
		return round
	}
	if Check(*value) != nil {
		r.setNote("the first token would be %d, and no token can be as high: set the clock of this host right", value.Floor)
		return round
	}
	accepted := r.collectAcceptances(ctx, at, wire.AcceptRequest{Ballot: ballot, Value: *value}, promises)
	if chosen(*value, accepted, named, m) {
		r.tellFloor(*value)
		r.spread(ctx, at, r.cfg.Self.Name, *value)
	}
	return round
}

func (r *Runner) ballot(round uint64) wire.Ballot {
	return wire.Ballot{Round: round, Name: r.cfg.Self.Name, Boot: r.cfg.Self.Boot}
}

func processes(group []member.Sighting) (at []member.Process) {
	for _, s := range group {
		at = append(at, s.Process)
	}
	return at
}

// spread passes a founding on that was chosen or decided, to everyone of the group
// who is named, and last to this member, because a member that enters a cluster
// closes its connections. A member that misses the news asks later, or proposes and
// is told. From is the member that told v, by name. Nothing is passed on that no
// cluster could begin with.
func (r *Runner) spread(ctx context.Context, group []member.Process, from string, v wire.Founding) {
	if Check(v) != nil {
		return
	}
	others := slices.DeleteFunc(slices.Clone(group), r.cfg.Self.Is)
	news, cancel := context.WithTimeout(ctx, timing.Dial) // a member that has died meanwhile leaves time for this one
	r.askGroup(news, others, wire.Chosen, wire.Marshal(&v))
	cancel()
	r.adoptNamed(ctx, from, v)
}

// collectPromises asks the group to promise the ballot. It returns the readable
// answers by member name, refusals too, and the highest round that any answer
// mentions. Differences between the configurations are told.
func (r *Runner) collectPromises(ctx context.Context, group []member.Process, req wire.PrepareRequest) (map[string]wire.PrepareAnswer, uint64) {
	answers := r.askGroup(ctx, group, wire.Prepare, wire.Marshal(&req))
	promises := make(map[string]wire.PrepareAnswer)
	round := req.Ballot.Round
	for _, at := range group {
		f, answered := answers[at.Name]
		var p wire.PrepareAnswer
		if f.Code == wire.CodeDenied && !f.Mere {
			promises[at.Name] = wire.PrepareAnswer{Refused: r.noteDenial(at.Name, f.Body)}
			continue
		}
		if !answered || wire.Unmarshal(f.Body, &p) != nil {
			continue
		}
		soundPromise(&p, r.cfg.Self.Clock.Wall())
		if f.Mere {
			if req.Word == wire.WordNone {
				continue // no founder
			}
			// A member without the voter role takes part as a thin member does: its
			// refusal and its numbers count, the TTL up to a limit, and no promise of it.
			p.Thin, p.Durable, p.Value, p.Accepted = true, false, nil, wire.Ballot{}
		}
		if r.value.Load() == nil && p.Token > r.highest()+maxAhead {
			p.Refused = "it tells of a token more than a day ahead of this member's clock"
		}
		if p.Value != nil && req.Word == wire.WordNone && p.Refused == "" {
			// Nobody would accept the value again, so this member could repeat it for ever.
			p.Refused = r.refuseFloor(ctx, *p.Value)
		}
		r.tell(at, p.Differs)
		round = nextRound(round, p.Promised.Round, r.cfg.Self.Clock.Wall())
		if own, _, err := member.ParseRaftID(p.Raft); p.Refused == "" && (f.Code != wire.CodeOK || err != nil || own != at.Name) {
			p.Refused = "another ballot is under way"
		}
		promises[at.Name] = p
	}
	return promises, round
}

// whoRefuses names the members that refuse a ballot, with their reasons.
func whoRefuses(promises map[string]wire.PrepareAnswer) string {
	return tellEach(promises, func(p wire.PrepareAnswer) string {
		if promised(p) {
			return ""
		}
		return "refuses: " + p.Refused
	})
}

// whoSees names the members that say that they see more than m founders. Their number
// counts, because this member may be the one that does not see everybody: see quorum.
func whoSees(promises map[string]wire.PrepareAnswer, m int) string {
	return tellEach(promises, func(p wire.PrepareAnswer) string {
		if p.Members <= m {
			return ""
		}
		return fmt.Sprintf("says that it sees %d founders: if there are fewer, stop it", p.Members)
	})
}

// tellEach lists texts about answers, by member.
func tellEach(promises map[string]wire.PrepareAnswer, about func(wire.PrepareAnswer) string) string {
	var out strings.Builder
	told := 0
	for _, name := range slices.Sorted(maps.Keys(promises)) {
		if text := about(promises[name]); text != "" && told < maxNames {
			out.WriteString("; " + name + " " + text)
			told++
		}
	}
	return out.String()
}

// promised reports whether an answer is a promise.
func promised(p wire.PrepareAnswer) bool { return p.Refused == "" }

// collectAcceptances asks the group to accept, and returns the promises of the
// members that accepted. A refusal with a reason is noted.
func (r *Runner) collectAcceptances(ctx context.Context, group []member.Process, req wire.AcceptRequest, promises map[string]wire.PrepareAnswer) map[string]wire.PrepareAnswer {
	accepted := make(map[string]wire.PrepareAnswer)
	for name, f := range r.askGroup(ctx, group, wire.Accept, wire.Marshal(&req)) {
		p, ok := promises[name]
		if ok && f.Code == wire.CodeOK {
			accepted[name] = p
			continue
		}
		var a wire.AcceptAnswer
		if wire.Unmarshal(f.Body, &a) == nil && a.Refused != "" {
			r.setNote("%s refuses: %s", name, clip(a.Refused))
		}
	}
	return accepted
}

// freshValue is a founding of a new cluster.
func freshValue(voters []string, floor, ttl uint64, predecessors []machine.ClusterID) wire.Founding {
	v := wire.Founding{Voters: voters, Floor: floor, TTL: ttl, Predecessors: predecessors}
	rand.Read(v.Cluster[:])
	return v
}

// askGroup asks every member of the group, this member included, and returns the
// answers received before ctx ended, by member name.
func (r *Runner) askGroup(ctx context.Context, group []member.Process, t wire.Type, body []byte) map[string]wire.Frame {
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := make(map[string]wire.Frame)
	for _, s := range group {
		wg.Go(func() {
			var f wire.Frame
			var err error
			if r.cfg.Self.Is(s) {
				f.Code, f.Body = r.Step(ctx, r.cfg.Self.Process(), t, body)
			} else if f, err = r.cfg.Ask.Ask(ctx, s, t, body); err != nil {
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
