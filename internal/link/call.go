package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// call runs try on the upstream until there is a verdict: CodeOK, CodeNo,
// CodeNoSession or CodeDenied. Call waits for an upstream, and tries again after changes of leader
// and lost answers, until ctx ends. An error is a *replica.Error, with Unknown set
// if any attempt may have had an effect.
func call[T any](ctx context.Context, k *Link, try func(upstream, func(T, wire.Code)) (cancel func())) (T, wire.Code, error) {
	return callFor(ctx, k, request{}, nil, try)
}

// request is what callFor has to know of a request.
type request struct {
	session machine.SessionID // zero: of no session
	frees   bool              // nothing but freeing keys: see hears
}

// errStranger: the leader has again and again refused a request for a session of this process.
var errStranger = errors.New("link: the leader takes the session for another process's")

// callFor is call for a request of a session. Memory, if not nil, has verdicts to be used again. A leader that refuses the
// request is shown the session's key once more, and asked again, mostShows times: the session
// must not be lost because the leader has not taken the key, for whatever reason. A leader that
// has no room for the key says CodeBusy, and is shown the key with each attempt.
//
// A request for a detached session stays here: a leader that was not shown the key would
// count a theft. An attempt follows the look at the session, on the same upstream: while
// the session is attached, every upstream of calls has its key.
func callFor[T any](ctx context.Context, k *Link, req request, memory *sync.Pool, try func(upstream, func(T, wire.Code)) (cancel func())) (T, wire.Code, error) {
	session := req.session
	unknown, crowded, shown, shownTo := false, false, 0, upstream(nil)
	fail := func(err error) (T, wire.Code, error) {
		var zero T
		return zero, 0, &replica.Error{Unknown: unknown, Err: err}
	}
	backoff := timing.LeastBackoff
	for {
		up, changed, err := k.await(ctx, req.frees)
		if err != nil {
			return fail(err)
		}
		if k.over(session) {
			if unknown {
				return fail(replica.ErrNoSession)
			}
			var zero T
			return zero, wire.CodeNoSession, nil
		}
		sent := time.Now()
		value, code, err := attempt(ctx, k, up, memory, try)
		if err != nil {
			unknown = true
			return fail(err)
		}
		if code == wire.CodeOK {
			k.confirmed(sent)
		}
		switch code {
		case wire.CodeOK, wire.CodeNo, wire.CodeNoSession, wire.CodeDenied:
			return value, code, nil
		case wire.CodeVersion:
			return fail(replica.ErrVersion)
		case wire.CodeStranger:
			if up != shownTo {
				shown, shownTo = 0, up
			}
			if shown++; shown > 1 && shown <= mostShows { // it may have no room for the request that shows the key
				k.pause(ctx, jitter(backoff), changed)
				backoff = min(2*backoff, timing.MostBackoff(k.TTL()))
			}
			if shown <= mostShows && k.showAgain(up, session) {
				continue
			}
			if !k.over(session) { // else detached meanwhile: see above
				return fail(errStranger)
			}
			continue
		case wire.CodeBad:
			// Every request of this member is well formed for members of the
			// same version, so the leader is of another version.
			return fail(fmt.Errorf("%w: the leader does not understand the request", replica.ErrVersion))
		case wire.CodeBusy:
			crowded = k.opening(session)
		case wire.CodeNotLeader:
		default:
			// CodeUnknown, or a code of a later version: something may have
			// happened.
			unknown = true
		}
		k.pause(ctx, jitter(backoff), changed)
		if crowded {
			k.showAgain(up, session)
			crowded = false
		}
		backoff = min(2*backoff, timing.MostBackoff(k.TTL()))
	}
}

// await waits for an upstream, until ctx ends or the node stops. The channel is
// closed when the upstream changes.
func (k *Link) await(ctx context.Context, frees bool) (upstream, <-chan struct{}, error) {
	ended, alsoEnded := replica.Ends(ctx)
	for {
		if ctx.Err() != nil {
			return nil, nil, replica.Cause(ctx)
		}
		select {
		case <-k.cfg.Done:
			return nil, nil, k.cfg.Cause()
		default:
		}
		up, changed := k.current()
		if up != nil {
			return up, changed, nil
		}
		gossiped, proved, err := k.hears(frees)
		if err != nil {
			return nil, nil, err
		}
		select {
		case <-changed:
		case <-gossiped:
		case <-proved:
		case <-k.cfg.Done:
		case <-ended:
			return nil, nil, fmt.Errorf("%w: %w", k.noQuorum(), replica.Cause(ctx))
		case <-alsoEnded:
			return nil, nil, fmt.Errorf("%w: %w", k.noQuorum(), replica.Cause(ctx))
		}
	}
}

// A verdict is what one attempt waits for.
//
// Verdicts are used again, since there are two in each cycle of a lock. An upstream may tell
// the verdict on a request that was given up, and nothing of it may reach the next request: so
// each use has a number, and a verdict for an earlier number is dropped.
type verdict[T any] struct {
	come chan struct{} // has one element once the verdict of this use is told

	mu    sync.Mutex
	use   uint64
	told  bool
	value T
	code  wire.Code
}

// begin begins a use of a verdict of memory, or of a new one if memory is nil or empty.
func begin[T any](memory *sync.Pool) (v *verdict[T], use uint64) {
	if memory != nil {
		v, _ = memory.Get().(*verdict[T])
	}
	if v == nil {
		v = &verdict[T]{come: make(chan struct{}, 1)}
	}
	return v, v.use
}

// tell tells the verdict of a use, once.
func (v *verdict[T]) tell(use uint64, value T, code wire.Code) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.use == use && !v.told {
		v.value, v.code, v.told = value, code, true
		v.come <- struct{}{}
	}
}

// end ends the use, and returns the verdict if it was told.
func (v *verdict[T]) end(memory *sync.Pool) (value T, code wire.Code, told bool) {
	v.mu.Lock()
	value, code, told = v.value, v.code, v.told
	var zero T
	v.value, v.code, v.told = zero, 0, false
	v.use++
	select {
	case <-v.come:
	default:
	}
	v.mu.Unlock()
	if memory != nil {
		memory.Put(v)
	}
	return value, code, told
}

// attempt runs try once on up and waits for the verdict. The verdict is CodeUnknown
// if up is gone first: a leader whose disk hangs may never answer. An error is the
// end of ctx or of the node.
func attempt[T any](ctx context.Context, k *Link, up upstream, memory *sync.Pool, try func(upstream, func(T, wire.Code)) (cancel func())) (value T, code wire.Code, err error) {
	v, use := begin[T](memory)
	cancel := try(up, func(value T, code wire.Code) { v.tell(use, value, code) })
	ended, alsoEnded := replica.Ends(ctx)
	select {
	case <-v.come:
		value, code, _ = v.end(memory)
		return value, code, nil
	case <-up.Done():
		value, code, told := v.end(memory)
		if told {
			return value, code, nil
		}
	case <-ended:
		err = replica.Cause(ctx)
	case <-alsoEnded:
		err = replica.Cause(ctx)
	case <-k.cfg.Done:
		v.end(memory)
		return value, wire.CodeUnknown, k.cfg.Cause()
	}
	if err != nil {
		v.end(memory)
	}
	if cancel != nil {
		cancel()
	}
	return value, wire.CodeUnknown, err
}

// pause waits for d, or until the upstream changes, ctx ends or the node stops.
func (k *Link) pause(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	ended, alsoEnded := replica.Ends(ctx)
	select {
	case <-changed:
	case <-t.C:
	case <-ended:
	case <-alsoEnded:
	case <-k.cfg.Done:
	}
}
