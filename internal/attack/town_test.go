package attack

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testaddr"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/wire"
)

const (
	clusterName = "attacked"
	ttl         = 3 * time.Second
	patience    = 40 * time.Second // bounds every wait for a process
	serveWithin = 5 * time.Second  // the next lock, after an attack
	mostMemory  = 150 << 20        // bytes of a member above its rest
)

// A town is a cluster of processes under attack.
type town struct {
	t      *testing.T
	mode   mode
	ttl    time.Duration // of the members
	papers *papers
	addrs  []string // bound by the members
	told   []string // the addresses that members advertise, and that Join lists
	dirs   []string
	houses []*house

	host   *testrounds.Stalls
	held   map[string]*house // the holder of each key that a member holds
	rest   []int             // bytes of memory of each member at rest
	above  int               // the most that a member had above its rest at a look
	votes  []string          // the raft ID of each member
	serial int               // keys that were used once

	mu    sync.Mutex
	led   string // the leader of the newest term told
	term  uint64
	terms int
}

func name(i int) string { return fmt.Sprint("m", i) }

// newTown returns a town of n members on loopback addresses of their own, none
// started.
func newTown(t *testing.T, n int, m mode) *town {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: loopback addresses without setup, and /proc")
	}
	w := &town{t: t, mode: m, ttl: ttl, host: watch(t), held: make(map[string]*house)}
	dir := t.TempDir()
	for i := range n {
		addr, err := testaddr.Free(testaddr.Host(), nil)
		if err != nil {
			t.Fatal(err)
		}
		w.addrs = append(w.addrs, addr)
		w.dirs = append(w.dirs, filepath.Join(dir, name(i)))
	}
	w.told = slices.Clone(w.addrs)
	w.houses = make([]*house, n)
	w.papers = newPapers(t, m, w.addrs)
	return w
}

// A house is a running process of member i.
type house struct {
	w    *town
	i    int
	cmd  *exec.Cmd
	in   io.WriteCloser
	gone chan struct{} // closed when the process has ended

	mu      sync.Mutex
	next    int
	waiting map[int]chan report
	news    []report
	stderr  bytes.Buffer
}

// start starts a process of member i. The end of the test kills the process.
func (w *town) start(i int) *house {
	w.t.Helper()
	s := settings{Name: name(i), Bind: w.addrs[i], Dir: w.dirs[i], Join: w.told, InitialSize: min(3, len(w.addrs)), TTL: w.ttl}
	if w.told[i] != w.addrs[i] {
		s.Advertise = w.told[i]
	}
	w.papers.equip(&s, i)
	text, err := json.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	bin, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	h := &house{w: w, i: i, gone: make(chan struct{}), waiting: make(map[int]chan report)}
	h.cmd = exec.Command(bin)
	h.cmd.Env = append(os.Environ(), memberEnv+"="+string(text))
	h.cmd.Stderr = lockedWriter{h}
	out, err := h.cmd.StdoutPipe()
	if err == nil {
		h.in, err = h.cmd.StdinPipe()
	}
	if err == nil {
		err = h.cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	var read sync.WaitGroup
	read.Go(func() { h.read(out) })
	go func() {
		read.Wait()
		_ = h.cmd.Wait()
		close(h.gone)
	}()
	w.t.Cleanup(h.kill)
	w.houses[i] = h
	return h
}

type lockedWriter struct{ h *house }

func (w lockedWriter) Write(b []byte) (int, error) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	return w.h.stderr.Write(b)
}

func (h *house) log() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stderr.String()
}

// read takes the process's reports until its output ends.
func (h *house) read(out io.Reader) {
	lines := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var r report
		if json.Unmarshal(line, &r) != nil {
			continue
		}
		h.mu.Lock()
		if ch := h.waiting[r.ID]; ch != nil {
			delete(h.waiting, r.ID)
			ch <- r
		} else {
			if r.News == "leader" {
				h.w.follow(r.Key, r.Term)
			}
			h.news = append(h.news, r)
		}
		h.mu.Unlock()
	}
}

// begin sends a command, and returns a function that waits for the answer.
func (h *house) begin(c command) func() (report, error) {
	h.mu.Lock()
	h.next++
	ch := make(chan report, 1)
	c.ID = h.next
	h.waiting[c.ID] = ch
	line, _ := json.Marshal(c)
	_, err := h.in.Write(append(line, '\n'))
	h.mu.Unlock()
	return func() (report, error) {
		if err != nil {
			return report{}, err
		}
		limit := time.NewTimer(c.Wait + 5*time.Second)
		defer limit.Stop()
		select {
		case r := <-ch:
			if r.Error != "" {
				return r, fmt.Errorf("%s: %s: %s", name(h.i), c.Do, r.Error)
			}
			return r, nil
		case <-h.gone:
			return report{}, fmt.Errorf("the process of %s has ended", name(h.i))
		case <-limit.C:
			// The member's own limit is shorter: its goroutines tell why it is silent.
			_ = h.cmd.Process.Signal(syscall.SIGQUIT)
			<-h.gone
			h.w.t.Logf("%s did not answer %s:\n%s", name(h.i), c.Do, h.log())
			return report{}, fmt.Errorf("%s did not answer %s within %v", name(h.i), c.Do, c.Wait+5*time.Second)
		}
	}
}

func (h *house) ask(do, key string, wait time.Duration) (report, error) {
	return h.begin(command{Do: do, Key: key, Wait: wait})()
}

