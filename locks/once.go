package locks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// ErrOnce says that what Once was to run had been run before, and failed. The
// error is a *OnceError.
var ErrOnce = errors.New("locks: run once, and failed")

// ErrUnfinished says that what Once was to run had been begun before, and nobody
// knows how it ended: who ran it is gone, and left no result. The error is a
// *OnceError, which matches ErrOnce as well.
var ErrUnfinished = errors.New("locks: begun once, and nobody knows how it ended")

// OnceError says what became of an earlier run of ID.
type OnceError struct {
	ID         string
	Text       string // of the error that the run returned
	Unfinished bool   // nobody knows how it ended
}

func (e *OnceError) Error() string {
	if e.Unfinished {
		return fmt.Sprintf("locks: once %q: begun before, and nobody knows how it ended", e.ID)
	}
	return fmt.Sprintf("locks: once %q: failed before: %s", e.ID, e.Text)
}

// Is reports whether target is ErrOnce, or ErrUnfinished if that is so.
func (e *OnceError) Is(target error) bool {
	return target == ErrOnce || e.Unfinished && target == ErrUnfinished
}

// Limits of Once.
const (
	maxOnceID     = 400      // bytes
	maxOnceResult = 60 << 10 // bytes
	maxOnceText   = 4 << 10  // bytes of an error that are kept
)

// onceKeys is before the ids in the keys of Once, where no key of a user's is.
const onceKeys = "\x00once/"

// What a key of Once has for a value: nothing, or one of these and what follows it.
const (
	onceBegun  = 1 // nothing
	onceDone   = 2 // the result
	onceFailed = 3 // the error's text
)

// Once runs fn, but only if nobody in the cluster has begun to run anything under
// id before, an id being 1 to 400 bytes of valid UTF-8. It returns fn's result,
// up to 60 KiB, or the result of whoever ran before; callers wait for one that is
// under way.
//
// fn runs at most once, whatever fails. That it has begun is written down before,
// and its result after. If its process dies in between, or cannot reach the
// cluster for a TTL, nobody runs it again: who calls then gets an error that
// matches ErrUnfinished, and has to find out by itself what was done. An fn that
// returned an error has been run, too: later callers get a *OnceError that matches
// ErrOnce and tells the error's text. If fn panics, that is what is told.
//
// fn's context ends with ctx and with the lock that fn runs under, whose fencing
// token it carries. The first caller gets what fn returned, even if the lock was
// lost meanwhile; if the result could not be stored, or is too long, it gets the
// result and an error, which matches ErrUncertain if others may know the result.
// Any other error says that fn was not run by this call: the end of ctx,
// *SessionError, *DeadlockError if fn would wait for itself, *LostError, ErrClosed,
// cluster.ErrStopped, cluster.ErrVersion, *cluster.ConfigError.
//
// The cluster remembers the 16,384 ids that were run last, in 16 MiB: an older one
// may be run again, also if its result was asked for since. The end of ctx while
// the beginning is being written may spend the id: it is then as if fn had been
// begun.
func (c *Client) Once(ctx context.Context, id string, fn func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	switch {
	case id == "":
		return nil, configError("id", "empty")
	case len(id) > maxOnceID:
		return nil, configError("id", "%d bytes exceed %d", len(id), maxOnceID)
	case !utf8.ValidString(id):
		return nil, configError("id", "not valid UTF-8")
	case fn == nil:
		return nil, configError("fn", "nil")
	}
	if err := c.beginCall(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	o := &once{c: c, id: id, key: onceKeys + id, fn: fn}
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
	id, key string
	fn      func(ctx context.Context) ([]byte, error)
	result  []byte
}

// turn looks at what is known of the id, and runs fn if nothing is. It reports
// whether that settled it; if not, the one who held the key is gone.
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
	// Who comes while it runs only wants to know how it ends: all who wait for
	// that share the key then. They wait in its queue, and not by a read, so that
	// the cluster can see a wait that would never end.
	req := acquireRequest{key: o.key}
	if begun {
		req.cmd.Mode = machine.Shared
	}
	l, err := o.c.acquire(ctx, ctx, req)
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
	case err != nil:
		return true, o.wrapError(err)
	case lost != nil:
		return true, o.wrapError(lost)
	}
	return false, nil
}

// known returns what is known, if anything is, and nobody is running it.
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
	return true, o.wrapError(fmt.Errorf("what is known of it is of a kind that this version does not know: %d", value[0]))
}

// run runs fn under an exclusive lock, between the marks. ctx is the lock's.
func (o *once) runMarked(ctx context.Context, l *Lock) error {
	if err := l.setValue(ctx, []byte{onceBegun}, true); err != nil {
		if errors.Is(certain(err), ErrUncertain) {
			// It has not begun. The mark, if there is one, is taken back while
			// nobody else can have seen it.
			_ = o.storeMark(ctx, l, nil)
		}
		return o.wrapError(err)
	}
	returned := false
	defer func() {
		if !returned { // a panic or runtime.Goexit of fn's goes on
			_ = o.storeMark(ctx, l, append([]byte{onceFailed}, "it panicked, or ended its goroutine"...))
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
		mark = append([]byte{onceFailed}, fmt.Sprintf("its result of %d bytes was too long to be stored", len(result))...)
	}
	if unstored := o.storeMark(ctx, l, mark); unstored != nil {
		err = errors.Join(err, fmt.Errorf("locks: once %q: it was run, but how it ended could not be stored: %w", o.id, unstored))
	}
	return err
}

// store writes what is known, also if ctx has ended, and if the lock has: the
// cluster refuses what comes from a grant that is not in force any more.
func (o *once) storeMark(ctx context.Context, l *Lock, value []byte) error {
	s := l.g.s
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace(s.ttl))
	defer cancel()
	out, err := o.c.rep.Propose(ctx, machine.SetValue{
		Session: s.id, Token: machine.Token(l.Token()), Rev: l.g.nextRev(), Value: value, Fade: len(value) > 0,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		late := notInTime(err) // the end of ctx would say that fn was not run
		if mayBeApplied(err) {
			return fmt.Errorf("%w: %w", ErrUncertain, late)
		}
		return late
	case err != nil:
		return certain(err)
	case out.Code == machine.OK:
		return nil
	}
	if err := l.Err(); err != nil {
		return err
	}
	return outcomeError("store it", out)
}

func (o *once) wrapError(err error) error { return callError("once", o.id, err) }
