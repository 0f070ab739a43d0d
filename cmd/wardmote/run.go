package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

func runCommand() *command {
	return &command{
		name: "run", args: "KEY -- COMMAND [ARGUMENT...]",
		short: "hold a lock while a command runs",
		long: `
Run takes the lock KEY, runs COMMAND, and releases KEY when COMMAND has ended. COMMAND has
the token of the lock in WARDMOTE_TOKEN and the key in WARDMOTE_KEY, and the input, output
and terminal of run. Show the token to everything that COMMAND writes to.

COMMAND runs in a process group of its own. If the lock is lost, the whole group is killed
before KEY is granted to anybody else. If the cluster cannot be reached, COMMAND gets
SIGTERM first, some time before the trust in the lock ends. When COMMAND has ended, what
it has left behind in its group is killed, and then KEY is released.

SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the group.`,
		ways: byJoin,
		prepare: func(fs *flag.FlagSet) func(*program, *way, []string) error {
			var r runner
			fs.BoolVar(&r.noWait, "n", false, "do not wait: end with 75 if the key is taken")
			fs.DurationVar(&r.wait, "wait", 0, "wait for the key for this `time` at most, then end with 75; default: as long as it takes")
			fs.BoolVar(&r.shared, "shared", false, "a reader's lock: other readers may hold the key too")
			fs.DurationVar(&r.ttl, "ttl", 0, "the `time` for which the key stays taken if this host dies; at most, and by default, the cluster's TTL")
			fs.BoolVar(&r.yield, "yield", false, "send SIGTERM to the command when another client asks for the key")
			fs.BoolVar(&r.verbose, "verbose", false, "tell on stderr what happens to the lock")
			return r.run
		},
	}
}

// runner is a run of the command run.
type runner struct {
	noWait, shared, yield, verbose bool
	wait, ttl                      time.Duration

	p       *program
	way     *way
	key     string
	argv    []string
	signals chan os.Signal

	sessionTTL atomic.Int64         // of the session of the grant, in nanoseconds
	granted    chan locks.LockEvent // by Trace.Acquired, which comes after the session's TTL
}

// say prints a line about the lock if -verbose was given.
func (r *runner) say(format string, args ...any) {
	if r.verbose {
		r.warn(format, args...)
	}
}

func (r *runner) warn(format string, args ...any) {
	fmt.Fprintln(r.p.err, "wardmote: run: "+clean(oneLine(fmt.Sprintf(format, args...))))
}

func (r *runner) run(p *program, w *way, rest []string) error {
	r.p, r.way = p, w
	if err := r.parse(rest); err != nil {
		return err
	}
	path, err := lookPath(r.argv[0])
	if err != nil {
		return err
	}
	r.signals = catch()
	defer signal.Stop(r.signals)

	r.granted = make(chan locks.LockEvent, 1)
	ctx := context.Background()
	j, err := w.start(ctx, locks.Options{
		Name: clientName(r.argv[0]),
		TTL:  r.ttl,
		Trace: &locks.Trace{
			SessionOpened: func(_ context.Context, ttl time.Duration) { r.sessionTTL.Store(int64(ttl)) },
			Acquired:      func(_ context.Context, e locks.LockEvent) { r.granted <- e },
			Blocked:       func(_ context.Context, e locks.LockEvent) { r.say("waits: %v", trim(e.Err)) },
			Retrying:      func(_ context.Context, e locks.LockEvent) { r.say("asks again: %v", trim(e.Err)) },
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := j.close(); err != nil {
			r.warn("%v", trim(err))
		}
	}()
	lock, err := r.acquire(ctx, j.client)
	if err != nil {
		return err
	}
	return r.hold(path, lock)
}

// parse takes the key and the command line of the command from the arguments.
func (r *runner) parse(rest []string) error {
	switch {
	case len(rest) == 0:
		return usageError("run", "run: no KEY")
	case strings.HasPrefix(rest[0], "-"):
		return usageError("run", "run: %q stands where KEY should", rest[0])
	}
	r.key, r.argv = rest[0], rest[1:]
	if len(r.argv) > 0 && r.argv[0] == "--" {
		r.argv = r.argv[1:]
	} else if len(r.argv) > 0 && strings.HasPrefix(r.argv[0], "-") {
		return usageError("run", "run: %q behind KEY: flags come before KEY, and -- before a command", r.argv[0])
	}
	switch {
	case len(r.argv) == 0:
		return usageError("run", "run: no COMMAND behind KEY")
	case r.wait < 0:
		return usageError("run", "run: -wait %v is negative", r.wait)
	case r.noWait && r.wait > 0:
		return usageError("run", "run: -n and -wait are two answers to a taken key: give one of them")
	}
	return nil
}

// lookPath finds the command before anything is locked.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, os.ErrPermission):
		return "", fail(exitNotExecutable, "", "run: %s: permission denied", name)
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return "", fail(exitNotFound, "", "run: %s: no such command", name)
	}
	return "", fail(exitNotExecutable, "", "run: %v", err)
}

