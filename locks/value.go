package locks

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
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
	return bytesOf(l.g.rare().value), !l.g.unclean
}

// SetValue leaves v, up to 64 KiB, with the key, for later holders to read with
// Value. When SetValue returns nil, the value is safe. If ctx ends before, the
// value may or may not have been set, and calling SetValue again is harmless. A
// lock that was lost before the call returns its *LostError, and the value was
// not set; if the lock is lost during the call, the value may have been set.
//
// The value stays with the key when the key is free, and the next SetValue
// replaces it. An empty v deletes it. v is copied. Only an exclusive lock can
// set a value: for any other lock, for a lock of the option Sticky, and for a lock
// that is being downgraded, the error matches ErrWrongMode. The cluster keeps up to 65,536 values of 64 MiB
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
		exclusive, sticky, token := g.mode == machine.Exclusive && !g.downgrading, g.sticky, g.token
		s.mu.Unlock()
		if sticky {
			return machine.Outcome{}, g.wrongMode(verb, "the lock is of the option Sticky")
		}
		if !exclusive {
			return machine.Outcome{}, g.wrongMode(verb, "the lock is not exclusive")
		}
		rev := g.nextRev()
		return s.propose(ctx, func(seen []uint64) machine.Command {
			return machine.SetValue{Session: s.id, Token: machine.Token(token), Rev: rev, Value: v, Fade: fade, Seen: seen}
		})
	})
}

// ErrUncertain: a change may or may not have been made. The cluster may have
// received the command, and no answer arrived.
var ErrUncertain = errors.New("locks: the change may or may not have been made")

// Cell is a small value kept by the cluster, up to 64 KiB, such as a
// configuration or a counter. A cell is the value left with a key by
// Lock.SetValue. The key is like any other: while a client holds the key, no
// other client can change the value.
type Cell struct {
	c   *Client
	key string
}

// Cell returns the cell of key. The call itself does nothing; if the key cannot
// be used, the cell's methods fail with a *cluster.ConfigError.
func (c *Client) Cell(key string) *Cell { return &Cell{c: c, key: key} }

// Get returns the cell's value at some moment during the call, or nil if the
// cell has none. Get needs no session and waits for no holder. The errors are
// those of Client.Inspect.
func (x *Cell) Get(ctx context.Context) ([]byte, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	if err := checkKey(x.key); err != nil {
		return nil, err
	}
	a, err := x.c.read(ctx, replica.Query{Key: x.key, Value: true})
	if err != nil {
		return nil, callError("get the value of", x.key, err)
	}
	return bytesOf(a.Status.Value), nil
}

// Watch yields the cell's value, and then the latest value after each change, nil
// whenever the cell has none. If values change faster than the loop's body runs,
// some are skipped, but never the latest. No value is yielded twice in a row. Watch
// needs no session, waits for no holder, and continues through leader changes and
// while no leader can be reached. The body may write into the yielded value. The
// sequence ends like Client.Watch's.
func (x *Cell) Watch(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if err := cmp.Or(checkContext(ctx), checkKey(x.key)); err != nil {
			yield(nil, err)
			return
		}
		last, told := "", false
		for a, err := range x.c.follow(ctx, replica.Query{Key: x.key, Value: true}, x.c.isFinal) {
			switch {
			case err != nil:
				yield(nil, callError("watch the value of", x.key, err))
				return
			case told && a.Status.Value == last:
				continue // for example, only the holder has changed
			}
			if last, told = a.Status.Value, true; !yield(bytesOf(last), nil) {
				return
			}
		}
	}
}

// Update replaces the cell's value by the result of change. When Update returns
// nil, the new value is safe. On failure the value is unchanged, unless the
// error matches ErrUncertain: then the value may or may not have been replaced,
// and Update has not tried again.
//
// Update holds the key meanwhile. Concurrent updates therefore run in the order
// of their calls, and each sees the result of the previous update. change runs
// once, unless the lock is lost before the new value is sent: then Update
// acquires the key again, and change runs again. change should be quick, and
// free of other effects. An empty result deletes the value, and a result equal
// to the old value changes nothing. If change panics, the key is freed and the
// value is unchanged.
//
// The errors are the errors of Acquire and SetValue, ErrValuesFull among them;
// the cause of ctx; and a *cluster.ConfigError if change is nil or its result
// exceeds 64 KiB.
//
// Not IfToken with a retry after each *ChangedError: under contention all
// updates but one would fail, again and again, while the queue serves all in
// turn.
func (x *Cell) Update(ctx context.Context, change func(old []byte) []byte) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := checkKey(x.key); err != nil {
		return err
	}
	if change == nil {
		return configError("change", "nil")
	}
	var retry backoff
	for {
		// verdict is the result of SetValue, and the result of Update once
		// SetValue was called: a later loss of the lock, or a failed release,
		// does not concern the value.
		var verdict error
		written := false
		err := x.c.Do(ctx, x.key, func(ctx context.Context, l *Lock) error {
			old, _ := l.Value()
			value := change(bytes.Clone(old))
			if len(value) > machine.MaxValue {
				return configError("value", "%d bytes exceed %d", len(value), machine.MaxValue)
			}
			if err := l.Err(); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return callError("update", x.key, endOf(ctx))
			}
			if written = true; !bytes.Equal(value, old) {
				verdict = certain(l.SetValue(ctx, value))
			}
			return nil
		})
		switch {
		case written:
			return verdict
		case !errors.Is(err, ErrLost), ctx.Err() != nil, errors.Is(err, ErrClosed), errors.Is(err, cluster.ErrStopped):
			return err
		}
		if err := retry.wait(ctx, x.c.closing); err != nil {
			return callError("update", x.key, err)
		}
	}
}

// certain wraps an error of SetValue with ErrUncertain, unless the error
// excludes a change of the value.
func certain(err error) error {
	if !mayBeApplied(err) || errors.Is(err, ErrValuesFull) || errors.Is(err, ErrWrongMode) ||
		hasType[*cluster.ConfigError](err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUncertain, err)
}

func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}
