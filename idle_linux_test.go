package wardmote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/transport"
)

const (
	profileEnv = "FRONT_DOOR_PROFILE" // a directory for profiles of idle children
	bareEnv    = "FRONT_DOOR_BARE"    // of a bare child: the addresses to talk to, "" to listen

	bareApp = "bare"
)

func init() {
	apps[idleApp] = idle
	networks[idleApp] = counting{transport.TCP()}
	bares[bareApp] = bare
}

// idle is a program as most programs are for most of the time: the process holds a lock
// of its own, is elected or stands by, and does nothing.
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
	go answer(func() string { return node.Health(ctx).Role })
	err = c.Elect(ctx, "scheduler", func(ctx context.Context, _ *locks.Lock) error {
		<-ctx.Done()
		return nil
	})
	return errors.Join(err, own.Err())
}

// answer answers each line on standard input by the role, and by the number of messages
// sent so far. "begin" starts the profiles, if the environment asks for them, and "end"
// ends them.
func answer(role func() string) {
	stop := func() {}
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		switch asked.Text() {
		case "begin":
			stop = profile()
		case "end":
			stop()
		}
		fmt.Println(role(), messages.Load())
	}
}

// profile starts a CPU profile, and a profile of the wake-ups by channels and timers, if
// there is a directory for them.
func profile() (stop func()) {
	dir := os.Getenv(profileEnv)
	if dir == "" {
		return func() {}
	}
	create := func(kind string) *os.File {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("idle-%d.%s", os.Getpid(), kind)))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return f
	}
	cpu, wakes := create("cpu"), create("wakes")
	if err := pprof.StartCPUProfile(cpu); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	runtime.SetBlockProfileRate(1)
	return func() {
		pprof.StopCPUProfile()
		_ = pprof.Lookup("block").WriteTo(wakes, 0)
		_, _ = cpu.Close(), wakes.Close()
	}
}

// messages counts the writes to streams, and the packets.
var messages atomic.Int64

// counting is a network that counts messages.
type counting struct{ transport.Network }

func (n counting) Listen(addr string) (transport.Endpoint, error) {
	e, err := n.Network.Listen(addr)
	return countingEndpoint{e}, err
}

type countingEndpoint struct{ transport.Endpoint }

func (e countingEndpoint) Accept() (net.Conn, error) {
	c, err := e.Endpoint.Accept()
	return countingConn{c}, err
}

func (e countingEndpoint) Dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := e.Endpoint.Dial(ctx, addr)
	return countingConn{c}, err
}

func (e countingEndpoint) WriteTo(p []byte, addr string) error {
	messages.Add(1)
	return e.Endpoint.WriteTo(p, addr)
}

type countingConn struct{ net.Conn }

func (c countingConn) Write(p []byte) (int, error) {
	messages.Add(1)
	return c.Conn.Write(p)
}

// bare is a program without the library that does no more than three voters cannot do
// without: a look ten times a second, and where there are addresses to talk to, a small
// exchange with each of them every 100 to 200 ms. What it takes, the host and Go's runtime
// take.
func bare() {
	role := "answers"
	go func() {
		for range time.Tick(100 * time.Millisecond) {
		}
	}()
	const size = 100
	if addrs := os.Getenv(bareEnv); addrs != "" {
		role = "asks"
		for addr := range strings.SplitSeq(addrs, ",") {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				panic(err)
			}
			go func() {
				b := make([]byte, size)
				for {
					time.Sleep(100*time.Millisecond + rand.N(100*time.Millisecond))
					messages.Add(1)
					_, _ = conn.Write(b)
					if _, err := io.ReadFull(conn, b); err != nil {
						return
					}
				}
			}()
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				for b := make([]byte, size); ; messages.Add(1) {
					if _, err := io.ReadFull(conn, b); err != nil {
						return
					}
					_, _ = conn.Write(b)
				}
			}()
		}
	}()
	answer(func() string { return role })
}

