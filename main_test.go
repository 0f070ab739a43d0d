package wardmote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/transport"
)

// appEnv names the app of a child process. Main must not take the variable for one of
// its own.
const appEnv = "FRONT_DOOR_APP"

// idleApp is the one app whose cluster is founded.
const idleApp = "idle"

// apps are the apps of the child processes. Each prints a line when it has begun.
var apps = map[string]App{
	// Waits for a lock that no founding will ever grant.
	"waiting": func(ctx context.Context, c *locks.Client) error {
		fmt.Println("begun")
		return c.Do(ctx, "k", func(context.Context, *locks.Lock) error { return errors.New("granted") })
	},
	// Works until its context ends.
	"working": func(ctx context.Context, c *locks.Client) error {
		fmt.Println("begun")
		<-ctx.Done()
		fmt.Println(context.Cause(ctx))
		return nil
	},
	// Has an error of its own beside the end of its context.
	"failing": func(ctx context.Context, c *locks.Client) error {
		fmt.Println("begun")
		<-ctx.Done()
		return errors.Join(ctx.Err(), errors.New("the flush failed"))
	},
	// Does not mind its context.
	"stubborn": func(ctx context.Context, c *locks.Client) error {
		fmt.Println("begun")
		<-ctx.Done()
		fmt.Println("asked to end")
		select {}
	},
}

// networks are the networks of apps that have one of their own.
var networks = map[string]transport.Network{}

// bares are child processes without Main.
var bares = map[string]func(){}

func TestMain(m *testing.M) {
	if run, ok := bares[os.Getenv(appEnv)]; ok {
		run()
		return
	}
	app, child := apps[os.Getenv(appEnv)]
	if !child {
		os.Exit(m.Run())
	}
	founders := 2 // a cluster that is never founded, because one process of it is started
	if os.Getenv(appEnv) == idleApp {
		founders = 3
	}
	if err := Main(cluster.Config{Bind: "127.0.0.1:0", InitialSize: founders, Network: networks[os.Getenv(appEnv)]}, app); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child is a process under Main.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr bytes.Buffer
}

func startChild(t *testing.T, app string, environ ...string) *child {
	t.Helper()
	return startChildWith(t, nil, app, environ...)
}

// startChildWith starts a child with a standard input.
func startChildWith(t *testing.T, stdin *os.File, app string, environ ...string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(append(os.Environ(), appEnv+"="+app), environ...)
	if stdin != nil {
		c.cmd.Stdin = stdin
	}
	c.cmd.Stderr = &c.stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	patience := time.AfterFunc(time.Minute, func() { _ = c.cmd.Process.Kill() }) // ends every wait for the child
	t.Cleanup(func() {
		patience.Stop()
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

// says waits for the next line of the child.
func (c *child) says(want string) {
	c.t.Helper()
	if got := c.line(); got != want {
		c.t.Errorf("said %q, want %q; errors: %s", got, want, &c.stderr)
	}
}

// line returns the next line of the child, or "" after the last line.
func (c *child) line() string {
	c.lines.Scan()
	return c.lines.Text()
}

func (c *child) signal(s os.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Error(err)
	}
}

// ends waits for the end of the child, which must have the state, as in "exit status 1".
func (c *child) ends(state, stderr string) {
	c.t.Helper()
	_ = c.cmd.Wait() // the state says all
	if got := c.cmd.ProcessState.String(); got != state || !strings.Contains(c.stderr.String(), stderr) || stderr == "" && c.stderr.Len() > 0 {
		c.t.Errorf("ended with %q, want %q; errors: %s, want %q", got, state, &c.stderr, stderr)
	}
}

// Real processes, since a signal is for a whole process.
func TestMainEndsOnSignals(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no way to send these signals to a process")
	}
	for _, tt := range []struct {
		name string
		play func(t *testing.T)
	}{
		{"SIGTERM during the founding", func(t *testing.T) {
			c := startChild(t, "waiting")
			c.says("begun")
			c.signal(syscall.SIGTERM)
			c.ends("exit status 0", "")
		}},
		{"SIGINT during the work", func(t *testing.T) {
			c := startChild(t, "working", "WARDMOTE_INITIAL_SIZE=7") // the program has chosen
			c.says("begun")
			c.signal(os.Interrupt)
			c.says("wardmote: signal: interrupt")
			c.ends("exit status 0", "")
		}},
		{"an error of the work besides", func(t *testing.T) {
			c := startChild(t, "failing")
			c.says("begun")
			c.signal(syscall.SIGTERM)
			c.ends("exit status 1", "the flush failed")
		}},
		{"SIGTERM twice", func(t *testing.T) {
			c := startChild(t, "stubborn")
			c.says("begun")
			c.signal(syscall.SIGTERM)
			c.says("asked to end")
			c.signal(syscall.SIGTERM)
			c.ends("signal: terminated", "")
		}},
		{"a bad variable", func(t *testing.T) {
			startChild(t, "working", "WARDMOTE_TTL=soon").ends("exit status 1", `WARDMOTE_TTL: "soon": not a duration above zero; allowed: `)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.play(t)
		})
	}
}

// An error that says no more than the end of the context is no error of the work.
func TestMereEnds(t *testing.T) {
	own := errors.New("own")
	cancelled := signalled{os.Interrupt}
	for _, tt := range []struct {
		err  error
		mere bool
	}{
		{nil, true},
		{context.Canceled, true},
		{cancelled, true},
		{fmt.Errorf("acquire: %w", cancelled), true},
		{fmt.Errorf("%w: %w", cluster.ErrNoQuorum, cancelled), true}, // one failure, told by two words
		{errors.Join(cancelled, context.Canceled), true},
		{own, false},
		{context.DeadlineExceeded, false},
		{errors.Join(cancelled, own), false},
		{fmt.Errorf("app: %w", errors.Join(own, cancelled)), false},
		{errors.Join(cancelled, errors.Join(own)), false},
	} {
		if got := mere(tt.err); got != tt.mere {
			t.Errorf("%v: %v", tt.err, got)
		}
	}
}
