package wardmote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/transport"
)

const testTTL = 2 * time.Second

// A hall is a cluster of members that Run has started, in a bubble. Members 1 to 3
// found the cluster.
type hall struct {
	t   *testing.T
	net *transport.Memory
	log lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// resident is a running Run, with an app that ends with its context.
type resident struct {
	client *locks.Client
	end    context.CancelFunc
	done   chan struct{}
	err    error // of Run, once done is closed
}

var errAppEnded = errors.New("app has ended")

// inHall runs f in a bubble.
func inHall(t *testing.T, f func(t *testing.T, h *hall)) {
	synctest.Test(t, func(t *testing.T) {
		f(t, &hall{t: t, net: transport.NewMemory(1)})
		time.Sleep(time.Minute) // the libraries' last goroutines end
	})
}

func (h *hall) config(i int) cluster.Config {
	ip := func(i int) string { return fmt.Sprintf("10.0.0.%d", i) }
	cfg := cluster.Config{
		Name: fmt.Sprint("m", i), Bind: ip(i) + ":7000", TTL: testTTL, InitialSize: 3, Voting: cluster.Voting{Voters: 3}, Network: h.net.Host(ip(i)),
		Logger: slog.New(slog.NewTextHandler(&h.log, nil)),
	}
	for i := range 3 {
		cfg.Join = append(cfg.Join, ip(i+1)+":7000")
	}
	return cfg
}

// start starts Run of member i with the app, or with one that ends with its context.
func (h *hall) start(cfg cluster.Config, app App) *resident {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &resident{end: cancel, done: make(chan struct{})}
	began := make(chan *locks.Client, 1)
	go func() {
		defer close(r.done)
		r.err = Run(ctx, cfg, func(ctx context.Context, c *locks.Client) error {
			began <- c
			if app != nil {
				return app(ctx, c)
			}
			<-ctx.Done()
			return errAppEnded
		})
	}()
	select {
	case r.client = <-began:
	case <-r.done:
	}
	return r
}

// stop ends the contexts of all, and waits for their Runs.
func (h *hall) stop(all ...*resident) {
	for _, r := range all {
		r.end()
	}
	for _, r := range all {
		h.await(r)
	}
}

// await waits until Run has returned.
func (h *hall) await(r *resident) {
	h.t.Helper()
	select {
	case <-r.done:
	case <-time.After(5 * time.Minute):
		panic("Run does not return: " + h.log.String()) // and no mere failure: the bubble could not end
	}
}

func (h *hall) ready(all ...*resident) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, r := range all {
		if err := r.client.Node().Ready(ctx); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *hall) form() []*resident {
	h.t.Helper()
	var all []*resident
	for i := range 3 {
		cfg := h.config(i + 1)
		all = append(all, h.start(cfg, nil))
	}
	h.ready(all...)
	return all
}

// The work begins at once, so that probes answer during the founding, and calls wait.
func TestAppBeginsBeforeReady(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		began := time.Now()
		acquired := make(chan error, 1)
		r1 := h.start(h.config(1), func(ctx context.Context, c *locks.Client) error {
			go func() {
				acquired <- c.Do(ctx, "k", func(context.Context, *locks.Lock) error { return nil })
			}()
			<-ctx.Done()
			return ctx.Err()
		})
		if d := time.Since(began); d > 0 {
			t.Errorf("app began after %v", d)
		}
		time.Sleep(time.Minute)
		if h := r1.client.Node().Health(context.Background()); h.Quorum || !strings.Contains(h.Reason, "1 of 3 first members seen") {
			t.Errorf("health during the founding: %+v", h)
		}
		if len(acquired) > 0 {
			t.Fatalf("acquired before the founding: %v", <-acquired)
		}
		all := []*resident{r1, h.start(h.config(2), nil), h.start(h.config(3), nil)}
		h.ready(all...)
		if err := <-acquired; err != nil {
			t.Error(err)
		}
		h.stop(all...)
		if !errors.Is(r1.err, context.Canceled) {
			t.Errorf("Run returned %v", r1.err)
		}
	})
}

