package processes

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testaddr"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/towns"
)

// patience bounds every wait of a test for a process, on a host that runs. A wait on a
// host that stood still for an eighth of it is waited once more, twice at most.
const patience = 40 * time.Second

// A town is a cluster of processes. All members of a town are told the same
// addresses in Join.
type town struct {
	t      *testing.T
	parent *towns.Parent
	addrs  []string
	change func(i int, s *settings)
	wrap   func(i int) []string // a command in front of member i's program
	dirs   []string
	houses []*house          // that the test has started
	tokens map[string]uint64 // the last token seen by the test, by key
	stalls *testrounds.Stalls

	mu    sync.Mutex
	led   string // the name of the leader of the newest term that any member has told
	term  uint64
	terms int // that the members have told, one after the other
}

// name returns the name of member i.
func name(i int) string { return fmt.Sprint("m", i) }

// newTown returns a town of n members on free ports of loopback, none started.
// change may be nil.
func newTown(t *testing.T, n int, change func(i int, s *settings)) *town {
	t.Helper()
	w := &town{t: t, parent: towns.NewParent(), change: change, tokens: make(map[string]uint64), stalls: watch(t)}
	t.Cleanup(w.parent.Close)
	host := testaddr.Host()
	for range n {
		addr, err := testaddr.Free(host, w.addrs)
		if err != nil {
			t.Fatal(err)
		}
		w.addrs = append(w.addrs, addr)
		w.dirs = append(w.dirs, t.TempDir())
	}
	return w
}

// A house is a running process of member i.
type house struct {
	w      *town
	i      int
	p      *towns.Process
	held   map[string]time.Time // when the test asked for each key that the process was granted
	puppet bool                 // the test itself has made the process stand still

	terminated time.Time // when SIGTERM was sent

	mu      sync.Mutex
	next    int
	waiting map[int]chan report
	news    []report
	changed chan struct{} // closed at the next news
}

// start starts a process of member i. The end of the test kills the process.
func (w *town) start(i int) *house {
	w.t.Helper()
	s := settings{Name: name(i), Bind: w.addrs[i], Join: w.addrs, InitialSize: min(3, len(w.addrs)), TTL: 2 * time.Second, Insecure: true}
	if w.change != nil {
		w.change(i, &s)
	}
	text, err := json.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	h := &house{w: w, i: i, held: make(map[string]time.Time), waiting: make(map[int]chan report), changed: make(chan struct{})}
	w.houses = append(w.houses, h)
	prog := towns.Program{Env: []string{memberEnv + "=" + string(text)}, Line: h.heardLine}
	if w.wrap != nil {
		prog.Wrap = w.wrap(i)
	}
	if h.p, err = w.parent.Start(prog); err != nil {
		w.t.Fatalf("member %d: %v", i, err)
	}
	w.t.Cleanup(func() {
		h.kill()
		if w.t.Failed() {
			w.t.Logf("member %d, pid %d:\n%s", i, h.p.Pid(), h.log())
		}
	})
	return h
}

// lasting gives every member its Dir.
func (w *town) lasting() *town {
	w.change = func(i int, s *settings) { s.Dir = w.dirs[i] }
	return w
}

// startAll starts every member and waits until all are ready.
func (w *town) startAll() []*house {
	w.t.Helper()
	var all []*house
	for i := range w.addrs {
		all = append(all, w.start(i))
	}
	for _, h := range all {
		h.ready()
	}
	return all
}

// heardLine takes a report of the process.
func (h *house) heardLine(line []byte) {
	var r report
	if json.Unmarshal(line, &r) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if ch := h.waiting[r.ID]; ch != nil {
		delete(h.waiting, r.ID)
		ch <- r
		return
	}
	if r.News == "leader" {
		h.w.follow(r.Key, r.Term)
	}
	h.news = append(h.news, r)
	close(h.changed)
	h.changed = make(chan struct{})
}

// ask sends a command and waits for the answer. An error of the member fails the test.
func (h *house) ask(do, key string, wait time.Duration) report {
	h.w.t.Helper()
	r, err := h.try(do, key, wait)
	if err != nil {
		h.w.t.Fatalf("member %d: %s %s: %v", h.i, do, key, err)
	}
	return r
}

// try sends a command and waits for the answer, with the patience that the host needs.
func (h *house) try(do, key string, wait time.Duration) (report, error) {
	for again := 2; ; again-- {
		began := time.Now()
		r, err := h.begin(do, key, wait)()
		took := time.Since(began)
		still := h.w.stalls.Sum(began)
		if err == nil || took < wait || still < took/8 || again == 0 {
			return r, err
		}
		h.w.t.Logf("member %d: the host stood still for %v of %v: %s %s waits once more: %v", h.i, still, took, do, key, err)
	}
}

// begin sends a command, and returns a function that waits for the answer.
func (h *house) begin(do, key string, wait time.Duration) func() (report, error) {
	h.mu.Lock()
	h.next++
	id, ch := h.next, make(chan report, 1)
	h.waiting[id] = ch
	line, _ := json.Marshal(command{ID: id, Do: do, Key: key, Wait: wait})
	h.mu.Unlock()
	err := h.p.Send(line)
	return func() (report, error) {
		if err != nil {
			return report{}, err
		}
		limit := time.NewTimer(wait + 10*time.Second)
		defer limit.Stop()
		select {
		case r := <-ch:
			if r.Error != "" {
				return r, fmt.Errorf("after %v: %s", r.Took, r.Error)
			}
			return r, nil
		case <-h.p.Gone():
			return report{}, fmt.Errorf("the process has ended: %v", h.p.Err())
		case <-limit.C:
			return report{}, context.DeadlineExceeded
		}
	}
}

