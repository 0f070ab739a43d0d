package locks

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// ErrOnce: an earlier run of Once with the same id has failed. The error is a
// *OnceError.
var ErrOnce = errors.New("locks: the earlier run failed")

// ErrUnfinished: an earlier run of Once with the same id began, and the result
// is unknown: the process of that run is gone, and left no result. The error is
// a *OnceError and matches ErrOnce as well.
var ErrUnfinished = errors.New("locks: the earlier run has an unknown result")

// OnceError describes an earlier run of ID.
type OnceError struct {
	ID         string
	Text       string // of the error that the run returned
	Unfinished bool   // the run began, and its result is unknown
}

func (e *OnceError) Error() string {
	if e.Unfinished {
		return fmt.Sprintf("locks: once %q: an earlier run began, and its result is unknown", e.ID)
	}
	return fmt.Sprintf("locks: once %q: an earlier run failed: %s", e.ID, e.Text)
}

// Is reports whether target is ErrOnce, or ErrUnfinished if e.Unfinished is
// set.
func (e *OnceError) Is(target error) bool {
	return target == ErrOnce || e.Unfinished && target == ErrUnfinished
}

// Limits of Once.
const (
	maxOnceID     = 400      // bytes
	maxOnceResult = 60 << 10 // bytes
	maxOnceText   = 4 << 10  // bytes of an error's text that are kept
)

// onceKeys is the prefix of the keys of Once. The ids follow the prefix. No
// user's key has this prefix.
const onceKeys = "\x00once/"

// A key of Once has an empty value, or a mark: one of these bytes, and then the
// data named here.
const (
	onceBegun  = 1 // no data
	onceDone   = 2 // the result
	onceFailed = 3 // the error's text
)

