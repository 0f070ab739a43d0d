package founding

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file runs the ballots that rest on somebody's word. succession.go has the
// rules.

// word returns the word on which this member may found now. Words about silence
// and lists count in memory only: the disks of absent members are a quorum of
// their cluster, and may come back.
func (r *Runner) word() wire.Word {
	switch {
	case r.recovering():
		return wire.WordOperator // a thin member too: the ballot chooses voters among the others
	case r.cfg.Thin, r.cfg.Record.Durable():
		return wire.WordNone
	case r.cfg.Complete != nil:
		return wire.WordComplete
	case r.cfg.AssumeGone > 0 && r.value.Load() != nil:
		return wire.WordSilence
	}
	return wire.WordNone
}

// lookOnWord takes one step of a founding on a word.
func (r *Runner) lookOnWord(ctx context.Context, s *search, w wire.Word) time.Duration {
	if r.value.Load() == nil && !r.Declared() {
		return timing.FoundingRetry // joins only
	}
	if w != wire.WordOperator && r.value.Load() != nil && r.silence() < timing.SuccessionPatience {
		return timing.FoundingRetry
	}
	var group []member.Process
	var missing string
	if w == wire.WordComplete {
		var claims []claim
		if group, claims, missing = r.gatherComplete(ctx); r.followClaims(ctx, claims) {
			return timing.FoundingRetry
		}
	} else if w == wire.WordOperator {
		group, missing = r.gatherOperator()
	} else {
		for _, s := range r.living() {
			if s.Meta.InCluster() || r.counts(s) { // checkSilence waits for the others
				group = append(group, s.Process)
			}
		}
	}
	if missing == "" {
		missing = r.checkGroup(w, group)
	}
	if missing != "" {
		s.since = time.Time{}
		r.setNote("%s", missing)
		return timing.FoundingRetry
	}
	own := slices.IndexFunc(group, func(p member.Process) bool { return r.cfg.Self.Is(p) })
	if wait := r.yielding(); wait > 0 {
		return wait
	}
	wait := r.inTurn(s, own, func() {
		s.failed++
		r.tryOnWord(ctx, s, w, group)
	})
	if s.hurried {
		wait <<= min(s.failed, mostDoublings)
	}
	return wait
}

// mostDoublings bounds the pause after failed ballots on a word.
const mostDoublings = 3

// yielding returns for how long this member leaves the field to another proposer. A
// ballot on a word takes seconds, because members retire within it, and every
// promise to a later ballot ends it. So members that proposed as often as they may
// would end each other's ballots for ever. The pauses after failed ballots grow
// for the same reason.
func (r *Runner) yielding() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Until(r.yielded.Add(timing.FoundingYield))
}

// gatherComplete asks at every address of the complete list for the process there.
// An address counts as answered only by a process that advertises this very
// address: behind a shared address, several processes could take turns. Claims
// has the members of other clusters among those that answer.
func (r *Runner) gatherComplete(ctx context.Context) (group []member.Process, claims []claim, missing string) {
	addrs, ok, why := r.cfg.Complete()
	if !ok {
		return nil, nil, why
	}
	ctx, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	answers := make([]wire.WhoAnswer, len(addrs))
	faults := make([]string, len(addrs))
	var asking sync.WaitGroup
	for i, addr := range addrs {
		if addr == r.cfg.Self.Addr {
			answers[i] = wire.WhoAnswer{Name: r.cfg.Self.Name, Boot: r.cfg.Self.Boot, Addr: addr}
			continue
		}
		asking.Go(func() {
			if err := r.cfg.Ask.AskInto(ctx, member.Process{Addr: addr}, wire.Who, nil, &answers[i]); err != nil {
				faults[i] = addr + " does not answer"
			} else if member.CheckName(answers[i].Name) != nil || answers[i].Boot == 0 || len(answers[i].Addr) > maxAddr {
				faults[i] = addr + " is answered by a process without a sound name"
			} else if answers[i].Addr = clip(answers[i].Addr); answers[i].Addr != addr {
				faults[i] = fmt.Sprintf("%s is answered by %s, which advertises %s", addr, answers[i].Name, answers[i].Addr)
			}
		})
	}
	asking.Wait()
	own := r.Cluster()
	for i, a := range answers {
		if faults[i] == "" && a.Founding != nil && a.Founding.Cluster != own {
			claims = append(claims, claim{at: member.Process{Name: a.Name, Boot: a.Boot, Addr: a.Addr}, cluster: a.Founding.Cluster})
		}
	}
	faults = slices.DeleteFunc(faults, func(s string) bool { return s == "" })
	if len(faults) > 0 {
		return nil, claims, "Join is complete, and " + strings.Join(faults, ", ")
	}
	for _, a := range answers {
		group = append(group, member.Process{Name: a.Name, Boot: a.Boot, Addr: a.Addr})
	}
	slices.SortFunc(group, func(a, b member.Process) int { return strings.Compare(a.Name, b.Name) })
	return group, claims, ""
}