// clientName names the holder to people: nightly.sh[4711].
func clientName(command string) string {
	base := strings.ToValidUTF8(filepath.Base(command), "?")
	return base[:min(len(base), 64)] + "[" + strconv.Itoa(os.Getpid()) + "]"
}

// catch returns a channel for the signals to pass on. Signals that the caller of this
// process ignores, as nohup ignores SIGHUP, stay ignored.
func catch() chan os.Signal {
	c := make(chan os.Signal, 16)
	for _, s := range passedOn {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c
}

// acquire returns the lock. A signal meanwhile ends the wait.
func (r *runner) acquire(ctx context.Context, c *locks.Client) (*locks.Lock, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	got, joined := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(joined)
		select {
		case s := <-r.signals:
			cancel(exited(exitSignal + signalNumber(s)))
		case <-got:
		}
	}()
	l, err := r.request(ctx, c)
	close(got)
	<-joined
	if code, ok := context.Cause(ctx).(exited); ok {
		if l != nil { // granted while the signal came
			r.release(l)
		}
		return nil, code
	}
	return l, err
}

func (r *runner) request(ctx context.Context, c *locks.Client) (*locks.Lock, error) {
	// The cluster must answer soon; the key may take as long as it takes.
	tctx, cancel := context.WithTimeout(ctx, r.way.timeout)
	_, err := c.Inspect(tctx, r.key)
	cancel()
	if err != nil {
		return nil, r.describe(err)
	}
	opts := []locks.Option{locks.Meta(map[string]string{"command": short(r.argv[0]), "pid": strconv.Itoa(os.Getpid())})}
	if r.shared {
		opts = append(opts, locks.Shared())
	}
	if r.noWait {
		tctx, cancel := context.WithTimeout(ctx, r.way.timeout)
		defer cancel()
		l, err := c.TryAcquire(tctx, r.key, opts...)
		return l, r.describe(err)
	}
	wctx := ctx
	if r.wait > 0 {
		var cancel context.CancelFunc
		wctx, cancel = context.WithTimeout(ctx, r.wait)
		defer cancel()
	}
	r.say("waits for %q", r.key)
	l, err := c.Acquire(wctx, r.key, opts...)
	if err != nil && ctx.Err() == nil && wctx.Err() != nil && !errors.Is(err, cluster.ErrNoQuorum) {
		return nil, fail(exitBusy, "", "run: %s", trim(err))
	}
	return l, r.describe(err)
}

// describe adds an exit code to an error of a lock.
func (r *runner) describe(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, locks.ErrHeld):
		return fail(exitBusy, "", "run: %s", trim(err))
	case errors.Is(err, cluster.ErrFounding):
		return fail(exitUnavailable, "try again", "run: %s", trim(err))
	}
	return err
}

func short(text string) string { return text[:min(len(text), 200)] }

