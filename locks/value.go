package locks

import (
	"bytes"
	"context"

	"github.com/wardmote/wardmote/internal/machine"
)

// Value returns what the holder before left with the key by SetValue, or who held
// it before that; nil if nobody did. The value is as it was when this lock was
// granted, and stays so: what this lock sets is for those who come after it.
//
// clean tells that the exclusive holder before released the key by itself. If it
// is false that one was lost: its session expired, or the grant was broken. It
// may have ended in the middle of its work, so that neither the value nor what
// the lock protects can be taken for complete. A key that nobody held before is
// clean.
func (l *Lock) Value() (v []byte, clean bool) {
	if l.zero() {
		return nil, false
	}
	s := l.g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.g.rare != nil && l.g.rare.value != "" {
		v = []byte(l.g.rare.value)
	}
	return v, !l.g.unclean
}

// SetValue leaves v, up to 64 KiB, with the key for the next holders to read by
// Value; an empty v leaves nothing. It is kept when the key is free, and replaced
// by the next SetValue. Only an exclusive lock can set a value: of any other, and
// of one that is being downgraded, the error matches ErrWrongMode.
//
// When it returns nil the value is safe. If ctx ends before, the value may have
// been set or not, and calling it again is harmless. A lock that has been lost
// returns its *LostError, and has set nothing; one that is lost meanwhile may
// have. The cluster keeps up to 65,536 values of 64 MiB in all: one more is
// refused with an error that matches ErrValuesFull. v is copied.
func (l *Lock) SetValue(ctx context.Context, v []byte) error { return l.setValue(ctx, v, false) }

// setValue is SetValue; a value that may fade is forgotten where there are too
// many of its kind.
func (l *Lock) setValue(ctx context.Context, v []byte, fade bool) error {
	if len(v) > machine.MaxValue {
		return configError("value", "%d bytes exceed %d", len(v), machine.MaxValue)
	}
	// A copy of the command may be under way for longer than this call, and be
	// encoded then: after ctx has ended, or after another copy was answered.
	v = bytes.Clone(v)
	const verb = "set the value of"
	return l.runChange(ctx, verb, func(ctx context.Context) (machine.Outcome, error) {
		g, s := l.g, l.g.s
		s.mu.Lock()
		exclusive, token := g.mode == machine.Exclusive && !g.downgrading, g.token
		s.mu.Unlock()
		if !exclusive {
			return machine.Outcome{}, g.wrongMode(verb, "the lock is not exclusive")
		}
		rev := g.nextRev()
		return s.propose(ctx, func(seen []uint64) machine.Command {
			return machine.SetValue{Session: s.id, Token: machine.Token(token), Rev: rev, Value: v, Fade: fade, Seen: seen}
		})
	})
}