// A process that links the library and holds its locks costs next to nothing: under one
// percent of a core, leader or follower, at the default TTL. CPU time of the processes
// counts, so that a busy host changes little; beside them run processes that do as many
// looks and exchanges without the library, since hosts differ by ten times in what it takes
// to wake a process. A directory for profiles shows where the time goes, and what wakes:
//
//	FRONT_DOOR_PROFILE=/tmp WARDMOTE_IDLE=1 go test -run TestAnIdleProgramTakesLittle -v .
//	go tool pprof -sample_index=contentions -top -cum /tmp/idle-….wakes
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
	first := startIdle(t, idleApp)
	join := "WARDMOTE_JOIN=" + first.addr
	members := []*idleChild{first, startIdle(t, idleApp, join), startIdle(t, idleApp, join)}
	others := []*idleChild{startIdle(t, bareApp), startIdle(t, bareApp)}
	others = append(others, startIdle(t, bareApp, bareEnv+"="+others[0].addr+","+others[1].addr))
	all := append(members, others...)

	for _, c := range all {
		c.ask("ready?")
	}
	pass(t, settle)
	before := make([]usage, len(all))
	for i, c := range all {
		c.ask("begin")
		before[i] = c.usage()
	}
	began := time.Now()
	pass(t, measure)
	took := time.Since(began).Seconds()

	leaders := 0
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "process\trole\t% of a core\twake-ups/s\tmessages/s\t")
	for i, c := range all {
		used := c.usage()
		role, sent := c.ask("end")
		share := (used.cpu - before[i].cpu).Seconds() / took
		kind := "member"
		if i >= len(members) {
			kind = "bare"
		} else if share >= most {
			t.Errorf("the idle %s takes %.2f %% of a core, not under %.0f %%", role, 100*share, 100*most)
		}
		if role == "leader" {
			leaders++
		}
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%.0f\t%.1f\t\n", kind, role, 100*share,
			float64(used.wakes-before[i].wakes)/took, float64(sent-before[i].sent)/took)
	}
	w.Flush()
	t.Logf("in %.0f s:\n%s", took, &table)
	if leaders != 1 {
		t.Errorf("%d leaders", leaders)
	}
}

// idleChild is a process that answers.
type idleChild struct {
	*child
	addr string
	in   io.Writer
}

func startIdle(t *testing.T, app string, environ ...string) *idleChild {
	t.Helper()
	in, ask, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	t.Cleanup(func() { ask.Close() })
	c := &idleChild{child: startChildWith(t, in, app, environ...), in: ask}
	c.addr = c.line()
	return c
}

// ask sends a line and returns the answer, which a member gives once it is ready.
func (c *idleChild) ask(line string) (role string, messages int64) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		c.t.Fatal(err)
	}
	answer := c.line()
	if _, err := fmt.Sscan(answer, &role, &messages); err != nil {
		c.t.Fatalf("%q: %v; errors: %s", answer, err, &c.stderr)
	}
	return role, messages
}

// usage is a process's use of the host so far.
type usage struct {
	cpu   time.Duration // in user and kernel mode
	wakes int64         // how often a thread has begun to wait
	sent  int64         // messages
}

func (c *idleChild) usage() (u usage) {
	c.t.Helper()
	_, u.sent = c.ask("usage")
	const tick = 10 * time.Millisecond // Linux counts 100 a second in this file, on every host
	dir := fmt.Sprintf("/proc/%d/", c.cmd.Process.Pid)
	stat := c.read(dir + "stat")
	for _, f := range strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])[11:13] { // utime and stime, fields 14 and 15
		u.cpu += time.Duration(c.number(f)) * tick
	}
	threads, err := filepath.Glob(dir + "task/*/status")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range threads {
		if _, n, ok := strings.Cut(c.read(name), "\nvoluntary_ctxt_switches:"); ok {
			u.wakes += c.number(strings.Fields(n)[0])
		}
	}
	return u
}

func (c *idleChild) read(name string) string {
	c.t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

func (c *idleChild) number(text string) int64 {
	c.t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
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
