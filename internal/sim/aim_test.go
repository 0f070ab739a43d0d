package sim

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/locks"
)

//go:embed testdata/states.txt
var statesText string

// states returns the reachable triples, from testdata/states.txt. A line that begins with #
// is a comment.
func states() (list []triple, err error) {
	for line := range strings.Lines(statesText) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		t, err := parseTriple(line)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// aim is a phase that brings a triple about, more often than chance does.
func aim(want triple) phase {
	return phase{"aim at " + want.String(), func(a *act) {
		s := a.victim(want.net)
		if s == nil {
			return
		}
		first := want.net // the fault under which the session comes into its state
		silent := want.session == sessionMarked || want.session == sessionTrustless || want.session == sessionRevoked
		if silent && (first == netWhole || first == netSlow) {
			first = netCut
		}
		ask := func() {}
		switch want.session {
		case sessionIdle:
			a.idle(s)
		case sessionEnding:
			a.bulk(s)
		case sessionRecalled:
			ask = a.keepSticky(s)
		}
		if want.leader == leadFresh && want.session != sessionEnding && a.r.IntN(2) == 0 {
			a.follow(want.leader)
		}
		a.afflict(s, first)
		switch want.session {
		case sessionRevoked:
			a.revoke(s)
		case sessionMarked:
			a.await(a.w.log.next(history.Marked), a.ttl())
		case sessionTrustless:
			a.wait(a.ttl() - a.margin() - a.ttl()/8)
			a.follow(want.leader)
			a.wait(a.ttl() / 4)
		case sessionEnding:
			if want.leader != leadGone {
				a.follow(want.leader) // the slices take moments: they must be this leader's
			}
			ending := a.w.log.next(history.Ending)
			if first == netWhole || first == netSlow {
				a.revoke(s) // else it goes on
			}
			a.await(ending, 2*a.ttl())
			if want.leader == leadGone {
				a.follow(want.leader)
			}
		case sessionRecalled:
			contended := a.w.log.next("contended")
			ask()
			a.await(contended, time.Second)
		default:
			a.wait(a.upTo(a.ttl() / 3))
		}
		if want.session != sessionTrustless && want.session != sessionEnding {
			a.follow(want.leader)
		}
		if first != want.net {
			a.w.mendNetOf(s)
			a.afflict(s, want.net)
		}
		a.w.cover.soon()
		a.wait(a.upTo(a.ttl()))
		a.write()
	}}
}

// victim returns a site that does not lead; one whose process may be killed, if it shall be.
func (a *act) victim(n netState) *site {
	leader := a.leader()
	s := a.any(leader)
	if n != netDead || s == nil {
		return s
	}
	for _, i := range a.r.Perm(len(a.w.sites)) {
		if o := a.w.sites[i]; o != leader && a.w.running(o) != nil && a.quorum(o) {
			return o
		}
	}
	return s
}

// afflict gives a site the state of its network.
func (a *act) afflict(s *site, n netState) {
	switch n {
	case netSlow:
		a.w.slow(s, 0.2, a.ttl()/10)
	case netIn:
		a.w.deafen(s)
	case netOut:
		a.w.mute(s)
	case netCut:
		a.w.isolate(s)
	case netPaused:
		a.w.pause(s)
	case netFrozen:
		a.w.freeze(s)
	case netDead:
		if a.quorum(s) {
			a.w.crash(s)
		}
	}
}

// follow brings the leader into a state.
func (a *act) follow(l leaderState) {
	leader := a.leader()
	if leader == nil {
		return
	}
	next := a.w.log.next(history.Leads)
	switch l {
	case leadFresh:
		if a.quorum(leader) {
			a.w.crash(leader)
		} else {
			a.w.isolate(leader)
		}
		a.await(next, 5*time.Second)
	case leadGone:
		switch a.r.IntN(3) {
		case 0:
			a.w.isolate(leader)
		case 1:
			a.w.pause(leader)
		default:
			if a.quorum(leader) {
				a.w.crash(leader)
			}
		}
	case leadRival: // with a write that hangs raft does not see that its lease is over
		queued := a.w.log.next(history.Queued)
		a.hang(leader)
		a.await(queued, 200*time.Millisecond)
		a.wait(100 * time.Millisecond)
		a.w.isolate(leader)
		a.await(next, 5*time.Second)
	}
}

// hang has the writes of a site hang until write is called. Waits of the act end before that
// member retires for its disk.
func (a *act) hang(s *site) {
	if p := a.w.running(s); p != nil {
		a.w.hang(s)
		a.disk, a.until = p.disk, time.Now().Add(longestHang)
	}
}

// write has the writes that hang go on.
func (a *act) write() {
	if a.disk != nil {
		a.disk.Heal()
		a.disk = nil
	}
}

// longestHang is less than a member with a hung disk goes on voting.
const longestHang = 8 * time.Second

// idle has a caller on a site that has a session and wants nothing.
func (a *act) idle(s *site) {
	p := a.w.running(s)
	if p == nil || a.w.isFrozen(s) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if l, err := a.w.client(p, locks.Options{Name: "idler"}).Acquire(ctx, fmt.Sprint("idle-", p.name)); err == nil {
		_ = l.Release(ctx)
	}
}

// revoke has an operator end the sessions of a site's callers.
func (a *act) revoke(s *site) {
	other := a.any(s)
	if other == nil || a.w.isFrozen(other) {
		return
	}
	operator := a.w.client(a.w.running(other), locks.Options{Name: "operator"})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var refs []string
	for x, err := range operator.Sessions(ctx) {
		if err == nil && x.Node == fmt.Sprint("member-", s.i) {
			refs = append(refs, x.Ref)
		}
	}
	for _, ref := range refs {
		a.w.calls.Go(func() { // it waits for the holder's word, or for its TTL
			ctx, cancel := context.WithTimeout(context.Background(), 3*a.ttl())
			defer cancel()
			_ = operator.EndSession(ctx, ref)
		})
	}
	a.wait(100 * time.Millisecond)
}

// keepSticky has a caller on a site keep a sticky key, and returns a function that has a
// caller elsewhere ask for it.
func (a *act) keepSticky(s *site) (ask func()) {
	const key = "st-aim"
	p := a.w.running(s)
	if p == nil || a.w.isFrozen(s) {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if l, err := a.w.client(p, locks.Options{Name: "keeper"}).Acquire(ctx, key, locks.Sticky()); err == nil {
		_ = l.Release(ctx)
	}
	return func() {
		other := a.any(s)
		if other == nil || a.w.isFrozen(other) {
			return
		}
		client := a.w.client(a.w.running(other), locks.Options{Name: "asker"})
		a.w.calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 3*a.ttl())
			defer cancel()
			if l, err := client.Acquire(ctx, key); err == nil {
				_ = l.Release(ctx)
			}
		})
	}
}

