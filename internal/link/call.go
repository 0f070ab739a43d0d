package link

import (
	"context"
	"errors"
	"fmt"
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
	return callFor(ctx, k, machine.SessionID{}, try)
}

// errStranger: the leader has twice refused a request for a session of this process.
var errStranger = errors.New("link: the leader takes the session for another process's")

// callFor is call for a request of a session, zero for none. A leader that refuses the
// request is shown the session's key once more, and asked again: the session must not
// be lost because the leader has not taken the key, for whatever reason. A leader that
// has no room for the key says CodeBusy, and is shown the key with each attempt.
//
// A request for a detached session stays here: a leader that was not shown the key would
// count a theft. An attempt follows the look at the session, on the same upstream: while
// the session is attached, every upstream of calls has its key.
func callFor[T any](ctx context.Context, k *Link, session machine.SessionID, try func(upstream, func(T, wire.Code)) (cancel func())) (T, wire.Code, error) {
	unknown, again, crowded := false, false, false
	fail := func(err error) (T, wire.Code, error) {
		var zero T
		return zero, 0, &replica.Error{Unknown: unknown, Err: err}
	}
	backoff := timing.LeastBackoff
	for {
		up, changed, err := k.await(ctx)
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
		value, code, err := attempt(ctx, k, up, try)
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
			if !again && k.showAgain(up, session) {
				again = true
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
func (k *Link) await(ctx context.Context) (upstream, <-chan struct{}, error) {
	for {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
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
		gossiped, proved, err := k.hears(ctx)
		if err != nil {
			return nil, nil, err
		}
		select {
		case <-changed:
		case <-gossiped:
		case <-proved:
		case <-k.cfg.Done:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("%w: %w", k.noQuorum(), context.Cause(ctx))
		}
	}
}

// attempt runs try once on up and waits for the verdict. The verdict is CodeUnknown
// if up is gone first: a leader whose disk hangs may never answer. An error is the
// end of ctx or of the node.
func attempt[T any](ctx context.Context, k *Link, up upstream, try func(upstream, func(T, wire.Code)) (cancel func())) (value T, code wire.Code, err error) {
	type verdict struct {
		value T
		code  wire.Code
	}
	ch := make(chan verdict, 1)
	cancel := try(up, func(v T, c wire.Code) { ch <- verdict{v, c} })
	if cancel == nil {
		cancel = func() {}
	}
	select {
	case v := <-ch:
		return v.value, v.code, nil
	case <-up.Done():
		select {
		case v := <-ch:
			return v.value, v.code, nil
		default:
			cancel()
			return value, wire.CodeUnknown, nil
		}
	case <-ctx.Done():
		cancel()
		return value, wire.CodeUnknown, context.Cause(ctx)
	case <-k.cfg.Done:
		return value, wire.CodeUnknown, k.cfg.Cause()
	}
}

// pause waits for d, or until the upstream changes, ctx ends or the node stops.
func (k *Link) pause(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
	case <-k.cfg.Done:
	}
}
