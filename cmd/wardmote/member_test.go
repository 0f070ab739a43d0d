//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockshttp"
)

// The test binary is also the command, a member of a cluster, and the program that the
// command runs, by the value of roleEnv.
const (
	roleEnv   = "WARDMOTE_TEST_ROLE"
	asCommand = "command"
	asMember  = "member"
)

// hostStalls knows how long the tests have stood still.
var hostStalls *testrounds.Stalls

// patience bounds every wait of a test for something that must happen.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == stampCommand {
		os.Exit(stamp(os.Args[2:]))
	}
	switch os.Getenv(roleEnv) {
	case asCommand:
		main()
	case asMember:
		if err := memberMain(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(runTests(m))
	}
}

// runTests runs the tests beside each other: they spend their time waiting for processes.
// All members and commands find one secret in the environment.
func runTests(m *testing.M) int {
	flag.Parse()
	// The race detector keeps a process for a second at its end, which is no time of the
	// command.
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("10")
	}
	dir, err := os.MkdirTemp("", "wardmote")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	secret := filepath.Join(dir, "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("a-secret-of-the-tests-of-the-command-0123456789\n"), 0o600), os.Setenv("WARDMOTE_SECRET_FILE", secret)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	hostStalls = testrounds.WatchStalls(nil)
	defer hostStalls.Stop()
	defer endTowns()
	return m.Run()
}

// foundingTTL is the TTL of a town's founding, which waits for so long with its first
// grant. Sessions have the town's TTL: see memberMain.
const foundingTTL = time.Second

// memberMain is a member: name, address, addresses to join, and the town's TTL or none. A
// member with the town's TTL runs a second one beside it, without a vote, which has the
// TTL: so the cluster allows it. The end of its input ends the member.
func memberMain(args []string) error {
	join := strings.Split(args[2], ",")
	cfg, err := wardmote.Env(cluster.Config{
		Name: args[0], Bind: args[1], TTL: foundingTTL, Join: join, InitialSize: len(join),
		Security: cluster.Security{Authorize: authorize},
	})
	if err != nil {
		return err
	}
	node, err := cluster.Start(context.Background(), cfg)
	if err != nil {
		return err
	}
	client := locks.New(node, locks.Options{})
	page, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	allow := func(_ *http.Request, _ cluster.Verb, key string) error { return refuse(key, "unwanted") }
	go http.Serve(page, http.StripPrefix("/wardmote", lockshttp.Handler(client, lockshttp.Options{Allow: allow})))
	fmt.Printf("http://%s/wardmote/\n", page.Addr())
	if err := node.Ready(context.Background()); err != nil {
		return err
	}
	if args[3] != "" { // not before: the founding would wait for so long
		ttl, err := time.ParseDuration(args[3])
		if err != nil {
			return err
		}
		patient, err := cluster.Start(context.Background(), cluster.Config{
			Name: "patient", Bind: "127.0.0.1:0", TTL: ttl, Join: join, Voting: cluster.Voting{Thin: true}, Security: cfg.Security,
		})
		if err != nil {
			return err
		}
		defer patient.Stop()
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = client.Close(ctx)
	return node.Stop()
}

// authorize refuses everything about keys that begin with guarded; the page refuses
// everything about keys that begin with unwanted.
func authorize(_ cluster.Member, _ cluster.Verb, key string) error { return refuse(key, "guarded") }

func refuse(key, prefix string) error {
	if strings.HasPrefix(key, prefix) {
		return errors.New("not yours")
	}
	return nil
}

// A town is a cluster of three processes.
type town struct {
	ttl   time.Duration // of its sessions
	addrs []string
	procs []*memberProcess
}

type memberProcess struct {
	page string // its address
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
}

// shared are the towns that several tests use.
var shared struct {
	sync.Mutex
	town *town
}

// Times to live of sessions. A test that waits for the end of a session takes as long; all
// others have one that outlives every standstill of a busy host.
const (
	patientTTL = time.Minute
	briefTTL   = 6 * time.Second
)

// sharedTown returns a town that no test changes.
func sharedTown(t *testing.T) *town {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.town == nil {
		shared.town = startTown(t, patientTTL) // ended by TestMain
	}
	return shared.town
}

func endTowns() {
	if shared.town != nil {
		shared.town.end()
	}
}

// newTown returns a town of the test's own.
func newTown(t *testing.T, ttl time.Duration) *town {
	t.Helper()
	w := startTown(t, ttl)
	t.Cleanup(w.end)
	return w
}

func startTown(t *testing.T, ttl time.Duration) *town {
	t.Helper()
	w := &town{ttl: ttl}
	for range 3 {
		w.addrs = append(w.addrs, freeAddr(t, w.addrs))
	}
	for i := range w.addrs {
		own := ""
		if i == len(w.addrs)-1 {
			own = ttl.String()
		}
		cmd := exec.Command(os.Args[0], fmt.Sprint("m", i), w.addrs[i], strings.Join(w.addrs, ","), own)
		cmd.Env = append(os.Environ(), roleEnv+"="+asMember)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.procs = append(w.procs, &memberProcess{cmd: cmd, in: in, out: bufio.NewScanner(out)})
	}
	for _, p := range w.procs {
		if !p.out.Scan() {
			t.Fatal("a member has died")
		}
		p.page = p.out.Text()
		if !p.out.Scan() || p.out.Text() != "ready" {
			t.Fatalf("a member said %q", p.out.Text())
		}
	}
	await(t, "the town's TTL", func() bool {
		var r locks.Report
		s := &source{pages: []string{w.procs[0].page}, client: http.DefaultClient, limit: patience}
		if err := s.get("report.json", nil, &r); err != nil {
			t.Fatal(err)
		}
		return time.Duration(r.Node.Leader.Bound) == ttl
	})
	return w
}

// end ends all processes of the town. end may be called twice.
func (w *town) end() {
	for _, p := range w.procs {
		p.in.Close()
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
	w.procs = nil
}

// kill is kill -9 of member i.
func (w *town) kill(i int) {
	_ = w.procs[i].cmd.Process.Kill()
	_ = w.procs[i].cmd.Wait()
}

// join is the value of the flag.
func (w *town) join() string { return strings.Join(w.addrs, ",") }

func freeAddr(t *testing.T, taken []string) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		u, err := net.ListenPacket("udp", addr)
		l.Close()
		if err != nil {
			continue
		}
		u.Close()
		free := true
		for _, other := range taken {
			free = free && other != addr
		}
		if free {
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}
