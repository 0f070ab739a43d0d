package gocronwardmote

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/wardmote/wardmote/locks"
)

// DefaultKeep is the Keep of a Locker without one.
const DefaultKeep = 2 * time.Second

// releaseTime bounds the wait for the cluster's answer to a release. After it the client
// goes on to tell the cluster in the background.
const releaseTime = 5 * time.Second

var (
	// ErrNotHeld: a function made by Locker.Task was called while this Locker does not
	// hold the lock of the job, because the job has another name, or another Locker.
	ErrNotHeld = errors.New("gocronwardmote: the lock of the job is not held here")

	// ErrClosed: the Locker or the Elector was closed.
	ErrClosed = errors.New("gocronwardmote: closed")
)

// Task is the work of a job. Its context ends when gocron ends the job, and when the lock
// can no longer be trusted, with a *locks.LostError as its cause. l is the lock under which the
// job runs: work sends l.Token with each write, and calls l.Require before each effect
// that cannot be undone. work must not release l.
type Task func(ctx context.Context, l *locks.Lock) error

// Options configures a Locker. The zero value is sound.
type Options struct {
	// Prefix is put before the name of a job to make the key. Default: "gocron/". Jobs of
	// different applications in one cluster need different prefixes.
	Prefix string

	// Keep is how long the key of a job stays locked at least, counted from the grant: a
	// scheduler whose clock is behind finds the key taken, and skips the tick. Lock asks
	// for half of Keep, then the tick is skipped here. Keep must be longer than twice the
	// difference of the hosts' clocks, and shorter than the shortest interval between two
	// ticks of a job. Default: DefaultKeep.
	Keep time.Duration

	// OnLost is called when a lock is lost while its job runs, before any other process
	// is granted the key. See locks.Lock.BeforeNext for the time that OnLost may take.
	// OnLost must not call Locker.Close. Default: none.
	OnLost func(*locks.LostError)
}

// Locker is a gocron.Locker of wardmote's locks. Its methods may be called from any
// goroutine.
type Locker struct {
	client *locks.Client
	opts   Options
	keys   sync.WaitGroup // the keys that are held

	mu     sync.Mutex
	closed bool
	runs   map[string]*locks.Lock // the locks of the jobs that run, by name
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker for gocron.WithDistributedLocker. The client stays the
// caller's: close the scheduler first, then the Locker, then the client.
func NewLocker(client *locks.Client, opts Options) *Locker {
	if opts.Prefix == "" {
		opts.Prefix = "gocron/"
	}
	if opts.Keep <= 0 {
		opts.Keep = DefaultKeep
	}
	return &Locker{client: client, opts: opts, runs: make(map[string]*locks.Lock)}
}

// Lock takes the lock of the job, without waiting for another holder. gocron calls Lock
// before each run, and skips the run if Lock fails. The errors are those of
// locks.Client.TryAcquire: a *locks.HeldError while another process runs the job, or this
// process still runs it; context.DeadlineExceeded, with cluster.ErrNoQuorum, if no
// leader answered within half of Options.Keep; and ErrClosed. After an error nothing is held.
func (k *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	if !k.enter() {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, k.opts.Keep/2)
	defer cancel()
	l, err := k.client.TryAcquire(ctx, k.opts.Prefix+job)
	if err != nil {
		k.keys.Done()
		return nil, err
	}
	if f := k.opts.OnLost; f != nil {
		// An error means that the lock has ended already, before the job began: the job's
		// context has ended too.
		_ = l.BeforeNext(func() {
			if lost, ok := errors.AsType[*locks.LostError](l.Err()); ok {
				f(lost)
			}
		})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs[job] = l
	return &run{k: k, job: job, lock: l, granted: time.Now()}, nil
}

// enter counts a key, unless the Locker is closed.
func (k *Locker) enter() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	k.keys.Add(1)
	return true
}

// Task returns a function for gocron.NewTask. The function runs work with a context that
// also ends with the lock of the job. job is the job's name: pass the same one with
// gocron.WithName, and only once. If the lock was lost during work, the function's
// error matches locks.ErrLost. So gocron counts the run as failed.
func (k *Locker) Task(job string, work Task) func(context.Context) error {
	return func(ctx context.Context) error {
		k.mu.Lock()
		l := k.runs[job]
		k.mu.Unlock()
		if l == nil {
			return ErrNotHeld
		}
		return under(ctx, l, l.Context(), work)
	}
}

// under runs work until ctx or the term ends. The term is a context that descends from
// the lock's.
func under(ctx context.Context, l *locks.Lock, term context.Context, work Task) error {
	both, cancel := context.WithCancelCause(term)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	err := work(both, l)
	if lost := l.Err(); errors.Is(lost, locks.ErrLost) && !errors.Is(err, locks.ErrLost) {
		err = errors.Join(err, lost)
	}
	return err
}

// Close waits until the last job has ended and its key is free: Options.Keep at most after
// the last run began, unless the run takes longer. Later calls of Lock fail. If ctx ends
// before, Close returns the cause, and the keys are freed all the same, by Close of the
// client at the latest.
func (k *Locker) Close(ctx context.Context) error {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	done := make(chan struct{})
	go func() { // ends with the last key, whose release is bounded by Keep and releaseTime
		k.keys.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run is a gocron.Lock: the lock of a job that runs.
type run struct {
	k       *Locker
	job     string
	lock    *locks.Lock
	granted time.Time
}

// Unlock releases the lock, or has it released when Keep has passed. Unlock does not
// depend on the end of ctx: gocron ends the context of a job before it unlocks. The error
// is a *locks.LostError if the lock was lost during the run; gocron ignores it. A release
// after Keep reports no error: a key that the cluster could not be told of is free after
// the TTL.
func (r *run) Unlock(ctx context.Context) error {
	r.k.mu.Lock()
	delete(r.k.runs, r.job)
	r.k.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	rest := r.k.opts.Keep - time.Since(r.granted)
	if err := r.lock.Err(); err != nil || rest <= 0 {
		return r.release(ctx)
	}
	time.AfterFunc(rest, func() { _ = r.release(ctx) })
	return nil
}

func (r *run) release(ctx context.Context) error {
	defer r.k.keys.Done()
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	return r.lock.Release(ctx)
}