// The context ends, app returns, the client is closed, the member leaves.
func TestTheOrderOfStopping(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		all := h.form()
		lost := make(chan error, 1)
		r4 := h.start(h.config(4), func(ctx context.Context, c *locks.Client) error {
			lock, err := c.Acquire(ctx, "k")
			if err != nil {
				return err
			}
			<-ctx.Done()
			time.Sleep(time.Second) // app may need its locks for its own end
			if err := lock.Err(); err != nil {
				t.Errorf("before app returned the lock had ended: %v", err)
			}
			context.AfterFunc(lock.Context(), func() { lost <- context.Cause(lock.Context()) })
			return errAppEnded
		})
		h.ready(r4)
		ended := time.Now()
		r4.end()
		waiting, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		lock, err := all[0].client.Acquire(waiting, "k")
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(ended); d < time.Second || d > time.Second+200*time.Millisecond {
			t.Errorf("the key was free %v after the end of ctx, 1 s after which app returned", d)
		}
		h.await(r4)
		if r4.err != errAppEnded {
			t.Errorf("Run returned %v", r4.err)
		}
		// Closed by the client and not by the node: the client went first.
		cause := <-lost
		if l, ok := errors.AsType[*locks.LostError](cause); !ok || l.Reason != locks.ClientClosed {
			t.Errorf("the lock was lost by %v", cause)
		}
		if members := all[0].client.Node().Members(); len(members) != 3 {
			t.Errorf("the member has not left: %v", members)
		}
		if err := r4.client.Node().Err(); err != cluster.ErrStopped {
			t.Errorf("the node ended with %v", err)
		}
		if err := lock.Release(context.Background()); err != nil {
			t.Error(err)
		}
		h.stop(all...)
		if strings.Contains(h.log.String(), "level=WARN") {
			t.Errorf("warnings on ordinary ends: %s", h.log.String())
		}
	})
}

// A voter in memory is replaced before Run returns; a voter with a Dir stays a voter.
func TestAMemberWithADirComesBack(t *testing.T) {
	dir := t.TempDir()
	inHall(t, func(t *testing.T, h *hall) {
		for _, durable := range []bool{false, true} {
			var all []*resident
			for i := range 4 {
				cfg := h.config(i + 1)
				cfg.Cluster = fmt.Sprint("durable-", durable)
				if durable {
					cfg.Dir = fmt.Sprintf("%s/%d", dir, i)
				}
				if i == 3 {
					cfg.InitialSize = 0
				}
				all = append(all, h.start(cfg, nil))
			}
			h.ready(all...)
			votes := func(name string) (yes bool) {
				for _, m := range all[3].client.Node().Members() {
					yes = yes || m.Name == name && m.Voter
				}
				return yes
			}
			if !votes("m1") || votes("m4") {
				t.Fatalf("the wrong voters: %v", all[3].client.Node().Members())
			}
			h.stop(all[0])
			time.Sleep(time.Second)
			if got := votes("m4"); got == durable {
				t.Errorf("durable %v: the fourth member votes: %v", durable, got)
			}
			h.stop(all[1:]...)
		}
	})
}

// Without a quorum the end takes ten seconds at most, is no error, and is told.
func TestTheEndIsBounded(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		cfg := h.config(4)
		cfg.InitialSize = 0
		all := append(h.form(), h.start(cfg, nil))
		h.ready(all[3])
		held := make(chan error, 1)
		began, never := make(chan struct{}), make(chan struct{})
		go func() { // work that does not mind its context
			held <- all[2].client.Do(context.Background(), "k", func(context.Context, *locks.Lock) error {
				close(began)
				<-never
				return nil
			})
		}()
		<-began
		for _, from := range []string{"10.0.0.1", "10.0.0.2"} {
			for i := range 4 {
				if to := fmt.Sprintf("10.0.0.%d", i+1); to != from {
					h.net.Cut(from, to)
				}
			}
		}
		ended := time.Now()
		h.stop(all[2])
		if d := time.Since(ended); d > 10*time.Second || all[2].err != errAppEnded {
			t.Errorf("Run returned %v after %v", all[2].err, d)
		}
		for _, line := range []string{"locks not released in time", "left without a successor"} {
			if !strings.Contains(h.log.String(), `level=WARN msg="`+line) {
				t.Errorf("%q is not told: %s", line, h.log.String())
			}
		}
		close(never)
		<-held
		h.net.Heal()
		h.stop(all...)
	})
}

