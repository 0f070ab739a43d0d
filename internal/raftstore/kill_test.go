package raftstore

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// The test binary starts itself as the child processes that the test kills.
const (
	childDir     = "WARDMOTE_STORE_TEST_DIR"     // of the store
	childOptions = "WARDMOTE_STORE_TEST_OPTIONS" // a key of durable
	killsVar     = "WARDMOTE_KILLS"              // kills of each kind of store
)

// killedEntry is the entry at an index in a term, whoever writes it.
func killedEntry(index, term uint64) *raft.Log {
	r := rand.New(rand.NewPCG(index, term))
	data := make([]byte, r.IntN(3000))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return &raft.Log{Index: index, Term: term, Data: data}
}

// child changes the store until it is killed. It prints each change before and after.
func child(dir, options string) error {
	s, err := OpenDurable(dir, durable[options])
	if err != nil {
		return err
	}
	term, _ := s.GetUint64(keyTerm)
	for {
		first, _ := s.FirstIndex()
		last, err := s.LastIndex()
		if err != nil {
			return err
		}
		var change string
		var run func() error
		switch n := rand.IntN(12); {
		case n == 0:
			term++
			change, run = fmt.Sprintf("term %d", term), func() error { return s.SetUint64(keyTerm, term) }
		case n == 1 && last > first+5:
			change, run = fmt.Sprintf("delete %d %d", last-3, last), func() error { return s.DeleteRange(last-3, last) }
		case n == 2 && last > first+500:
			change, run = fmt.Sprintf("delete %d %d", first, last-200), func() error { return s.DeleteRange(first, last-200) }
		default:
			var logs []*raft.Log
			for i := range 1 + rand.Uint64N(20) {
				logs = append(logs, killedEntry(last+1+i, term))
			}
			change = fmt.Sprintf("store %d %d %d", last+1, logs[len(logs)-1].Index, term)
			run = func() error { return s.StoreLogs(logs) }
		}
		if _, err := fmt.Printf("try %s\n", change); err != nil {
			return err
		}
		if err := run(); err != nil {
			return err
		}
		if _, err := fmt.Println("done"); err != nil {
			return err
		}
	}
}

// killedStore is what a store must have.
type killedStore struct {
	terms   map[uint64]uint64 // of the entries, by index
	current uint64
}

func (k *killedStore) do(change string) {
	var from, to, term uint64
	switch {
	case strings.HasPrefix(change, "term"):
		fmt.Sscanf(change, "term %d", &k.current)
	case strings.HasPrefix(change, "delete"):
		fmt.Sscanf(change, "delete %d %d", &from, &to)
		for i := from; i <= to; i++ {
			delete(k.terms, i)
		}
	default:
		fmt.Sscanf(change, "store %d %d %d", &from, &to, &term)
		for i := from; i <= to; i++ {
			k.terms[i] = term
		}
	}
}

// compare returns how the store differs; "": not at all.
func (k *killedStore) compare(s *Store) string {
	term, _ := s.GetUint64(keyTerm)
	first, _ := s.FirstIndex()
	last, _ := s.LastIndex()
	if term != k.current {
		return fmt.Sprintf("term %d, want %d", term, k.current)
	}
	n := 0
	for i := first; i <= last && last > 0; i++ {
		var log raft.Log
		if err := s.GetLog(i, &log); err != nil {
			return err.Error()
		}
		want := killedEntry(i, k.terms[i])
		if log.Term != want.Term || !bytes.Equal(log.Data, want.Data) {
			return fmt.Sprintf("entry %d of term %d with %d bytes, want term %d with %d", i, log.Term, len(log.Data), want.Term, len(want.Data))
		}
		n++
	}
	if n != len(k.terms) {
		return fmt.Sprintf("%d entries from %d to %d, want %d", n, first, last, len(k.terms))
	}
	return ""
}

// A process that writes is killed at random moments. The next one finds each change that
// was acknowledged, and the one under way wholly or not at all. WARDMOTE_KILLS sets the
// number of kills.
func TestAKilledProcessLosesNothingAcknowledged(t *testing.T) {
	t.Parallel() // waits for the disk
	kills := testrounds.Rounds(6, 40)
	if n, err := strconv.Atoi(os.Getenv(killsVar)); err == nil {
		kills = n
	}
	for name, o := range durable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, k, changes, under := t.TempDir(), killedStore{terms: map[uint64]uint64{}}, 0, 0
			for range kills {
				tried := kill(t, dir, name, time.Duration(rand.IntN(60))*time.Millisecond, func(change string) { k.do(change); changes++ })
				s, err := OpenDurable(dir, o)
				must(t, err)
				differs := k.compare(s)
				if differs != "" && tried != "" {
					k.do(tried)
					under++
					if k.compare(s) != "" {
						t.Fatalf("without %q: %s; with it: %s", tried, differs, k.compare(s))
					}
				} else if differs != "" {
					t.Fatal(differs)
				}
				must(t, s.Close())
			}
			t.Logf("%d kills, %d changes, %d done and not acknowledged", kills, changes, under)
		})
	}
}

// kill runs a child, and kills it some time after its first change. did is called with each
// change that was done; tried is the change under way.
func kill(t *testing.T, dir, options string, after time.Duration, did func(change string)) (tried string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childDir+"="+dir, childOptions+"="+options)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewReader(out)
	var timer *time.Timer
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break // a line cut short was never acted on
		}
		must(t, err)
		if timer == nil {
			timer = time.AfterFunc(after, func() { cmd.Process.Kill() })
		}
		if change, ok := strings.CutPrefix(strings.TrimSpace(line), "try "); ok {
			tried = change
		} else {
			did(tried)
			tried = ""
		}
	}
	if timer == nil || timer.Stop() {
		cmd.Process.Kill()
		cmd.Wait()
		t.Fatal("the child ended by itself")
	}
	cmd.Wait()
	return tried
}
