package wardmote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

const (
	profileEnv = "FRONT_DOOR_PROFILE" // a directory for CPU profiles of idle children
)

func init() { apps[idleApp] = idle }

// idle is a program as most programs are for most of the time: the process holds a lock
// of its own, is elected or stands by, and does nothing. Each line on standard input is
// answered by the member's role: "begin" starts a CPU profile, if the environment asks
// for one, and "end" ends the profile.
func idle(ctx context.Context, c *locks.Client) error {
	node := c.Node()
	fmt.Println(node.Addr())
	own, err := c.Acquire(ctx, "own/"+node.Name())
	if err == nil {
		err = node.Ready(ctx)
	}
	if err != nil {
		return err
	}
	go func() {
		stop := func() {}
		for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
			switch asked.Text() {
			case "begin":
				stop = profile()
			case "end":
				stop()
			}
			fmt.Println(node.Health(ctx).Role)
		}
	}()
	err = c.Elect(ctx, "scheduler", func(ctx context.Context, _ *locks.Lock) error {
		<-ctx.Done()
		return nil
	})
	return errors.Join(err, own.Err())
}

// profile starts a CPU profile, if there is a directory for it.
func profile() (stop func()) {
	dir := os.Getenv(profileEnv)
	if dir == "" {
		return func() {}
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("idle-%d.prof", os.Getpid())))
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return func() {}
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}
}

// A process that links the library and holds its locks costs next to nothing: under one
// percent of a core, leader or follower, at the default TTL. CPU time of the processes
// counts, so that a busy host changes little. A directory for CPU profiles shows where
// the time goes:
//
//	FRONT_DOOR_PROFILE=/tmp WARDMOTE_IDLE=1 go test -run TestAnIdleProgramTakesLittle -v .
func TestAnIdleProgramTakesLittle(t *testing.T) {
	if os.Getenv("WARDMOTE_IDLE") == "" {
		t.Skip("WARDMOTE_IDLE=1 measures for half a minute, on a host with nothing else to do")
	}
	t.Parallel()
	const (
		settle  = 10 * time.Second // until all work that follows a founding is done
		measure = 30 * time.Second
		most    = 0.01 // of a core
	)
	first := startIdle(t)
	join := "WARDMOTE_JOIN=" + first.addr
	members := []*idleChild{first, startIdle(t, join), startIdle(t, join)}

	for _, m := range members {
		m.ask("ready?")
	}
	pass(t, settle)
	for _, m := range members {
		m.ask("begin")
		m.used = -m.cpuTime()
	}
	began := time.Now()
	pass(t, measure)
	took := time.Since(began)
	for _, m := range members {
		m.used += m.cpuTime()
	}
	leaders := 0
	for _, m := range members {
		role := m.ask("end")
		if role == "leader" {
			leaders++
		}
		share := m.used.Seconds() / took.Seconds()
		t.Logf("process %d, %s: %.2f %% of a core, %v of CPU time in %v", m.cmd.Process.Pid, role, 100*share, m.used, took.Round(time.Millisecond))
		if share >= most {
			t.Errorf("the idle %s takes %.2f %% of a core, not under %.0f %%", role, 100*share, 100*most)
		}
	}
	if leaders != 1 {
		t.Errorf("%d leaders", leaders)
	}
}

// idleChild is a process that runs idle.
type idleChild struct {
	*child
	addr string
	in   io.Writer
	used time.Duration
}

func startIdle(t *testing.T, environ ...string) *idleChild {
	t.Helper()
	in, ask, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	t.Cleanup(func() { ask.Close() })
	c := &idleChild{child: startChildWith(t, in, idleApp, environ...), in: ask}
	c.addr = c.line()
	return c
}

// ask sends a line and returns the answer, which a member gives once it is ready.
func (c *idleChild) ask(line string) string {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		c.t.Fatal(err)
	}
	return c.line()
}

// cpuTime returns the CPU time of the process so far, in user and kernel mode.
func (c *idleChild) cpuTime() time.Duration {
	c.t.Helper()
	const tick = 10 * time.Millisecond // Linux counts 100 a second in this file, on every host
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		c.t.Fatal(err)
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // from the third field on
	var sum time.Duration
	for _, f := range fields[11:13] { // utime and stime, fields 14 and 15
		n, err := strconv.Atoi(string(f))
		if err != nil {
			c.t.Fatal(err)
		}
		sum += time.Duration(n) * tick
	}
	return sum
}

// pass lets time pass for processes that nothing else can tell about.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}