// tryOnWord runs a ballot on a word.
func (r *Runner) tryOnWord(ctx context.Context, s *search, w wire.Word, group []member.Process) {
	floor, trouble := r.tokenFloor(ctx)
	if trouble != nil {
		r.setNote("") // Progress tells
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timing.Retirement)
	defer cancel()
	ballot := r.ballot(s.round + 1)
	req := r.prepareRequest(ballot, floor)
	req.Word, req.Group = w, groupMembers(group)
	r.cfg.Self.Log.Debug("founding ballot", "round", ballot.Round, "word", w, "group", len(group))
	var promises map[string]wire.PrepareAnswer
	asks, asked := bounded(ctx, w, 2*timing.Dial)
	promises, s.round = r.collectPromises(asks, group, req)
	asked()
	group = r.withoutRefusing(w, group, func(name string) bool { a, ok := promises[name]; return ok && promised(a) })
	promises = ofGroup(promises, group)
	decided := r.decided(promises)
	if len(decided) > 0 && !r.mayEnd(ctx, s, group, promises, decided) {
		return
	}
	for _, p := range group {
		if a, ok := promises[p.Name]; !ok || !promised(a) {
			why := "no answer"
			if ok {
				why = a.Refused
			}
			r.setNote("%s at %s does not take part in the founding: %s", p.Name, p.Addr, why)
			return
		}
	}
	retired := r.collectRetirements(ctx, w, group, promises)
	group = r.withoutRefusing(w, group, func(name string) bool { return retired[name].Refused == "" })
	promises, retired = ofGroup(promises, group), ofGroup(retired, group)
	if !r.noteRetirements(retired, promises) {
		return
	}
	only, least := r.named(w)
	want := automatic(r.cfg.Voters, len(group), promises)
	lineage := lineageOf(decided)
	value, why := proposeOnWord(promises, lineage, electorate(promises, retired, only, least, want), func(voters []string) wire.Founding {
		return freshValue(voters, floorOf(r.cfg.Self.Clock.Wall(), floor, promises, retired), silenceOf(promises, retired), lineage)
	})
	if value == nil {
		r.setNote("%s", why)
		return
	}
	voices := slices.DeleteFunc(slices.Clone(group), func(p member.Process) bool { return w == wire.WordOperator && r.guest(p) })
	accepted := r.collectAcceptances(ctx, voices, wire.AcceptRequest{Ballot: ballot, Value: *value, Word: w, Group: groupMembers(group)}, promises)
	if len(accepted) == len(voices) {
		r.tellFloor(*value)
		r.spread(ctx, group, r.cfg.Self.Name, *value)
	}
}

// named returns the names that may vote in a founding on a word, nil for all, and the
// least number of voters: see LeastVoters. If the list in Join is complete, nobody
// founds by a quorum of names.
func (r *Runner) named(w wire.Word) (only []string, least int) {
	switch {
	case w == wire.WordComplete || len(r.cfg.Founders) == 0:
		return nil, 1
	case r.cfg.Record.Durable():
		return r.cfg.Founders, 1
	}
	return r.cfg.Founders, LeastVoters(len(r.cfg.Founders), r.cfg.Voters)
}

func groupMembers(group []member.Process) (out []wire.GroupMember) {
	for _, p := range group {
		out = append(out, wire.GroupMember(p))
	}
	return out
}