// bulk has a caller on a site take so many keys that its session ends in slices.
func (a *act) bulk(s *site) {
	p := a.w.running(s)
	if p == nil || a.w.isFrozen(s) {
		return
	}
	// With a short TTL a silent session ends while the next leader is fresh.
	client := a.w.client(p, locks.Options{Name: "bulk", TTL: max(a.ttl()/2, 300*time.Millisecond)})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for i := range 2 {
		keys := make([]string, 800)
		for j := range keys {
			keys[j] = fmt.Sprintf("bulk/%s/%d/%d", p.name, i, j)
		}
		if _, err := client.AcquireAll(ctx, keys); err != nil {
			return
		}
	}
}

// An aimer names the state that an aimed phase shall bring about, by a random number; ok is
// false if there is none.
type aimer func(x uint64) (t triple, ok bool)

// noAim stands in a plan for a state where the aimer had none.
const noAim = "none"

// aimless aims at nothing.
func aimless(uint64) (triple, bool) { return triple{}, false }

// uncovered aims at the states that have not been seen.
func uncovered(seen map[triple]int) aimer {
	return func(x uint64) (triple, bool) {
		list, err := states()
		if err != nil {
			return triple{}, false
		}
		list = slices.DeleteFunc(list, func(t triple) bool { return seen[t] > 0 })
		if len(list) == 0 {
			return triple{}, false
		}
		return list[x%uint64(len(list))], true
	}
}

// inOrder aims at the states of a list, one after the other.
func inOrder(aims []string) (aimer, error) {
	for _, text := range aims {
		if _, err := parseTriple(text); err != nil && text != noAim {
			return nil, err
		}
	}
	return func(uint64) (triple, bool) {
		if len(aims) == 0 {
			return triple{}, false
		}
		t, err := parseTriple(aims[0])
		aims = aims[1:]
		return t, err == nil
	}, nil
}

// parsePlan reads WARDMOTE_SIM_PLAN: the number of phases, and the states aimed at. Without
// the variable the run has the usual number, and is aimed at nothing.
func parsePlan(text string, usual int) (n int, aims aimer, err error) {
	if text == "" {
		return usual, aimless, nil
	}
	parts := strings.Split(text, ",")
	if n, err = strconv.Atoi(parts[0]); err != nil || n < 1 {
		return 0, nil, fmt.Errorf("WARDMOTE_SIM_PLAN is %q, and must begin with a number of phases", text)
	}
	aims, err = inOrder(parts[1:])
	return n, aims, err
}
