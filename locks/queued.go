package locks

import (
	"context"
	"time"

	"github.com/wardmote/wardmote/internal/replica"
)

// watchQueue tells Trace.Queued how many are before w, at first and whenever that
// changes, for as long as w waits. Without such a function it returns at once.
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
			return // what it waits for now is to be told
		}
		retry.reset()
		q.Version = a.Version
		if int(a.Behind) != behind {
			behind = int(a.Behind)
			tell()
		}
	}
}