// ready waits until the member is ready.
func (h *house) ready() { h.w.t.Helper(); h.ask("ready", "", patience) }

// acquire acquires a key, and checks that the token has risen.
func (h *house) acquire(key string, wait time.Duration) report {
	h.w.t.Helper()
	began := time.Now()
	r := h.ask("acquire", key, wait)
	h.held[key] = began
	if r.Token <= h.w.tokens[key] {
		h.w.t.Errorf("member %d: %q granted under token %d after %d", h.i, key, r.Token, h.w.tokens[key])
	}
	h.w.tokens[key] = r.Token
	return r
}

func (h *house) release(key string) { h.w.t.Helper(); h.ask("release", key, patience) }

// lost returns the report of a lost lock, if the member has told any.
func (h *house) lost(key string) (report, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.news {
		if r.News == "lost" && r.Key == key {
			return r, true
		}
	}
	return report{}, false
}

// keeps fails the test if the member has told that the key's lock is lost.
func (h *house) keeps(key string) {
	h.w.t.Helper()
	if r, lost := h.lost(key); lost {
		h.w.broken(h.held[key], "member %d lost %q: %s", h.i, key, r.Detail)
	}
}

// log returns everything that the member has logged so far.
func (h *house) log() string { return h.p.Log() }

// heard reports whether the member has told news with the given text.
func (h *house) heard(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.news, func(r report) bool { return strings.Contains(r.News+" "+r.Key+" "+r.Detail, text) })
}

// awaitNews waits until the member has told news with the given text.
func (h *house) awaitNews(text string, wait time.Duration) {
	h.w.t.Helper()
	limit := time.After(wait)
	for {
		h.mu.Lock()
		changed := h.changed
		h.mu.Unlock()
		if h.heard(text) {
			return
		}
		select {
		case <-changed:
		case <-h.p.Gone():
			h.w.t.Fatalf("member %d ended before %q", h.i, text)
		case <-limit:
			h.w.t.Fatalf("member %d did not tell %q within %v", h.i, text, wait)
		}
	}
}

// kill ends the process at once, and waits for the end.
func (h *house) kill() { h.p.Kill() }

// terminate sends SIGTERM and does not wait.
func (h *house) terminate() {
	h.w.t.Helper()
	if runtime.GOOS == "windows" {
		h.w.t.Skip("no SIGTERM here")
	}
	h.terminated = time.Now()
	if err := h.p.Signal(syscall.SIGTERM); err != nil {
		h.w.t.Fatalf("member %d: %v", h.i, err)
	}
}

// exited waits for the end of a terminated process, which must be clean. A farewell
// that fails, with status 1, is a broken promise of time: the farewell has 10 s.
func (h *house) exited(limit time.Duration) {
	h.w.t.Helper()
	select {
	case <-h.p.Gone():
		switch {
		case h.p.Err() == nil:
		case h.p.ExitCode() == 1:
			h.w.broken(h.terminated, "member %d: %v: %s", h.i, h.p.Err(), h.lastLine())
		default:
			h.w.t.Errorf("member %d: %v", h.i, h.p.Err())
		}
	case <-time.After(limit):
		h.w.broken(h.terminated, "member %d still runs %v after SIGTERM", h.i, limit)
		h.kill() // its addresses are due to the next process
	}
}

// lastLine returns the last line that the member has logged.
func (h *house) lastLine() string {
	text := strings.TrimSpace(h.log())
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func (h *house) pause() {
	h.w.t.Helper()
	h.puppet = true
	if err := h.p.Pause(); err != nil {
		h.w.t.Skipf("no way to pause a process here: %v", err)
	}
}

func (h *house) resume() {
	h.w.t.Helper()
	if err := h.p.Resume(); err != nil {
		h.w.t.Fatal(err)
	}
}

// leader returns the house of the leader.
func (w *town) leader(all []*house) *house {
	w.t.Helper()
	for began := time.Now(); time.Since(began) < patience; {
		for _, h := range all {
			// A member that reaches no leader answers with an error after two seconds.
			if r, err := h.begin("leader", "", 3*time.Second)(); err == nil && r.Leader {
				return h
			}
		}
	}
	w.t.Fatal("no member leads")
	return nil
}

// follow counts a leader that a member has told.
func (w *town) follow(leader string, term uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if term > w.term {
		w.led, w.term = leader, term
		w.terms++
	}
}

// leads returns the name of the leader of the newest term told, and the number of
// terms told. Unlike leader, leads asks nobody.
func (w *town) leads() (name string, terms int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.led, w.terms
}

// whole waits until every member sees three voters.
func (w *town) whole(all []*house) {
	w.t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		short := 0
		for _, h := range all {
			if h.ask("voters", "", patience).Voters != 3 {
				short++
			}
		}
		if short == 0 {
			return
		}
		if time.Since(began) > time.Minute {
			w.t.Fatalf("%d members do not see three voters", short)
		}
	}
}

// percentiles prints p50, p90 and max of some durations.
func percentiles(took []time.Duration) string {
	slices.Sort(took)
	at := func(p int) time.Duration { return took[(len(took)-1)*p/100].Round(100 * time.Microsecond) }
	return fmt.Sprintf("p50 %v, p90 %v, max %v of %d", at(50), at(90), at(100), len(took))
}