// Once runs fn unless a run under id has begun anywhere in the cluster before.
// An id is 1 to 400 bytes of valid UTF-8. Once returns fn's result, up to 60
// KiB, or the result of the earlier run. If an earlier run is under way, Once
// waits for its end.
//
// fn runs at most once, whatever fails. The cluster stores a mark before fn
// runs and the result after it. If the process of fn dies in between, or cannot
// reach the cluster for a TTL, fn is not run again: later callers get an error
// matching ErrUnfinished, and must find out by themselves how far fn came. If
// fn returns an error, it has been run too: later callers get a *OnceError with
// the error's text, matching ErrOnce. If fn panics, the text says so.
//
// The context of fn ends with ctx and with the lock of the run, and has the
// lock's fencing token. The caller that ran fn gets the result of fn, even if
// the lock was lost meanwhile. If the result could not be stored or is too
// long, that caller gets the result and an error, which matches ErrUncertain if
// others may see the result. If ctx ends before the result is stored, Once returns
// at once with such an error, and the client stores the result in the background,
// before it frees the id. With any other error, this call has not run fn:
// the cause of ctx, *SessionError, *DeadlockError if fn would wait for itself,
// *LostError, ErrClosed, cluster.ErrStopped, cluster.ErrVersion,
// *cluster.ConfigError.
//
// The cluster remembers the last 16,384 runs, in 16 MiB. An older id may be run
// again, even if the result was read since. If ctx ends while the first mark is
// being stored, the id may be used up as if fn had begun.
func (c *Client) Once(ctx context.Context, id string, fn func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	if err := checkText("id", id, maxOnceID); err != nil {
		return nil, err
	}
	if fn == nil {
		return nil, configError("fn", "nil")
	}
	if err := c.beginCall(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	o := &once{c: c, ctx: ctx, id: id, key: onceKeys + id, fn: fn}
	for {
		over, err := o.attempt(ctx)
		if over || err != nil {
			return o.result, err
		}
	}
}

// once is one call of Once.
type once struct {
	c       *Client
	ctx     context.Context // of the call
	id, key string
	fn      func(ctx context.Context) ([]byte, error)
	result  []byte
}

// attempt reads the mark of the id, and runs fn if there is none. The result is
// false if attempt must be called again, because an earlier run has left no
// mark.
func (o *once) attempt(ctx context.Context) (over bool, err error) {
	a, err := o.c.read(ctx, replica.Query{Key: o.key, Value: true})
	if err != nil {
		return true, o.wrapError(err)
	}
	begun := len(a.Status.Value) > 0 && a.Status.Value[0] == onceBegun
	if !begun || a.Status.Held == 0 {
		if over, err := o.readMark([]byte(a.Status.Value)); over {
			return true, err
		}
	}
	// While fn runs elsewhere, this call needs only its result. All such calls
	// wait to share the key, in the key's queue and not by a read, so that the
	// cluster can find cycles of waits.
	req := acquireRequest{call: CallOnce, key: o.key}
	if begun {
		req.cmd.Mode = machine.Shared
	}
	l, err := o.c.acquire(ctx, ctx, &req)
	if err != nil {
		return true, o.wrapError(err)
	}
	var verdict error
	lost, err := o.c.runWork(l, func(ctx context.Context, l *Lock) error {
		value, _ := l.Value()
		if over, verdict = o.readMark(value); !over && req.cmd.Mode == machine.Exclusive {
			over = true
			verdict = o.runMarked(ctx, l)
		}
		return nil
	}, nil)
	switch {
	case over:
		return true, verdict
	case err != nil && !o.c.lostWithSession(err):
		return true, o.wrapError(err)
	case lost != nil && !o.c.lostWithSession(lost):
		return true, o.wrapError(lost)
	}
	return false, nil
}

// readMark returns the result of the earlier run from its mark, value, or false
// if there is no mark. The caller must know that no run is under way.
func (o *once) readMark(value []byte) (over bool, err error) {
	if len(value) == 0 {
		return false, nil
	}
	switch rest := value[1:]; value[0] {
	case onceBegun:
		return true, &OnceError{ID: o.id, Unfinished: true}
	case onceDone:
		o.result = bytes.Clone(rest)
		return true, nil
	case onceFailed:
		return true, &OnceError{ID: o.id, Text: string(rest)}
	}
	return true, o.wrapError(fmt.Errorf("the mark of the earlier run is unknown to this version: %d", value[0]))
}

// runMarked runs fn under the exclusive lock l, and stores the mark before and
// the mark after. ctx is the lock's context.
func (o *once) runMarked(ctx context.Context, l *Lock) error {
	if err := l.setValue(ctx, []byte{onceBegun}, true); err != nil {
		if errors.Is(certain(err), ErrUncertain) {
			// fn has not begun. A stored mark is removed before another client
			// can have seen the mark.
			_ = o.storeMark(l, nil)
		}
		return o.wrapError(err)
	}
	returned := false
	defer func() {
		if !returned { // a panic or runtime.Goexit of fn continues
			_ = o.storeMark(l, append([]byte{onceFailed}, "the function panicked, or ended its goroutine"...))
		}
	}()
	result, err := o.fn(ctx)
	returned = true

	o.result = result
	mark := append([]byte{onceDone}, result...)
	switch {
	case err != nil:
		text := err.Error()
		mark = append([]byte{onceFailed}, text[:min(len(text), maxOnceText)]...)
	case len(result) > maxOnceResult:
		err = configError("result", "%d bytes exceed %d", len(result), maxOnceResult)
		mark = append([]byte{onceFailed}, fmt.Sprintf("the result of %d bytes was too long to be stored", len(result))...)
	}
	if unstored := o.storeMark(l, mark); unstored != nil {
		err = errors.Join(err, fmt.Errorf("locks: once %q: the function was run, but the result could not be stored: %w", o.id, unstored))
	}
	return err
}

// storeMark stores a mark, even if the lock has ended: the cluster refuses
// commands of a grant no longer in force. A mark without an answer, when the
// caller's ctx ends or after a few seconds, is stored in the background, before
// the key is freed.
func (o *once) storeMark(l *Lock, value []byte) error {
	s := l.g.s
	cmd := machine.SetValue{Session: s.id, Token: machine.Token(l.Token()), Rev: l.g.nextRev(), Value: value, Fade: len(value) > 0}
	ctx, cancel := context.WithTimeout(o.ctx, grace(s.ttl))
	defer cancel()
	var out machine.Outcome
	err := ctx.Err()
	if err == nil {
		out, err = o.c.rep.Propose(ctx, cmd)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		l.owe(&cmd)
		// Not the end of ctx: that would say that fn was not run.
		return fmt.Errorf("%w: %w; the client goes on in the background", ErrUncertain, notInTime(err))
	case err != nil:
		return certain(err)
	case out.Code == machine.OK:
		return nil
	}
	if err := l.Err(); err != nil {
		return err
	}
	return outcomeError("store the result", out)
}

func (o *once) wrapError(err error) error { return callError("once", o.id, err) }