// hold runs the command under the lock.
func (r *runner) hold(path string, l *locks.Lock) error {
	defer r.release(l)
	<-r.granted // so that the session's TTL is known
	early := newForewarning(time.Duration(r.sessionTTL.Load()))
	r.say("has %q under token %d", r.key, uint64(l.Token()))
	env := append(os.Environ(), "WARDMOTE_KEY="+r.key, "WARDMOTE_TOKEN="+strconv.FormatUint(uint64(l.Token()), 10))
	c, err := newChild(path, r.argv, env)
	if err != nil {
		return err
	}
	defer c.close()
	// Before the command begins: a loss from now on ends the command, or keeps it from
	// beginning.
	if err := l.BeforeNext(c.killAndWait); err != nil {
		return fail(exitLost, "run the command again", "run: the lock was lost before the command was started: %s", trim(err))
	}
	if err := c.begin(early.of(l)); err != nil {
		return err
	}
	asked := l.Asked()
	tick := time.NewTicker(early.tick)
	defer tick.Stop()
	for {
		select {
		case e := <-c.ended:
			return r.verdict(l, e)
		case <-tick.C:
			c.trust(early.of(l))
			if c.overdue() { // the guard is stopped, or late
				c.killAndWait()
			}
		case s := <-r.signals:
			c.signal(s)
		case <-asked:
			asked = nil
			if r.yield {
				r.say("another client asks for %q: SIGTERM", r.key)
				c.signal(syscall.SIGTERM)
			} else {
				r.say("another client asks for %q", r.key)
			}
		}
	}
}

// release frees the key once nothing of the command is left.
func (r *runner) release(l *locks.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if err := l.Release(ctx); err != nil && !errors.Is(err, locks.ErrLost) {
		r.warn("%s", trim(err))
	}
}

// verdict is the result of run after the end of the command.
func (r *runner) verdict(l *locks.Lock, e ending) error {
	switch {
	case e.err != nil:
		return e.err
	case e.trust || e.killed:
		why := "the trust in the lock was about to end, since the cluster did not confirm it"
		if err := l.Err(); err != nil {
			why = trim(err)
		}
		return fail(exitLost, "see wardmote status", "run: the command was ended: %s", why)
	case e.code != 0:
		return exited(e.code)
	case l.Err() != nil: // the command was faster than the loss, or not
		return fail(exitLost, "see wardmote status", "run: the command has ended by itself, and the lock was lost: %s", trim(l.Err()))
	}
	return nil
}

// A deadline is when the command must have ended for certain, on hostClock.
type deadline struct {
	warn time.Duration // SIGTERM
	kill time.Duration // SIGKILL
}

// forewarning is how long before the end of the trust the command is ended.
//
// A session beats three times in a TTL. If the two beats after the last confirmed one go
// unanswered, the third one would come after the end of the trust. So SIGTERM is sent in
// the time between the second beat and the end of the trust, when a quarter of that time
// has passed, and SIGKILL when three quarters have. A quarter and the margin of package
// locks remain for SIGKILL to take effect, before the key can be granted.
type forewarning struct {
	warn, kill, tick time.Duration
}

func newForewarning(ttl time.Duration) forewarning {
	margin := min(ttl/100+100*time.Millisecond, ttl/4)
	last := ttl/3 - margin // from the second beat until the end of the trust
	return forewarning{warn: last * 3 / 4, kill: last / 4, tick: min(ttl/30, 100*time.Millisecond)}
}

// of returns the deadline of a lock. The clock is read first: if this process stands
// still between the two readings, the deadline is too early, and not too late.
func (f forewarning) of(l *locks.Lock) deadline {
	now := hostClock()
	until := now + l.Remaining()
	return deadline{warn: until - f.warn, kill: until - f.kill}
}

// ending is the end of a command.
type ending struct {
	code   int   // as run exits: 128 and the number of a signal
	trust  bool  // the guard sent SIGTERM or SIGKILL because of the deadline
	killed bool  // by kill
	err    error // the command could not be started or watched
}
