//go:build linux

package storm

import (
	"context"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/locks"
)

// entry is the record of a caller's latest call. The caller records its part with put, and the
// client's Trace adds what it tells of the request.
type entry struct {
	rec *history.Recorder

	mu     sync.Mutex
	op     history.Op // as recorded last
	queued int64      // of the request that was granted
}

func (e *entry) put(op history.Op) {
	e.mu.Lock()
	defer e.mu.Unlock()
	op.Queued, op.Retried = e.queued, e.op.Retried
	e.op = op
	e.rec.Op(op)
}

func (e *entry) retried() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.op.Retried = true
	e.rec.Op(e.op)
}

// granted adds that the granted request waited at the stamp queued. The client tells its events
// in order: had the request begun anew since, Retrying had been told before Acquired. So a process
// killed between the two leaves a record without a word about the queue, and not a wrong one.
func (e *entry) granted(queued int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if queued > 0 {
		e.queued, e.op.Queued = queued, queued
		e.rec.Op(e.op)
	}
}

type (
	callerKey struct{} // a *caller: who makes the calls of the context
	waitKey   struct{} // a *wait
)

// wait is one request on its way. Only functions of Trace use queued, one at a time.
type wait struct {
	e      *entry
	news   bool
	queued int64 // by then the request waited in the queue; 0: that is not known
}

// trace returns the Trace of a client. Requests of callers that context carries are
// recorded with the time at which they waited in the queue.
func (p *program) trace(client string) *locks.Trace {
	waits := func(ctx context.Context, f func(w *wait)) {
		if w, ok := ctx.Value(waitKey{}).(*wait); ok {
			f(w)
		}
	}
	return &locks.Trace{
		Acquiring: func(ctx context.Context, _ locks.LockEvent) (context.Context, map[string]string) {
			k, ok := ctx.Value(callerKey{}).(*caller)
			if !ok {
				return nil, nil
			}
			return context.WithValue(ctx, waitKey{}, &wait{e: k.now, news: k.news}), nil
		},
		Queued: func(ctx context.Context, e locks.LockEvent) {
			waits(ctx, func(w *wait) {
				if w.queued != 0 {
					return
				}
				w.queued = p.rec.Now()
				if w.news {
					p.tell(report{News: "queued", Key: e.Key})
				}
			})
		},
		Retrying: func(ctx context.Context, _ locks.LockEvent) {
			waits(ctx, func(w *wait) { w.queued = 0; w.e.retried() })
		},
		Acquired:      func(ctx context.Context, _ locks.LockEvent) { waits(ctx, func(w *wait) { w.e.granted(w.queued) }) },
		SessionOpened: func(context.Context, time.Duration) { p.rec.Mark("session opened", p.s.Process, client) },
		SessionLost: func(_ context.Context, why locks.Reason) {
			p.rec.Mark("session lost", p.s.Process, client+": "+why.String())
		},
	}
}
