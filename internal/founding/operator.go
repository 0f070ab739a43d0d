package founding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file carries out an operator's word: Recover. The operator names the members
// that are gone. Every other member that may vote must take part. Which members are
// these?
//
//   - the voters of the founding and the voters that the caller of Recover names;
//   - the processes that have answered this member's question on their own stream, at
//     any time, with the voter role: those take part themselves;
//   - the processes that gossip lists as members of the cluster and that a handshake
//     has shown with the voter role: such a process that does not answer must be named.
//
// A process in gossip's words alone is waited for while it counts by the rules of
// heard.go, and then left out, with a line in the log. Any member can invent such
// processes, under a new name each second, and an operator cannot name names of the
// future. The price: an honest member of the cluster that no handshake of this member
// has ever shown, that is no voter as far as this member was told, and that answers no
// dial during the wait, is left out. Such a member stands where a member unknown to
// gossip stands: the operator answers for it.
//
// A guest is a process that proves to have no voter role. It never had a vote, so its
// acceptance is not asked for. Its promise and its retirement are: they end its locks, and
// tell the tokens that it saw and the TTL that it trusts. But a guest cannot refuse for
// ever: from timing.GhostQuiet after the begin of Recover, a guest that does not take part
// is left out too, with a line in the log. The price: an honest guest that cannot end its
// locks within a ballot may trust them for the TTL that it was told, if that is longer than
// the TTL that any other member of the group was told.
//
// Nor does a guest stand for a voter of its name, even as the only living process of the
// name. Many may own its certificate, and a voter that is started anew without the role
// brings neither its vote nor its log. The operator names that voter as gone, as after any
// other end of a voter. The price: the guest of the name is named with it and takes no part,
// like a guest left out, and no more does a guest beside a living voter of its name. It
// joins the successor afterwards.

// recovery is a running Recover.
type recovery struct {
	began  time.Time
	gone   []string                // named by the operator
	voters []string                // must take part or be named, besides those of the founding
	denied *DeniedError            // a member does not accept the word
	ghosts map[member.Process]bool // told as left out
}

// maxGhosts bounds the processes told as left out, and their lines in the log.
const maxGhosts = 16

// Recover founds a successor of this member's dead cluster on the word of an
// operator: the members of the given names are gone for good. Voters names the voters
// of the cluster as the caller knows them. Every other member that may vote must live
// and take part: see the comment of this file. Recover blocks until this member is in
// the successor, or ctx ends; the error then tells what was missing. Recover fails
// with a *DeniedError if a member does not accept the operator's word. Only one
// Recover runs at a time on a member.
func (r *Runner) Recover(ctx context.Context, gone, voters []string) error {
	old := r.Cluster()
	if old == (machine.ClusterID{}) {
		return errors.New("cluster: this member is in no cluster that could be recovered")
	}
	r.mu.Lock()
	if r.recover != nil {
		r.mu.Unlock()
		return errors.New("cluster: a recovery runs already")
	}
	r.recover = &recovery{began: time.Now(), gone: slices.Clone(gone), voters: slices.Clone(voters), ghosts: make(map[member.Process]bool)}
	r.mu.Unlock()
	r.known.begin()
	r.wake.Wake()
	defer func() {
		r.mu.Lock()
		r.recover = nil
		r.mu.Unlock()
	}()
	t := time.NewTicker(timing.FoundingRetry)
	defer t.Stop()
	for r.Cluster() == old {
		select {
		case <-t.C:
			if denied := r.denial(); denied != nil {
				return denied
			}
		case <-ctx.Done():
			return fmt.Errorf("cluster: not recovered: %s: %w", r.Progress(), context.Cause(ctx))
		}
	}
	return nil
}

// recovering reports whether an operator's word is carried out here.
func (r *Runner) recovering() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recover != nil && r.value.Load() != nil
}

// operatorsWord returns the word of the running Recover: the names that are gone, and the
// voters. Ok is false if none runs.
func (r *Runner) operatorsWord() (gone, voters []string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recover == nil {
		return nil, nil, false
	}
	return r.recover.gone, r.recover.voters, true
}

// gatherOperator returns the group of a founding on an operator's word, or the text of
// the wait.
func (r *Runner) gatherOperator() (group []member.Process, missing string) {
	gone, _, _ := r.operatorsWord()
	for _, s := range r.living() {
		a, waited := r.known.get(s.Process)
		switch {
		case slices.Contains(gone, s.Name):
		case r.cfg.Self.Is(s.Process), !a.heard.IsZero():
			group = append(group, s.Process)
		case waited:
			missing = fmt.Sprintf("%s at %s is listed by gossip and has not answered yet", s.Name, s.Addr)
		default:
			r.leaveOut(s.Process)
		}
	}
	return r.withoutCrowd(group), missing
}

