//go:build linux

package storm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/internal/testaddr"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/towns"
)

// kind is a kind of town.
type kind struct {
	Members  int
	TTL      time.Duration
	Dir      bool
	Sync     cluster.Sync
	Secrets  bool
	Complete bool // JoinIsComplete
	Work     string
	Pace     time.Duration
	Shifted  bool // members in time namespaces, or with clocks that are set
}

func (k kind) String() string {
	where, said := "memory", "plain"
	if k.Dir {
		where = "Dir, " + k.Sync.String()
	}
	if k.Secrets {
		said = "Secrets"
	}
	return fmt.Sprintf("%d members, TTL %v, %s, %s, complete %t", k.Members, k.TTL, where, said, k.Complete)
}

// town is a cluster of processes under faults. All stamps are of CLOCK_MONOTONIC.
type town struct {
	kind   kind
	seed   uint64
	base   string // keeps the recordings, logs and Dirs
	parent *towns.Parent
	net    *towns.Net // nil where the host has no namespaces
	noNet  error
	shift  bool // time namespaces can be had
	addrs  []string
	store  *store
	rec    *history.Recorder // the driver's own
	file   *os.File
	limits *groups
	disks  []*disk
	stalls *testrounds.Stalls
	logf   func(format string, args ...any)

	ending atomic.Bool

	mu      sync.Mutex
	houses  []*house // by member: the running or last process
	started int      // processes, ever
	led     string
	term    uint64
	secrets [][]byte // for processes that start
	deaths  int      // without a fault that kills
}

// house is a process of a member.
type house struct {
	w       *town
	i       int
	process string
	p       *towns.Process
	log     *os.File

	mu      sync.Mutex
	next    int
	waiting map[int]chan report
	killed  bool // by the driver, or told to end
	stopped int  // SIGSTOPs in force
	failed  string
	queued  map[string]bool // keys that the driver's requests have waited for
}

func name(i int) string { return fmt.Sprint("m", i) }

// newTown makes a town, with none of its members started. base is an empty directory.
func newTown(base string, k kind, seed uint64, logf func(format string, args ...any)) (_ *town, err error) {
	w := &town{kind: k, seed: seed, base: base, parent: towns.NewParent(), houses: make([]*house, k.Members), logf: logf}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	w.stalls = testrounds.WatchStalls(nil)
	if w.file, err = os.Create(filepath.Join(base, "driver.jsonl")); err != nil {
		return nil, err
	}
	w.rec = history.NewWriter(func() int64 { return monotonic(0) }, w.file)
	if w.store, err = newStore(filepath.Join(base, "store"), w.rec); err != nil {
		return nil, err
	}
	w.net, w.noNet = towns.NewNet(k.Members)
	w.shift = exec.Command("unshare", otherClock[1:]...).Run() == nil
	host := testaddr.Host()
	for i := range k.Members {
		addr := ""
		if w.net != nil {
			addr = w.net.Host(i) + ":7000"
		} else if addr, err = testaddr.Free(host, w.addrs); err != nil {
			return nil, err
		}
		w.addrs = append(w.addrs, addr)
		w.disks = append(w.disks, newDisk(filepath.Join(base, name(i)+".dir")))
	}
	w.limits = newGroups(fmt.Sprintf("wardmote-storm-%d-%d", os.Getpid(), seed))
	if k.Secrets {
		w.secrets = [][]byte{cluster.NewSecret()}
	}
	return w, nil
}

// close ends every process and removes everything outside of base.
func (w *town) close() {
	w.ending.Store(true)
	w.parent.Close()
	if w.net != nil {
		w.net.Close()
	}
	if w.store != nil {
		w.store.Close()
	}
	for _, d := range w.disks {
		d.close()
	}
	w.limits.close()
	if w.stalls != nil {
		w.stalls.Stop()
	}
	for _, h := range w.houses {
		if h != nil {
			_ = h.log.Close()
		}
	}
	if w.file != nil {
		_ = w.file.Close()
	}
}

// otherClock is a command that executes another one, here true, in a time namespace whose
// monotonic clock is a day ahead.
var otherClock = []string{"unshare", "-T", "--monotonic", "86400", "--", "true"}