func (h *house) must(do, key string, wait time.Duration) report {
	h.w.t.Helper()
	r, err := h.ask(do, key, wait)
	if err != nil {
		h.w.t.Fatalf("%v\n%s", err, h.log())
	}
	return r
}

// lost tells of the loss of a key, if the member has told any.
func (h *house) lost(key string) (detail string, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.news {
		if r.News == "lost" && r.Key == key {
			return r.Detail, true
		}
	}
	return "", false
}

func (h *house) kill() {
	_ = h.cmd.Process.Kill()
	<-h.gone
}

// memory returns the largest memory of the process in bytes since mark was called.
func (h *house) memory() int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n << 10
		}
	}
	return 0
}

// mark has memory begin anew.
func (h *house) mark() {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", h.cmd.Process.Pid), []byte("5"), 0)
}

func (w *town) follow(leader string, term uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if term > w.term {
		w.led, w.term = leader, term
		w.terms++
	}
}

// leads returns the leader of the newest term told, and the number of terms.
func (w *town) leads() (leader string, term uint64, terms int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.led, w.term, w.terms
}

// leader returns the index of the leader.
func (w *town) leader() int {
	led, _, _ := w.leads()
	for i := range w.addrs {
		if name(i) == led {
			return i
		}
	}
	return 0
}

// victim returns the index of a member that does not lead, and other of another.
func (w *town) victim() int { return (w.leader() + 1) % len(w.addrs) }

// settle starts every member that does not run, waits until the cluster serves and
// has three voters, and has each member hold a lock.
func (w *town) settle() {
	w.t.Helper()
	for i, h := range w.houses {
		if h == nil {
			w.start(i)
		}
	}
	for _, h := range w.houses {
		h.must("ready", "", patience)
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		short := 0
		for _, h := range w.houses {
			if h.must("voters", "", patience).Token < 3 {
				short++
			}
		}
		if short == 0 {
			break
		}
		if time.Since(began) > patience {
			w.t.Fatal("not three voters")
		}
	}
	if k, err := w.learn(); err == nil && len(w.addrs) == 3 {
		w.votes = []string{k.raftID(0), k.raftID(1), k.raftID(2)}
	}
	for i, h := range w.houses {
		key := fmt.Sprintf("held-%d-%d", i, h.cmd.Process.Pid)
		h.must("acquire", key, patience)
		w.held[key] = h
	}
	w.rest = w.rest[:0]
	for _, h := range w.houses {
		h.mark()
		w.rest = append(w.rest, h.memory())
	}
}

// end kills every member.
func (w *town) end() {
	for i, h := range w.houses {
		if h != nil {
			h.kill()
		}
		w.houses[i] = nil
	}
	clear(w.held)
	w.votes = nil
	w.mu.Lock()
	w.led, w.term = "", 0
	w.mu.Unlock()
}

// harm returns the harm that an attack has done since settle, or "". terms is the
// number of terms before the attack.
func (w *town) harm(terms int) string {
	for _, h := range w.houses {
		select {
		case <-h.gone:
			return fmt.Sprintf("process %s ended: %s", name(h.i), lastLine(h.log()))
		default:
		}
	}
	for key, h := range w.held {
		if detail, lost := h.lost(key); lost {
			return fmt.Sprintf("%s lost its lock: %s", name(h.i), detail)
		}
	}
	w.serial++
	asker := w.houses[w.serial%len(w.houses)]
	fresh := fmt.Sprint("fresh-", w.serial)
	if _, err := asker.ask("try", fresh, serveWithin); err != nil {
		return fmt.Sprintf("no lock within %v: %v", serveWithin, err)
	}
	for key, h := range w.held {
		other := w.houses[(h.i+1)%len(w.houses)]
		if r, err := other.ask("try", key, serveWithin); err == nil {
			return fmt.Sprintf("the lock of %s granted to another", name(h.i))
		} else if r.Detail != "held" {
			return err.Error()
		}
	}
	if r, err := asker.ask("members", "", serveWithin); err != nil || r.Token > 50 {
		return fmt.Sprintf("%d members", r.Token)
	}
	for i, h := range w.houses {
		above := h.memory() - w.rest[i]
		w.above = max(w.above, above)
		if above > mostMemory {
			return fmt.Sprintf("%d MB of memory in %s", above>>20, name(i))
		}
	}
	if why := w.replaced(); why != "" {
		return why
	}
	if led, _, n := w.leads(); n != terms {
		return fmt.Sprintf("another leader: %s", led)
	}
	return ""
}

// replaced asks the leader whether every member still has its vote, and returns the
// answer for one that has not.
func (w *town) replaced() string {
	a := w.attacker(member)
	defer a.close()
	for _, id := range w.votes {
		f, err := a.ask(w.leader(), peer{}, wire.InConfig, &wire.InConfigRequest{Raft: id})
		if err == nil && f.Code == wire.CodeNo {
			return fmt.Sprintf("%s has lost its vote", id)
		}
	}
	return ""
}

// restarts kills all processes and starts them from their Dirs, and returns why that
// fails, or "".
func (w *town) restarts() string {
	w.end()
	for i := range w.addrs {
		w.start(i)
	}
	for _, h := range w.houses {
		if _, err := h.ask("ready", "", 10*time.Second); err != nil {
			return fmt.Sprintf("no restart: %v: %s", err, lastLine(h.log()))
		}
	}
	if _, err := w.houses[0].ask("try", "after", 20*time.Second); err != nil {
		return err.Error()
	}
	return ""
}

func lastLine(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	for _, l := range lines {
		if strings.HasPrefix(l, "panic:") {
			return l
		}
	}
	return lines[len(lines)-1]
}