// withoutCrowd takes guests out of a group that is too large for a ballot, the youngest
// first: a process without the voter role can show any number of names.
func (r *Runner) withoutCrowd(group []member.Process) []member.Process {
	excess := len(group) - maxGroup
	if excess <= 0 {
		return group
	}
	var guests []member.Process
	for _, p := range group {
		if r.guest(p) && !r.cfg.Self.Is(p) {
			guests = append(guests, p)
		}
	}
	slices.SortFunc(guests, func(a, b member.Process) int { return cmp.Compare(b.Boot, a.Boot) })
	guests = guests[:min(excess, len(guests))]
	for _, p := range guests {
		r.leaveOut(p)
	}
	return slices.DeleteFunc(group, func(p member.Process) bool { return slices.Contains(guests, p) })
}

// guest reports whether a process has proved to have no voter role.
func (r *Runner) guest(p member.Process) bool {
	a, _ := r.known.get(p)
	return a.mere
}

// withoutRefusing takes the guests that do not take part out of the group of a founding
// on an operator's word, once they may be left out. Takes reports a part taken. The group
// stays complete: checkOperator has counted no guest for a voter.
func (r *Runner) withoutRefusing(w wire.Word, group []member.Process, takes func(name string) bool) (left []member.Process) {
	r.mu.Lock()
	may := w == wire.WordOperator && r.recover != nil && time.Since(r.recover.began) > timing.GhostQuiet
	r.mu.Unlock()
	for _, p := range group {
		if may && !r.cfg.Self.Is(p) && r.guest(p) && !takes(p.Name) {
			r.leaveOut(p)
			continue
		}
		left = append(left, p)
	}
	return left
}

// bounded bounds a half of a ballot on an operator's word, so that a silent guest leaves
// time for the other halves.
func bounded(ctx context.Context, w wire.Word, d time.Duration) (context.Context, context.CancelFunc) {
	if w != wire.WordOperator {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

// leaveOut tells of a process that takes no part: nothing but gossip has shown the
// process, or it is a guest that refuses.
func (r *Runner) leaveOut(p member.Process) {
	r.mu.Lock()
	tell := r.recover != nil && len(r.recover.ghosts) < maxGhosts && !r.recover.ghosts[p]
	if tell {
		r.recover.ghosts[p] = true
	}
	r.mu.Unlock()
	if tell {
		r.cfg.Self.Log.Warn("a process that gossip tells of takes no part in the recovery", "about", p.Name, "addr", p.Addr,
			"next", "nothing, unless the process runs: then see its Health, and end the work under its locks")
	}
}

// checkOperator checks that every member of this member's cluster that may vote is in
// the group or named as gone. Only the member with the operator's word knows the names;
// the others rely on the word.
func (r *Runner) checkOperator(group []member.Process) string {
	own := r.value.Load()
	gone, known, ok := r.operatorsWord()
	if !ok || own == nil {
		return ""
	}
	known = slices.Clone(known)
	for _, id := range own.Voters {
		name, _, _ := member.ParseRaftID(id)
		known = append(known, name)
	}
	for _, s := range r.cfg.Members.All() {
		if s.Meta.Cluster == own.Cluster && (s.Alive || s.Meta.Voter) && r.mayVote(s) {
			known = append(known, s.Name)
		}
	}
	for _, name := range known {
		at := slices.IndexFunc(group, func(p member.Process) bool { return p.Name == name })
		switch {
		case slices.Contains(gone, name):
		case at < 0:
			return fmt.Sprintf("%s was a member, does not take part, and is not named as gone", name)
		case r.guest(group[at]):
			return fmt.Sprintf("%s was a member that may vote, %s runs without the voter role, and is not named as gone", name, name)
		}
	}
	return ""
}

// mayVote reports whether more than gossip's word says that the process exists, with
// the voter role.
func (r *Runner) mayVote(s member.Sighting) bool {
	a, _ := r.known.get(s.Process)
	return !a.mere && (!a.heard.IsZero() || r.cfg.Self.Is(s.Process) || r.cfg.Shown != nil && r.cfg.Shown(s.Name, s.Boot))
}
