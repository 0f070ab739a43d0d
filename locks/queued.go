package locks

import (
	"context"
	"time"

	"github.com/wardmote/wardmote/internal/replica"
)

// traceQueue calls Trace.Queued with the number of requests and holders before
// w, at first and after each change, while w waits. If Trace.Queued is nil,
// traceQueue returns at once.
func (s *session) traceQueue(ctx context.Context, w *waiter, behind int) {
	if !s.c.trace.wantsQueued() {
		return
	}
	tell := func() {
		s.c.trace.queued(LockEvent{Key: w.key, Behind: behind, Took: time.Since(w.since)})
	}
	tell()
	var retry backoff
	q := replica.Query{Key: w.key, Session: s.id, Seq: w.seq}
	for ctx.Err() == nil {
		a, err := s.c.rep.Read(ctx, q)
		if err != nil {
			if retry.wait(ctx, s.c.closing) != nil {
				return
			}
			continue
		}
		if !a.Waits {
			return // w has left the queue, and its verdict is on the way
		}
		retry.reset()
		q.Version = a.Version
		if int(a.Behind) != behind {
			behind = int(a.Behind)
			tell()
		}
	}
}
