package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockshttp"
)

const (
	memberTTL = 3 * time.Second
	prefix    = "/ops/wardmote" // under which the page stands
)

// TestMain is a member in the processes that the tests start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "member" {
		if err := runMember(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runMember is a member with a page, until its standard input ends. Each line of the input
// is a command:
//
//	acquire CLIENT KEY   told as "granted CLIENT KEY TOKEN", and later "ended CLIENT KEY"
//	spread CLIENT NAME N
func runMember(name string, join []string) error {
	cfg := cluster.Config{Name: name, TTL: memberTTL, Join: join}
	if len(join) == 0 {
		cfg.InitialSize = 1
	}
	node, err := cluster.Start(context.Background(), cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	client := locks.New(node, locks.Options{})
	go func() { _ = http.Serve(listener, routes(client)) }()
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	say("member %s %s", node.Addr(), listener.Addr())
	clients := make(map[string]*locks.Client)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		f := strings.Fields(lines.Text())
		c := clients[f[1]]
		if c == nil {
			c = locks.New(node, locks.Options{Name: f[1]})
			clients[f[1]] = c
		}
		switch f[0] {
		case "acquire":
			go func() {
				l, err := c.Acquire(context.Background(), f[2])
				if err != nil {
					say("failed %s %s %v", f[1], f[2], err)
					return
				}
				say("granted %s %s %d", f[1], f[2], l.Token())
				<-l.Context().Done()
				say("ended %s %s %v", f[1], f[2], l.Err())
			}()
		case "spread":
			go func() {
				_ = c.Spread(context.Background(), f[2], 12, func(ctx context.Context, _ int, _ *locks.Lock) error {
					<-ctx.Done()
					return nil
				})
			}()
		}
	}
	return nil
}

// routes serves the page under a prefix, with and without http.StripPrefix.
func routes(c *locks.Client) http.Handler {
	mux := http.NewServeMux()
	allowed := lockshttp.Options{Allow: func(r *http.Request, v cluster.Verb, key string) error {
		if key == "forbidden" {
			return errors.New("nobody touches this key")
		}
		return nil
	}}
	mux.Handle(prefix+"/", http.StripPrefix(prefix, lockshttp.Handler(c, allowed)))
	mux.Handle("/read/only/", lockshttp.Handler(c, lockshttp.Options{}))
	probes := lockshttp.Probes(c)
	mux.Handle("/livez", probes)
	mux.Handle("/readyz", probes)
	return mux
}

// member is a process of a cluster.
type member struct {
	t          *testing.T
	name       string
	addr, http string
	cmd        *exec.Cmd
	in         io.WriteCloser

	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed with the next line
}

func startMember(t *testing.T, name string, join ...string) *member {
	t.Helper()
	m := &member{t: t, name: name, cmd: exec.Command(os.Args[0], append([]string{"member", name}, join...)...), more: make(chan struct{})}
	in, err := m.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.in, m.cmd.Stderr = in, os.Stderr
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.kill)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			m.mu.Lock()
			m.lines = append(m.lines, lines.Text())
			close(m.more)
			m.more = make(chan struct{})
			m.mu.Unlock()
		}
	}()
	f := strings.Fields(m.says("member "))
	m.addr, m.http = f[1], "http://"+f[2]
	return m
}

// kill ends the process, as kill -9 does.
func (m *member) kill() {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
}

// says waits for a line that begins with a text, and returns it.
func (m *member) says(begins string) string {
	m.t.Helper()
	timeout := time.After(patience)
	for {
		m.mu.Lock()
		more := m.more
		for _, l := range m.lines {
			if strings.HasPrefix(l, begins) {
				m.mu.Unlock()
				return l
			}
		}
		all := strings.Join(m.lines, "\n")
		m.mu.Unlock()
		select {
		case <-more:
		case <-timeout:
			m.t.Fatalf("%s has not said %q, but:\n%s", m.name, begins, all)
		}
	}
}

func (m *member) obey(format string, args ...any) {
	m.t.Helper()
	if _, err := fmt.Fprintf(m.in, format+"\n", args...); err != nil {
		m.t.Fatal(err)
	}
}

// acquire has a client of the member take a key, and returns the token.
func (m *member) acquire(client, key string) string {
	m.t.Helper()
	m.obey("acquire %s %s", client, key)
	f := strings.Fields(m.says("granted " + client + " " + key + " "))
	return f[3]
}

// page returns the address of the member's page.
func (m *member) page() string { return m.http + prefix + "/" }

// get returns an answer of the member, and the time that it took.
func (m *member) get(path string) (status int, body []byte, took time.Duration) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.http+path, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	began := time.Now()
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		m.t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err = io.ReadAll(reply.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	return reply.StatusCode, body, time.Since(began)
}

// document reads a JSON document of the member's page.
func (m *member) document(name string, into any) {
	m.t.Helper()
	status, body, _ := m.get(prefix + "/" + name)
	if status != http.StatusOK {
		m.t.Fatalf("%s: %d %s", name, status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		m.t.Fatalf("%s: %v: %s", name, err, body)
	}
}

// startTown starts a cluster of three processes, and returns when all vote.
func startTown(t *testing.T) []*member {
	t.Helper()
	first := startMember(t, "ann")
	all := []*member{first, startMember(t, "ben", first.addr), startMember(t, "cleo", first.addr)}
	deadline := time.Now().Add(patience)
	for _, m := range all {
		for {
			status, body, _ := m.get("/readyz")
			if status == http.StatusOK {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is not ready: %s", m.name, body)
			}
			time.Sleep(50 * time.Millisecond) // a probe tells no event
		}
	}
	return all
}

// inTime fails the test if something took longer than a limit, unless this host stood
// still meanwhile.
func inTime(t *testing.T, stalls *testrounds.Stalls, began time.Time, took, limit time.Duration, what string) {
	t.Helper()
	if stood := stalls.Since(began); took > limit && stood < testrounds.Void {
		t.Errorf("%s took %v, more than %v; the longest standstill is %v", what, took, limit, stood)
	}
}
