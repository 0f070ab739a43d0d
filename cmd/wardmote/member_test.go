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
	"github.com/wardmote/wardmote/internal/testaddr"
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
	ctx, end := context.WithCancel(context.Background())
	go func() {
		defer end()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	node, err := cluster.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer node.Stop()
	client := locks.New(node, locks.Options{})
	page, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	allow := func(_ *http.Request, _ cluster.Verb, key string) error { return refuse(key, "unwanted") }
	go http.Serve(page, http.StripPrefix("/wardmote", lockshttp.Handler(client, lockshttp.Options{Allow: allow})))
	fmt.Printf("http://%s/wardmote/\n", page.Addr())
	if err := node.Ready(ctx); err != nil {
		return err
	}
	if args[3] != "" { // not before: the founding would wait for so long
		ttl, err := time.ParseDuration(args[3])
		if err != nil {
			return err
		}
		patient, err := cluster.Start(ctx, cluster.Config{
			Name: "patient", Bind: "127.0.0.1:0", TTL: ttl, Join: join, Voting: cluster.Voting{Thin: true}, Security: cfg.Security,
		})
		if err != nil {
			return err
		}
		defer patient.Stop()
	}
	fmt.Println("ready")
	<-ctx.Done()
	brief, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = client.Close(brief)
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
	says chan string // the lines of its output; closed at their end
}

// memberLines is how many lines a member writes.
const memberLines = 2

// listen passes the lines of the output on.
func (p *memberProcess) listen(out io.Reader) {
	defer close(p.says)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.says <- lines.Text()
	}
}

// line waits for the next line of the output.
func (p *memberProcess) line(t *testing.T) string {
	t.Helper()
	select {
	case line, ok := <-p.says:
		if !ok {
			t.Fatal("a member has died")
		}
		return line
	case <-time.After(patience):
		t.Fatalf("%q says nothing", p.cmd.Args[1:])
	}
	return ""
}

// shared are the towns that several tests use.
var shared struct {
	sync.Mutex
	tried bool // to start the town
	town  *town
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
	if !shared.tried {
		shared.tried = true
		shared.town = startTown(t, patientTTL) // ended by TestMain
	}
	if shared.town == nil {
		t.Fatal("the town has not started: see another test's failure")
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
	defer func() {
		if t.Failed() {
			w.end()
		}
	}()
	host := testaddr.Host()
	for range 3 {
		addr, err := testaddr.Free(host, w.addrs)
		if err != nil {
			t.Fatal(err)
		}
		w.addrs = append(w.addrs, addr)
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
		p := &memberProcess{cmd: cmd, in: in, says: make(chan string, memberLines)}
		go p.listen(out)
		w.procs = append(w.procs, p)
	}
	for _, p := range w.procs {
		p.page = p.line(t)
		if line := p.line(t); line != "ready" {
			t.Fatalf("a member said %q", line)
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

// freeAddr returns an address at which nobody listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := testaddr.Free(testaddr.Host(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
