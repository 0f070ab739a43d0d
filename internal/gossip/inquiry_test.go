package gossip

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// inInquiries runs inquiries in a bubble. Nobody answers at addresses of the host silent.
func inInquiries(t *testing.T, f func(q *inquiries, dialled func() []member.Process)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var dials []member.Process
		q := newInquiries(func(ctx context.Context, to member.Process) (bool, error) {
			mu.Lock()
			dials = append(dials, to)
			mu.Unlock()
			if to.Addr[:6] == "silent" {
				<-ctx.Done()
			}
			return to.Addr[:7] != "claimed", ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { q.run(ctx) })
		f(q, func() []member.Process {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(dials)
		})
		cancel()
		wg.Wait()
	})
}

// left returns the number of turns.
func (q *inquiries) left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.turns)
}

func silent(name string, port int) member.Process {
	return member.Process{Name: name, Boot: 1, Addr: fmt.Sprintf("silent:%d", port)}
}

// However many addresses a liar names for one process, a question about another process is
// asked at once, and so is the question whether the very process has ended.
func TestWordsAboutOneProcessDelayNoOther(t *testing.T) {
	inInquiries(t, func(q *inquiries, dialled func() []member.Process) {
		none := func(bool) {}
		for port := range 1000 {
			q.askAddress(silent("victim", port), "", none)
		}
		time.Sleep(timing.Dial / 2)
		if n := len(dialled()); n != 1 {
			t.Errorf("%d dials at once for one process", n)
		}
		began, answered := time.Now(), make(map[string]time.Duration)
		var mu sync.Mutex
		told := func(name string) func(bool) {
			return func(answers bool) {
				mu.Lock()
				defer mu.Unlock()
				answered[fmt.Sprint(name, answers)] = time.Since(began)
			}
		}
		other := member.Process{Name: "other", Boot: 1, Addr: "lives:001"}
		q.askAddress(other, "lives:000", told("address "))
		q.askEnd(other, told("end "))
		q.askEnd(silent("victim", 0), told("victim "))
		time.Sleep(2 * timing.Dial)
		dialled()
		mu.Lock()
		if answered["address true"] != 0 || answered["end true"] != 0 || answered["victim false"] != timing.Dial || len(answered) != 3 {
			t.Errorf("answered %v", answered)
		}
		mu.Unlock()
		time.Sleep(time.Hour)
		if n := len(dialled()); n > 3+maxAsked+1 || q.left() != 0 {
			t.Errorf("%d dials, and %d turns are left", n, q.left())
		}
	})
}

// The processes take turns, and a flood of them is bounded.
func TestProcessesTakeTurnsToBeDialled(t *testing.T) {
	inInquiries(t, func(q *inquiries, dialled func() []member.Process) {
		for i := range maxDials + 4 {
			for port := range maxAsked {
				q.askAddress(silent(fmt.Sprint("m", i), port), "", func(bool) {})
			}
		}
		time.Sleep(timing.Dial + timing.Dial/2)
		asked := make(map[string]int)
		for _, p := range dialled() {
			asked[p.Name]++
		}
		if len(asked) != maxDials+4 {
			t.Errorf("in the second round %d processes have been dialled: %v", len(asked), asked)
		}
		for i := range 2 * maxTurns {
			q.askAddress(silent(fmt.Sprint("flood", i), 0), "", func(bool) {})
		}
		var end atomic.Bool
		q.askEnd(silent("ends", 0), func(bool) { end.Store(true) })
		if n := q.left(); n != maxTurns+1 {
			t.Errorf("%d turns, want %d", n, maxTurns+1)
		}
		time.Sleep(time.Hour)
		if dialled(); !end.Load() || q.left() != 0 {
			t.Errorf("asked: %t, and %d turns are left", end.Load(), q.left())
		}
	})
}

// Whoever answers under a claimed name takes no address away from a process that answers
// where it was, and does where nobody answers any more.
func TestAClaimedNameMovesNoProcess(t *testing.T) {
	inInquiries(t, func(q *inquiries, dialled func() []member.Process) {
		at := func(addr string) member.Process { return member.Process{Name: "voter", Boot: 1, Addr: addr} }
		for _, tt := range []struct {
			at, before string
			want       bool
		}{
			{"claimed:1", "lives:000", false},
			{"claimed:1", "claimed:2", false},
			{"claimed:1", "silent:0", true},
			{"lives:001", "lives:000", true},
		} {
			var told []bool
			q.askAddress(at(tt.at), tt.before, func(answers bool) { told = append(told, answers) })
			time.Sleep(3 * timing.Dial)
			dialled()
			if !slices.Equal(told, []bool{tt.want}) {
				t.Errorf("%s instead of %s: %v", tt.at, tt.before, told)
			}
		}
		var end []bool
		q.askEnd(at("claimed:1"), func(answers bool) { end = append(end, answers) })
		time.Sleep(3 * timing.Dial)
		dialled()
		if !slices.Equal(end, []bool{true}) {
			t.Errorf("a process that claims its name has ended: %v", end)
		}
	})
}
