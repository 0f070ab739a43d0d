package founding

import (
	"fmt"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file checks the groups of ballots on a word.

// checkGroup returns why this member refuses a group, or "". The proposer checks its
// own group, and each member the proposer's, at Prepare and again at Accept: two
// members may see different lists, and what one of them knows may be missing to
// the other.
func (r *Runner) checkGroup(w wire.Word, group []member.Process) string {
	for i, p := range group {
		if i > 0 && group[i-1].Name >= p.Name {
			return fmt.Sprintf("%q is twice in the group", p.Name)
		}
	}
	if !slices.ContainsFunc(group, r.cfg.Self.Is) {
		return fmt.Sprintf("%s at %s is not in the group under its present boot", r.cfg.Self.Name, r.cfg.Self.Addr)
	}
	if w == wire.WordOperator {
		return r.checkOperator(group)
	}
	if named := r.cfg.Founders; len(named) > 0 {
		n := 0
		for _, p := range group {
			if slices.Contains(named, p.Name) {
				n++
			}
		}
		if n < majority(len(named)) {
			return fmt.Sprintf("%d of %d founders are in the group, %d are needed", n, len(named), majority(len(named)))
		}
	}
	if len(group) < r.cfg.InitialSize {
		return fmt.Sprintf("%d of %d first members are in the group", len(group), r.cfg.InitialSize)
	}
	if w == wire.WordComplete {
		return r.checkComplete(group)
	}
	return r.checkSilence(group)
}

// checkComplete checks a group against this member's own complete list, and against
// gossip: a living member at another address shows that the list is not
// complete.
func (r *Runner) checkComplete(group []member.Process) string {
	if r.cfg.Complete == nil {
		return "Recovery.JoinIsComplete is not set on every member"
	}
	addrs, ok, why := r.cfg.Complete()
	if !ok {
		return why
	}
	for _, addr := range addrs {
		if !slices.ContainsFunc(group, func(p member.Process) bool { return p.Addr == addr }) {
			return "the group lacks a member at " + addr
		}
	}
	for _, p := range group {
		if !slices.Contains(addrs, p.Addr) {
			return fmt.Sprintf("%s at %s is not in the list of %s", p.Name, p.Addr, r.cfg.Self.Name)
		}
	}
	for _, s := range r.living() {
		if !r.counts(s) {
			continue
		}
		if !slices.Contains(addrs, s.Addr) {
			return fmt.Sprintf("Join is called complete and lacks %s, where %s seems to live", s.Addr, s.Name)
		}
	}
	return ""
}

// checkSilence checks that every process outside the group was silent for
// AssumeGone: the known ones by gossip, and unknown ones because no leader has
// answered for so long. Gossip's word about a death can be forged, by any member again
// and again. So this member asks each such process itself, at every look, and a
// process that has answered within AssumeGone is not silent.
//
// Gossip's word about a life can be forged as well, and counts: a process that gossip
// calls alive holds the founding back although it answers no dial. An honest process
// whose streams fail while its packets arrive looks like an invented one, and a founding
// beside it may be a founding beside a living cluster. An operator can tell the two
// apart, by Recover.
func (r *Runner) checkSilence(group []member.Process) string {
	switch {
	case r.cfg.AssumeGone <= 0:
		return "Recovery.AssumeGone is not set on every member"
	case r.value.Load() != nil && r.silence() < r.cfg.AssumeGone:
		return fmt.Sprintf("no leader has answered for %v, Recovery.AssumeGone is %v", r.silence().Truncate(time.Second), r.cfg.AssumeGone)
	}
	for _, s := range r.cfg.Members.All() {
		if !s.Meta.InCluster() || r.ended(s.Process) || r.replaced(group, s.Process) {
			continue
		}
		if s.Alive || time.Since(s.Since) < r.cfg.AssumeGone {
			return fmt.Sprintf("%s at %s is not in the group, and was not silent for %v", s.Name, s.Addr, r.cfg.AssumeGone)
		}
		switch a, _ := r.known.get(s.Process); {
		case a.asked.IsZero():
			return fmt.Sprintf("%s at %s is not in the group, and was not asked yet", s.Name, s.Addr)
		case !a.heard.IsZero() && time.Since(a.heard) < r.cfg.AssumeGone:
			return fmt.Sprintf("%s at %s is not in the group, and answered %v ago", s.Name, s.Addr, time.Since(a.heard).Truncate(time.Second))
		}
	}
	return ""
}

// replaced reports whether the group has a process, or a later one that supersedes it.
func (r *Runner) replaced(group []member.Process, p member.Process) bool {
	return slices.ContainsFunc(group, func(q member.Process) bool {
		return q.Name == p.Name && q.Boot == p.Boot || r.supersedes(q, p)
	})
}
