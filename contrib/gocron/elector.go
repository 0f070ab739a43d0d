package gocronwardmote

import (
	"context"
	"errors"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/wardmote/wardmote/locks"
)

// ErrNotLeader: another process leads, or none. gocron then skips the run.
var ErrNotLeader = errors.New("gocronwardmote: this process does not lead")

// Elector is a gocron.Elector of wardmote's elections. Its methods may be called from any
// goroutine.
type Elector struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the candidacy has ended

	mu   sync.Mutex
	term *term // nil: this process does not lead
	err  error // why the candidacy has ended
}

// term is a term of this process, with the jobs of Task that run in it.
type term struct {
	ctx  context.Context // of Elect
	lock *locks.Lock
	jobs int
	over bool          // no further jobs
	idle chan struct{} // closed when over and no job runs
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector for gocron.WithDistributedElector, and stands for election
// under key until Close. All schedulers that share the jobs name the same key. opts are
// options for locks.Client.Elect. The client stays the caller's: close the scheduler
// first, then the Elector, then the client.
func NewElector(client *locks.Client, key string, opts ...locks.Option) *Elector {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Elector{cancel: cancel, done: make(chan struct{})}
	go e.stand(ctx, client, key, opts)
	return e
}

// stand is the goroutine of e. Close joins it.
func (e *Elector) stand(ctx context.Context, client *locks.Client, key string, opts []locks.Option) {
	defer close(e.done)
	err := client.Elect(ctx, key, e.lead, opts...)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err = err; ctx.Err() != nil {
		e.err = ErrClosed
	}
}

// lead is a term. It returns when the jobs of Task have ended, so that nobody else leads
// before.
func (e *Elector) lead(ctx context.Context, l *locks.Lock) error {
	t := &term{ctx: ctx, lock: l, idle: make(chan struct{})}
	e.mu.Lock()
	e.term = t
	e.mu.Unlock()

	<-ctx.Done()

	e.mu.Lock()
	e.term = nil
	t.over = true
	t.leave(0)
	e.mu.Unlock()
	<-t.idle
	return nil
}

// leave takes n jobs off. e.mu is held.
func (t *term) leave(n int) {
	if t.jobs -= n; t.jobs == 0 && t.over {
		close(t.idle)
	}
}

// IsLeader returns nil while this process leads. The answer is right at the moment of the
// call, also after a pause of the process. Otherwise the error matches ErrNotLeader; if
// the candidacy has ended, the error also has the reason, such as ErrClosed or
// cluster.ErrStopped.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.term == nil && e.err != nil:
		return errors.Join(ErrNotLeader, e.err)
	case e.term == nil:
		return ErrNotLeader
	}
	if err := e.term.lock.Err(); err != nil {
		return errors.Join(ErrNotLeader, err)
	}
	return nil
}

// Task returns a function for gocron.NewTask. The function runs work with a context that
// also ends with the term of this process, and with the lock of the term, whose token is
// the number of the term. No other process leads before work has returned, unless the
// lock was lost: then the function's error matches locks.ErrLost. The error matches
// ErrNotLeader if the term has ended between IsLeader and the run: work has not run.
func (e *Elector) Task(work Task) func(context.Context) error {
	return func(ctx context.Context) error {
		e.mu.Lock()
		t := e.term
		if t == nil {
			e.mu.Unlock()
			return ErrNotLeader
		}
		t.jobs++
		e.mu.Unlock()
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			t.leave(1)
		}()
		return under(ctx, t.lock, t.ctx, work)
	}
}

// Close ends the candidacy, and the term if this process leads: the contexts of the jobs of
// Task end, and Close waits until these jobs have returned. If ctx ends before, Close
// returns the cause, and the term ends when the jobs have returned.
func (e *Elector) Close(ctx context.Context) error {
	e.cancel()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
