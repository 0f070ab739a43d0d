package locks

import (
	"bytes"
	"context"

	"github.com/wardmote/wardmote/internal/machine"
)

// Value returns the value that an earlier holder left with the key by SetValue,
// or nil if there is none. The value is as of the grant of this lock: a value
// set by this lock is for later holders.
//
// clean says that the previous exclusive holder released the key by itself. If
// clean is false, that holder was lost: its session expired, or its grant was
// broken. It may have ended in the middle of its work, so neither the value nor
// the protected resource can be assumed to be complete. A key without a
// previous holder is clean.
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

// SetValue leaves v, up to 64 KiB, with the key, for later holders to read with
// Value. When SetValue returns nil, the value is safe. If ctx ends before, the
// value may or may not have been set, and calling SetValue again is harmless. A
// lock that was lost before the call returns its *LostError, and the value was
// not set; if the lock is lost during the call, the value may have been set.
//
// The value stays with the key when the key is free, and the next SetValue
// replaces it. An empty v deletes it. v is copied. Only an exclusive lock can
// set a value: for any other lock, and for a lock that is being downgraded, the
// error matches ErrWrongMode. The cluster keeps up to 65,536 values of 64 MiB
// in total; a further value is refused with an error that matches
// ErrValuesFull.
func (l *Lock) SetValue(ctx context.Context, v []byte) error { return l.setValue(ctx, v, false) }

// setValue does the work of SetValue. With fade the cluster deletes the value
// when there are too many such values.
func (l *Lock) setValue(ctx context.Context, v []byte, fade bool) error {
	if len(v) > machine.MaxValue {
		return configError("value", "%d bytes exceed %d", len(v), machine.MaxValue)
	}
	// A copy of the command may be encoded after this call has returned,
	// because ctx has ended or because another copy was answered.
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
