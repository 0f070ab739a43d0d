package locks

import (
	"context"
	"fmt"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// Downgrade makes an exclusive lock shared. The waiters that want to share the
// key are granted the key in the same step of the cluster, and no exclusive
// request comes between. The token stays. A shared lock is left as it is. From
// the moment of the call, and even if Downgrade fails, this process must act as
// one of several holders.
//
// If ctx ends before the cluster answered, the error wraps the cause of ctx.
// The lock is still held; if the message may have left, the lock may or may not
// be shared by now, and calling Downgrade again settles that. A lost lock
// returns its *LostError. For a lock acquired with Permits, Reentrant or
// Sticky the error matches ErrWrongMode, and nothing was changed.
func (l *Lock) Downgrade(ctx context.Context) error {
	return l.changeMode(ctx, "downgrade", (*grant).downgrade)
}

// downgrade does the work of Downgrade. The caller has the turn to change the
// grant.
func (g *grant) downgrade(ctx context.Context) (machine.Outcome, error) {
	s := g.s
	s.mu.Lock()
	if g.mode == machine.Shared {
		s.mu.Unlock()
		return machine.Outcome{Code: machine.OK}, nil
	}
	before := g.downgrading
	g.downgrading = true // set before the command is sent
	token := g.token
	s.mu.Unlock()
	out, err := s.propose(ctx, func(seen []uint64) machine.Command {
		return machine.Downgrade{Session: s.id, Token: machine.Token(token), Seen: seen}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && out.Code == machine.OK:
		g.mode, g.downgrading = machine.Shared, false
	case !mayBeApplied(err):
		g.downgrading = before
	}
	return out, err
}

// Upgrade makes a shared lock exclusive. It waits until the key has no other
// holders, before all other waiters. The lock then has a new, larger token,
// also in its context; the key was never free in between. An exclusive lock is
// left as it is. After any error but the lock's own end, the lock is shared, as
// before.
//
// Two upgrades of the same key would wait for each other, so the second gets a
// *DeadlockError at once. The second lock is still held, and the first upgrade
// waits until that lock is released. The error matches ErrTooManyWaiters if the search for
// such a circle, through other locks of ctx, would take too long. If ctx ends during the wait, the request
// is withdrawn, in the background if necessary, and the lock is still held and
// shared; its token may have risen all the same. If the lock is released or
// lost during the wait, Upgrade returns the lock's end. For a lock acquired
// with Permits, Reentrant or Sticky the error matches ErrWrongMode.
func (l *Lock) Upgrade(ctx context.Context) error {
	return l.changeMode(ctx, "upgrade", (*grant).upgrade)
}

// changeMode runs change, unless the mode of the lock's grant cannot be
// changed.
func (l *Lock) changeMode(
	ctx context.Context, verb string, change func(*grant, context.Context) (machine.Outcome, error),
) error {
	return l.runChange(ctx, verb, func(ctx context.Context) (machine.Outcome, error) {
		g := l.g
		g.s.mu.Lock()
		permit, reentrant, sticky := g.mode == machine.Permit, g.rare().entry != nil, g.sticky
		g.s.mu.Unlock()
		switch {
		case sticky:
			return machine.Outcome{}, g.wrongMode(verb, "the lock is of the option Sticky")
		case permit:
			return machine.Outcome{}, g.wrongMode(verb, "the lock is a permit")
		case reentrant:
			return machine.Outcome{}, g.wrongMode(verb, "its owner may hold several locks of the grant")
		}
		return change(g, ctx)
	})
}

// upgrade does the work of Upgrade. The caller has the turn to change the
// grant.
func (g *grant) upgrade(ctx context.Context) (machine.Outcome, error) {
	s := g.s
	s.mu.Lock()
	mode, downgrading := g.mode, g.downgrading
	s.mu.Unlock()
	switch {
	case mode == machine.Exclusive && !downgrading:
		return machine.Outcome{Code: machine.OK}, nil
	case downgrading:
		// Settled first: the cluster must not receive that earlier Downgrade
		// after the upgrade.
		if out, err := g.downgrade(ctx); err != nil || out.Code != machine.OK {
			return out, err
		}
	}
	w := newWaiter(ctx, ctx, acquireRequest{key: g.key, call: g.call, began: time.Now()})
	w.upgrades = g
	ctx = &w.bound
	defer w.bound.Close()
	// Waits also for the cleanup of an earlier upgrade.
	if err := s.awaitCleanups(ctx, g.keys()); err != nil {
		return machine.Outcome{}, err
	}
	if err := g.refreshToken(ctx); err != nil {
		return machine.Outcome{}, err
	}
	s.mu.Lock()
	token := machine.Token(g.token)
	s.mu.Unlock()
	held, err := s.c.lineageTokens(ctx, machine.Token(g.firstToken))
	if err != nil {
		return machine.Outcome{}, err
	}
	if _, err := s.register(w, nil); err != nil {
		return machine.Outcome{}, err
	}
	out, err := s.propose(ctx, func(seen []uint64) machine.Command {
		return machine.Upgrade{Session: s.id, Seq: w.seq, Token: token, Under: held, Seen: seen}
	})
	v := s.awaitVerdict(ctx, w, out, err)
	switch {
	case v.withdrawn && v.err == nil:
		return machine.Outcome{}, errWithdrawn
	case v.err == nil && v.out.Code == machine.Deadlock:
		return machine.Outcome{}, deadlockError("upgrade", g.key, v.out.Cycle)
	case v.err == nil && v.out.Code == machine.TooManyWaiters:
		return machine.Outcome{}, fmt.Errorf("%w: the search for a deadlock would take too long", ErrTooManyWaiters)
	}
	return v.out, v.err
}

// refreshToken reads the grant's token from the cluster if an upgrade that was
// given up may have raised the token. This must come before the next upgrade,
// because the cluster accepts the grant's previous token, but no older one. All
// cleanups for the key are done, so the earlier upgrade is over. If it was
// granted, there was no other holder at that moment, so this grant is among the
// first holders that a read returns.
func (g *grant) refreshToken(ctx context.Context) error {
	s := g.s
	s.mu.Lock()
	unsure := g.tokenUnsure
	s.mu.Unlock()
	if !unsure {
		return nil
	}
	a, err := s.c.rep.Read(ctx, replica.Query{Key: g.key, Waiters: replica.MaxListed})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range a.Status.Holders {
		if h.Session == s.id && h.Seq == g.seq {
			g.raiseToken(h.Token)
			g.tokenUnsure = false
		}
	}
	return nil
}

// noteUpgraded records that an upgrade was granted. The caller holds s.mu.
func (g *grant) noteUpgraded(out machine.Outcome) {
	g.raiseToken(out.Token)
	g.mode = machine.Exclusive
	if g.s.grants[g.seq] != g {
		return // the grant has ended meanwhile
	}
	if out.Waiters > 0 {
		g.noteContended()
	}
}