// If the node fails, app's context ends with the node's error, which Run returns.
func TestAFailedNodeEndsApp(t *testing.T) {
	errFlush := errors.New("flush")
	for _, own := range []error{nil, context.Canceled, errFlush} {
		inHall(t, func(t *testing.T, h *hall) {
			// Before the cluster grants, the younger of two members of one name fails.
			slow := func(i int) cluster.Config {
				cfg := h.config(i)
				cfg.TTL = 5 * time.Minute
				return cfg
			}
			var all []*resident
			for i := range 3 {
				all = append(all, h.start(slow(i+1), nil))
			}
			time.Sleep(10 * time.Second)
			cfg := slow(4)
			cfg.Name = "m1"
			var cause error
			var r *resident
			began := time.Now()
			// The younger member learns of the other by gossip, in the first moment or not
			// at all: then another try.
			for range 10 {
				r = h.start(cfg, func(ctx context.Context, c *locks.Client) error {
					<-ctx.Done()
					cause = context.Cause(ctx)
					return own
				})
				began = time.Now()
				select {
				case <-r.done:
				case <-time.After(20 * time.Second):
					h.stop(r)
					continue
				}
				break
			}
			bad, ok := errors.AsType[*cluster.ConfigError](cause)
			if !ok || bad.Field != "Config.Name" || !errors.Is(r.err, cause) {
				t.Errorf("app ended by %v, Run returned %v", cause, r.err)
			}
			if own == errFlush != errors.Is(r.err, errFlush) || errors.Is(r.err, context.Canceled) {
				t.Errorf("app returned %v, and Run %v", own, r.err)
			}
			if d := time.Since(began); d > 10*time.Second {
				t.Errorf("Run returned after %v", d)
			}
			h.stop(all...)
		})
	}
}

// A Stop by somebody else is the end of app and no failure.
func TestAStoppedNodeEndsApp(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		all := h.form()
		if err := all[2].client.Node().Stop(); err != nil {
			t.Error(err)
		}
		if h.await(all[2]); all[2].err != errAppEnded {
			t.Errorf("Run returned %v after a Stop", all[2].err)
		}
		h.stop(all...)
	})
}

// When app panics, the member is left behind by nobody, and the panic goes on.
func TestAPanicGoesOn(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		all := h.form()
		var node *cluster.Node
		var err error
		value := func() (value any) {
			defer func() { value = recover() }()
			err = Run(context.Background(), h.config(4), func(ctx context.Context, c *locks.Client) error {
				node = c.Node()
				if _, err := c.Acquire(ctx, "k"); err != nil {
					return err
				}
				panic("app")
			})
			return nil
		}()
		if value != "app" || err != nil {
			t.Errorf("recovered %v, error %v", value, err)
		}
		if node.Err() != cluster.ErrStopped || len(all[0].client.Node().Members()) != 3 {
			t.Errorf("the member lives on: %v, %v", node.Err(), all[0].client.Node().Members())
		}
		if l, err := all[0].client.TryAcquire(context.Background(), "k"); err != nil {
			t.Error(err)
		} else if err := l.Release(context.Background()); err != nil {
			t.Error(err)
		}
		h.stop(all...)
	})
}

func TestRunRefusesBadInput(t *testing.T) {
	ran := false
	app := func(context.Context, *locks.Client) error { ran = true; return nil }
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(errAppEnded)
	for _, tt := range []struct {
		ctx         context.Context
		cfg         cluster.Config
		app         App
		field, text string
	}{
		{nil, cluster.Config{InitialSize: 1}, app, "ctx", "nil"},
		{t.Context(), cluster.Config{InitialSize: 1}, nil, "app", "nil"},
		{t.Context(), cluster.Config{InitialSize: 1, TTL: 1}, app, "Config.TTL", "below the least"},
		{t.Context(), cluster.Config{}, app, "Config.Join", "WARDMOTE_JOIN"},
		{t.Context(), cluster.Config{}, app, "Config.Join", "uses Local"},
		{ended, cluster.Config{InitialSize: 1}, app, "", errAppEnded.Error()},
	} {
		err := Run(tt.ctx, tt.cfg, tt.app)
		bad, _ := errors.AsType[*cluster.ConfigError](err)
		if err == nil || !strings.Contains(err.Error(), tt.text) || (tt.field != "") != (bad != nil) || bad != nil && bad.Field != tt.field {
			t.Errorf("%v: %v", tt.cfg, err)
		}
	}
	if ran {
		t.Error("app ran")
	}
}

// A process that does not end because of its work says so.
func TestSlowWorkIsTold(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		const word = "the work goes on after the end of its context"
		cfg := h.config(1)
		cfg.InitialSize, cfg.Join = 1, nil
		for _, lag := range []time.Duration{4 * time.Second, 6 * time.Second} {
			r := h.start(cfg, func(ctx context.Context, c *locks.Client) error {
				<-ctx.Done()
				time.Sleep(lag)
				return nil
			})
			r.end()
			h.await(r)
			if told, slow := strings.Count(h.log.String(), word), lag > 5*time.Second; (told == 1) != slow {
				t.Errorf("of work that took %v to return the log told %d times", lag, told)
			}
		}
		if !strings.Contains(h.log.String(), `cause="context canceled"`) {
			t.Errorf("the log: %s", h.log.String())
		}
	})
}