// decided returns the foundings of the clusters in the group, each once.
func (r *Runner) decided(promises map[string]wire.PrepareAnswer) (out []wire.Founding) {
	for _, p := range promises {
		if p.Decided != nil && Check(*p.Decided) == nil &&
			!slices.ContainsFunc(out, func(v wire.Founding) bool { return v.Cluster == p.Decided.Cluster }) {
			out = append(out, *p.Decided)
		}
	}
	return out
}

// mayEnd reports whether the clusters of the group may be ended: none of them has
// had a leader for as long as the newest would need to elect one. A cluster with a
// leader is entered instead, if this member may.
func (r *Runner) mayEnd(ctx context.Context, s *search, group []member.Process, promises map[string]wire.PrepareAnswer, decided []wire.Founding) bool {
	may := true
	for _, v := range decided {
		r.spread(ctx, group, "", v)
		if own := r.value.Load(); own != nil && own.Cluster == v.Cluster && !r.leaderless() {
			return false // entered just now
		}
		for _, p := range group {
			a := promises[p.Name]
			if a.Decided == nil || a.Decided.Cluster != v.Cluster || r.cfg.Self.Is(p) {
				continue
			}
			asks, cancel := context.WithTimeout(ctx, timing.ConfirmRound) // the ballot waits
			led, ok := r.Confirmed(asks, p, v.Cluster)
			cancel()
			if ok {
				r.follow(ctx, led)
				r.setNote("a leader of cluster %s answers", clusterText(v.Cluster))
				return false
			}
			break // one member's hints lead to the leader, if there is one
		}
		if s.unheard[v.Cluster].IsZero() {
			s.unheard[v.Cluster] = time.Now()
			if v.Cluster == r.Cluster() {
				s.unheard[v.Cluster] = time.Now().Add(-r.silence())
			}
		}
		if time.Since(s.unheard[v.Cluster]) < timing.SuccessionPatience {
			r.setNote("cluster %s has no leader and may still elect one", clusterText(v.Cluster))
			may = false
		}
	}
	return may
}

// ofGroup returns the answers of the group's members.
func ofGroup[T any](answers map[string]T, group []member.Process) map[string]T {
	of := make(map[string]T)
	for _, p := range group {
		if a, ok := answers[p.Name]; ok {
			of[p.Name] = a
		}
	}
	return of
}

// collectRetirements asks every member of a cluster in the group to retire, and returns
// the answers; a silent member has refused.
func (r *Runner) collectRetirements(ctx context.Context, w wire.Word, group []member.Process, promises map[string]wire.PrepareAnswer) (retired map[string]wire.RetireAnswer) {
	retired = make(map[string]wire.RetireAnswer)
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, p := range group {
		v := promises[p.Name].Decided
		if v == nil {
			continue
		}
		asking.Go(func() {
			ctx, cancel := ctx, context.CancelFunc(func() {})
			if r.guest(p) {
				ctx, cancel = bounded(ctx, w, timing.Dial) // it has no raft to stop
			}
			defer cancel()
			answers := r.askGroup(ctx, []member.Process{p}, wire.Retire, wire.Marshal(&wire.RetireRequest{Cluster: v.Cluster, Word: w}))
			f, answered := answers[p.Name]
			a := wire.RetireAnswer{Refused: "no answer"}
			if answered && wire.Unmarshal(f.Body, &a) != nil {
				a = wire.RetireAnswer{Refused: "an unreadable answer"}
			}
			soundRetirement(&a)
			if f.Mere {
				a.Voter, a.LogTerm, a.LogIndex = false, 0, 0 // it has never voted
			}
			if own, _, err := member.ParseRaftID(a.Raft); a.Refused == "" && (f.Code != wire.CodeOK || err != nil || own != p.Name) {
				a.Refused = "not retired"
			}
			mu.Lock()
			defer mu.Unlock()
			retired[p.Name] = a
		})
	}
	asking.Wait()
	return retired
}

// noteRetirements notes in the promises the raft IDs under which the members would vote
// next. The result is false, with a note, unless all have retired.
func (r *Runner) noteRetirements(retired map[string]wire.RetireAnswer, promises map[string]wire.PrepareAnswer) bool {
	for name, a := range retired {
		if a.Refused != "" {
			r.setNote("%s does not retire from cluster %s: %s", name, clusterText(promises[name].Decided.Cluster), a.Refused)
			return false
		}
		p := promises[name]
		p.Raft = a.Raft
		promises[name] = p
	}
	return true
}
