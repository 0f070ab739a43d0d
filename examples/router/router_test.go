package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
)

// TestMain is the router itself in the processes that the test starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "router" {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		main()
		return
	}
	os.Exit(m.Run())
}

// A process is a running router.
type process struct {
	cmd        *exec.Cmd
	http, join string
}

var printed = regexp.MustCompile(`http://(\S+)/any/key.* -join (\S+)`)

// startRouter starts a process and waits until it has printed its addresses.
func startRouter(t *testing.T, join string) *process {
	t.Helper()
	args := []string{"router"}
	if join != "" {
		args = append(args, "-join", join)
	}
	p := &process{cmd: exec.Command(os.Args[0], args...)}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if found := printed.FindStringSubmatch(lines.Text()); found != nil {
			p.http, p.join = found[1], found[2]
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return p
		}
	}
	t.Fatal("the process has printed no address")
	return nil
}

// visit asks p for a key.
func (p *process) visit(key string) (status int, hops, answer string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.http+"/"+key, nil)
	if err != nil {
		return 0, "", "", err
	}
	reply, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", "", err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	return reply.StatusCode, reply.Header.Get(headerHops), string(body), err
}

// eventually asks p for every key until all are answered with 200.
func eventually(t *testing.T, p *process, keys []string) {
	t.Helper()
	deadline := time.Now().Add(40 * time.Second)
	for _, key := range keys {
		for {
			status, _, answer, err := p.visit(key)
			if err == nil && status == http.StatusOK {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d %v %s", key, status, err, answer)
			}
			time.Sleep(50 * time.Millisecond) // real processes: the next attempt of a user
		}
	}
}

// awaitShards asks p for keys until p answers for one of them itself.
func awaitShards(t *testing.T, p *process, keys []string) {
	t.Helper()
	deadline := time.Now().Add(40 * time.Second)
	for i := 0; time.Now().Before(deadline); i++ {
		status, hops, _, err := p.visit(keys[i%len(keys)])
		if err == nil && status == http.StatusOK && hops == "" {
			return
		}
		time.Sleep(time.Millisecond) // real processes: the next attempt of a user
	}
	t.Fatal("the process gets no shards")
}

// Any of three real processes answers for any key, while shards move to processes that
// come and from a process that leaves.
func TestAnyProcessAnswersForAnyKey(t *testing.T) {
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprint("key-", i))
	}
	a := startRouter(t, "")
	eventually(t, a, keys)

	// Requests go on while processes come and go. No planned move fails one of them.
	asked := newAsker(t, a, keys)
	b := startRouter(t, a.join)
	awaitShards(t, b, keys)
	c := startRouter(t, a.join)
	awaitShards(t, c, keys)
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		asked.broken("the process left with %v", err)
	}
	eventually(t, b, keys)
	requests, hops := asked.stop()
	t.Logf("%d requests, by hops: %v", requests, hops)
	if requests == 0 || hops["1"] == 0 {
		t.Errorf("%d requests, by hops: %v", requests, hops)
	}
}

// An asker asks one process for one key after the other.
type asker struct {
	end, ended chan struct{}
	mu         sync.Mutex
	requests   int
	hops       map[string]int
	failed     []string
	t          *testing.T
	stalls     *testrounds.Stalls
	began      time.Time
}

func newAsker(t *testing.T, p *process, keys []string) *asker {
	a := &asker{
		end: make(chan struct{}), ended: make(chan struct{}), hops: make(map[string]int), t: t,
		stalls: testrounds.WatchStalls(nil), began: time.Now(),
	}
	t.Cleanup(a.stalls.Stop)
	go func() {
		defer close(a.ended)
		for i := 0; ; i++ {
			select {
			case <-a.end:
				return
			default:
			}
			status, hops, answer, err := p.visit(keys[i%len(keys)])
			a.mu.Lock()
			a.requests++
			a.hops[hops]++
			if err != nil || status != http.StatusOK {
				a.failed = append(a.failed, fmt.Sprint(status, err, answer))
			}
			a.mu.Unlock()
		}
	}()
	return a
}

// stop ends the asker, and fails the test if a request has failed.
func (a *asker) stop() (requests int, hops map[string]int) {
	close(a.end)
	<-a.ended
	if len(a.failed) > 0 {
		a.broken("%d requests of %d failed, the first: %v", len(a.failed), a.requests, errors.New(a.failed[0]))
	}
	return a.requests, a.hops
}

// broken fails the test, unless the host has stood still meanwhile: a request has 2 s,
// and a session its TTL, by clocks that go on.
func (a *asker) broken(format string, args ...any) {
	a.t.Helper()
	if d := a.stalls.Since(a.began); d >= testrounds.Void {
		a.t.Logf("the host stood still for %v, which excuses: "+format, append([]any{d}, args...)...)
		return
	}
	a.t.Errorf(format, args...)
}

// A fixedMap never changes: it is as stale as the test makes it.
type fixedMap struct {
	owner string // the HTTP address of every shard's owner
	mine  bool
	token fence.Token
}

func (m fixedMap) Owner(int) (locks.Owner, bool) {
	return locks.Owner{Self: m.mine, Token: m.token, Meta: map[string]string{metaHTTP: m.owner}}, m.owner != ""
}

func (m fixedMap) Mine(int) (*locks.Lock, bool) { return &locks.Lock{}, m.mine }

func (fixedMap) Changed() <-chan struct{} { return nil }

// newServer serves a router with the given map.
func newServer(t *testing.T) (r *router, m *fixedMap, address string) {
	t.Helper()
	m = &fixedMap{}
	r = newRouter(m)
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return r, m, server.Listener.Addr().String()
}

// Each stale map costs one hop more. A map that has no later news ends the request,
// which is never sent in circles.
func TestTheOwnerCorrectsAStaleMap(t *testing.T) {
	_, a, first := newServer(t)
	_, b, second := newServer(t)
	owner, c, third := newServer(t)
	_, lost, fourth := newServer(t)
	for shard := range shards {
		owner.counts[shard] = make(map[string]int)
	}
	c.owner, c.mine = third, true
	a.token, b.token = 1, 2
	p := process{http: first}
	for _, test := range []struct {
		says       string
		a, b, lost string
		token      fence.Token // of lost
		status     int
		hops, text string
	}{
		{"right", third, third, third, 3, 200, "1", "visit 1"},
		{"stale", second, third, third, 3, 200, "2", "visit 2"},
		{"stale twice", second, fourth, third, 3, 200, "3", "visit 3"},
		{"in circles", second, fourth, second, 2, 503, "", "no owner now"},
		{"a dead owner", "127.0.0.1:1", third, third, 3, 502, "", "refused"},
	} {
		a.owner, b.owner, lost.owner, lost.token = test.a, test.b, test.lost, test.token
		status, hops, answer, err := p.visit("key")
		if err != nil || status != test.status || hops != test.hops || !strings.Contains(answer, test.text) {
			t.Errorf("%s: %d after %q hops: %s %v", test.says, status, hops, answer, err)
		}
	}
}