// start starts a process of member i.
func (w *town) start(i int) (*house, error) {
	w.mu.Lock()
	w.started++
	process := fmt.Sprintf("%s/%d", name(i), w.started)
	short := max(w.kind.TTL*2/3, 300*time.Millisecond).Truncate(time.Millisecond)
	s := settings{
		Name: name(i), Process: process, Bind: w.addrs[i], Join: w.addrs, InitialSize: min(3, w.kind.Members), TTL: w.kind.TTL, ShortTTL: short,
		Voters: 3, Sync: w.kind.Sync, Secrets: w.secrets, JoinIsComplete: w.kind.Complete, Work: w.kind.Work, Pace: w.kind.Pace,
		Record: filepath.Join(w.base, fmt.Sprintf("%s-%d.jsonl", name(i), w.started)), Store: filepath.Join(w.base, "store"),
		Seed: w.seed*1000 + uint64(w.started),
	}
	w.mu.Unlock()
	if w.kind.Dir {
		s.Dir = w.disks[i].dir
	}
	prog := towns.Program{}
	if w.net != nil {
		prog.Wrap = w.net.Wrap(i)
	}
	if w.kind.Shifted {
		// Every third member has another monotonic clock, and every third a clock of the
		// test's.
		switch i % 3 {
		case 1:
			if w.shift {
				prog.Wrap = append(prog.Wrap, otherClock[:len(otherClock)-1]...)
				s.Shift = int64(24 * time.Hour)
			}
		case 2:
			s.OwnClock = true
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	prog.Env = []string{memberEnv + "=" + string(text)}
	h := &house{w: w, i: i, process: process, waiting: make(map[int]chan report), queued: make(map[string]bool)}
	if h.log, err = os.OpenFile(filepath.Join(w.base, name(i)+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	prog.Line, prog.Log = h.heard, h.log
	w.rec.Mark(history.Start, process, "")
	if h.p, err = w.parent.Start(prog); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.houses[i] = h
	w.mu.Unlock()
	return h, nil
}

// house returns the running or last process of member i.
func (w *town) house(i int) *house {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.houses[i]
}

// heard takes a line of the process.
func (h *house) heard(line []byte) {
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
	switch r.News {
	case "leader":
		h.w.mu.Lock()
		if r.Term > h.w.term {
			h.w.led, h.w.term = r.Key, r.Term
		}
		h.w.mu.Unlock()
	case "failed":
		h.failed = r.Detail
	case "queued":
		h.queued[r.Key] = true
	}
}

// begin sends a command, and returns a function that waits for the answer.
func (h *house) begin(c command) func() (report, error) {
	h.mu.Lock()
	h.next++
	c.ID = h.next
	ch := make(chan report, 1)
	h.waiting[c.ID] = ch
	h.mu.Unlock()
	line, err := json.Marshal(c)
	if err == nil {
		err = h.p.Send(line)
	}
	return func() (report, error) {
		if err != nil {
			return report{}, err
		}
		limit := time.NewTimer(c.Wait + 10*time.Second)
		defer limit.Stop()
		select {
		case r := <-ch:
			if r.Error != "" {
				return r, errors.New(r.Error)
			}
			return r, nil
		case <-h.p.Gone():
			return report{}, fmt.Errorf("%s has ended", h.process)
		case <-limit.C:
			return report{}, fmt.Errorf("%s does not answer: %w", h.process, context.DeadlineExceeded)
		}
	}
}

// waits reports whether a request of the driver for a key has waited in the queue.
func (h *house) waits(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queued[key]
}

func (h *house) ask(do, key string, wait time.Duration) (report, error) {
	return h.begin(command{Do: do, Key: key, Wait: wait})()
}

// kill ends the process at once.
func (h *house) kill() {
	h.mu.Lock()
	h.killed = true
	h.mu.Unlock()
	h.p.Kill()
	h.w.rec.Mark(history.Kill, h.process, "")
}

// terminate ends the process by SIGTERM, or after a while by a kill.
func (h *house) terminate() (clean bool) {
	h.mu.Lock()
	h.killed = true
	h.mu.Unlock()
	_ = h.p.Signal(syscall.SIGTERM)
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	select {
	case <-h.p.Gone():
		h.w.rec.Mark(history.Kill, h.process, "SIGTERM")
		return true
	case <-limit.C:
		h.kill()
		return false
	}
}

// stop and cont pause and resume the process. Stops of several faults may overlap.
func (h *house) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped++; h.stopped == 1 {
		h.w.rec.Mark(history.Freeze, h.process, "")
		_ = h.p.Pause()
	}
}

func (h *house) cont() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped--; h.stopped == 0 {
		_ = h.p.Resume()
		h.w.rec.Mark(history.Thaw, h.process, "")
	}
}

// leader returns the member that leads by the newest news, or a random member.
func (w *town) leader(r *rand.Rand) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.houses {
		if name(i) == w.led {
			return i
		}
	}
	return r.IntN(len(w.houses))
}

// revive starts the next process of each member after an end without a fault, as a
// supervisor does, until ctx ends.
func (w *town) revive(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond) // processes have no common event
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for i := range w.kind.Members {
			h := w.house(i)
			if h == nil || !h.p.Ended() {
				continue
			}
			h.mu.Lock()
			killed := h.killed
			h.killed = true
			h.mu.Unlock()
			if killed || ctx.Err() != nil {
				continue // its fault starts the next one
			}
			w.rec.Mark(history.Kill, h.process, fmt.Sprint("ended by itself: ", h.p.Err()))
			w.logf("%s ended by itself: %v: %s", h.process, h.p.Err(), lastLine(h.p.Log()))
			w.mu.Lock()
			w.deaths++
			w.mu.Unlock()
			_, _ = w.start(i)
		}
	}
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
