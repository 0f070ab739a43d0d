package locks

import (
	"context"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// Downgrade makes an exclusive lock a shared one, in the cluster at once: those
// who wait to share the key are granted it in the same step, and nobody else is
// between. The token stays. From the call on, this process must act as one of
// many who share the key, whatever Downgrade returns. A lock that is shared
// already is left as it is.
//
// If ctx ends before the cluster answered, the error wraps its end; the lock is
// held on, and if the message may have left, nobody knows whether it is shared by
// now. Calling Downgrade again settles that. A lock that was lost returns its *LostError. For a lock
// acquired with Permit or Reentrant the error matches ErrWrongMode, and nothing
// was changed.
func (l *Lock) Downgrade(ctx context.Context) error {
	const verb = "downgrade"
	return l.runChange(ctx, verb, func(ctx context.Context) (machine.Outcome, error) {
		if err := l.g.checkModeCanChange(verb); err != nil {
			return machine.Outcome{}, err
		}
		return l.g.downgrade(ctx)
	})
}

// downgrade is Downgrade, for the one who may change the mode.
func (g *grant) downgrade(ctx context.Context) (machine.Outcome, error) {
	s := g.s
	s.mu.Lock()
	if g.mode == machine.Shared {
		s.mu.Unlock()
		return machine.Outcome{Code: machine.OK}, nil
	}
	before := g.downgrading
	g.downgrading = true // before the message leaves
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

// Upgrade makes a shared lock exclusive: it waits until nobody else shares the
// key, before all who wait for it otherwise. The lock then has a new, larger
// token, which Token and the lock's context tell from now on; the key was never
// free between. A lock that is exclusive already is left as it is.
//
// Two who upgrade the same key would wait for each other: the second gets a
// *DeadlockError at once. It still shares the key then, and so stands in the
// first one's way until it releases. If ctx ends during the wait, the request is
// taken back, in the background where that must be, and the lock is held on as a
// shared one; its token may have risen all the same. An Upgrade ends with the
// lock's own end if the lock is released or lost meanwhile. For a lock acquired
// with Permit or Reentrant the error matches ErrWrongMode. After any error but
// the lock's end the lock is shared, as it was.
func (l *Lock) Upgrade(ctx context.Context) error {
	const verb = "upgrade"
	return l.runChange(ctx, verb, func(ctx context.Context) (machine.Outcome, error) {
		g, s := l.g, l.g.s
		if err := g.checkModeCanChange(verb); err != nil {
			return machine.Outcome{}, err
		}
		s.mu.Lock()
		mode, easing := g.mode, g.downgrading
		s.mu.Unlock()
		switch {
		case mode == machine.Exclusive && !easing:
			return machine.Outcome{Code: machine.OK}, nil
		case easing:
			// The cluster must not hear of an earlier Downgrade later.
			if out, err := g.downgrade(ctx); err != nil || out.Code != machine.OK {
				return out, err
			}
		}
		return g.upgrade(ctx)
	})
}

// upgrade is Upgrade of a shared lock, for the one who may change the mode.
func (g *grant) upgrade(ctx context.Context) (machine.Outcome, error) {
	s := g.s
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Also what an earlier upgrade left.
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
	w := &waiter{
		acquireRequest: acquireRequest{key: g.key},
		since:          time.Now(),
		upgrades:       g,
		cancel:         cancel,
		answered:       make(chan struct{}),
	}
	if err := s.register(w); err != nil {
		return machine.Outcome{}, err
	}
	out, err := s.propose(ctx, func(seen []uint64) machine.Command {
		return machine.Upgrade{Session: s.id, Seq: w.seq, Token: token, Under: held, Seen: seen}
	})
	if err == nil {
		s.awaitVerdict(ctx, w, out)
	}
	v := s.removeWaiter(w, out, err)
	switch {
	case v.withdrawn && v.err == nil:
		return machine.Outcome{}, errWithdrawn
	case v.err == nil && v.out.Code == machine.Deadlock:
		return machine.Outcome{}, deadlockError("upgrade", g.key, v.out.Cycle)
	}
	return v.out, v.err
}

// learn asks for the grant's token if it may have risen unnoticed, before it rises
// again: the cluster takes the one before for it, but none before that. What the
// client owed for the key has been paid, so that an upgrade given up is over. If it
// was granted before that, nobody else held the key then, so that this grant is
// among the first holders that are told.
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

// promoted notes that an upgrade was granted. The caller holds s.mu.
func (g *grant) noteUpgraded(out machine.Outcome) {
	g.raiseToken(out.Token)
	g.mode = machine.Exclusive
	if g.s.grants[g.seq] != g {
		return // ended meanwhile
	}
	if out.Waiters > 0 {
		g.noteContended()
	}
}

// changeable returns why the mode cannot be changed.
func (g *grant) checkModeCanChange(verb string) error {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	switch {
	case g.mode == machine.Permit:
		return g.wrongMode(verb, "the lock is a permit")
	case g.rare != nil && g.rare.entry != nil:
		return g.wrongMode(verb, "its owner may have entered it several times")
	}
	return nil
}
