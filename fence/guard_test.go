package fence

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// anyGuard has the methods of every guard. The tests here run on all guards.
type anyGuard interface {
	Do(Token, func() error) error
	DoOnce(Token, func() error) error
	Claim(Token) error
	mustCurrent(testing.TB) Token
}

type memGuard struct{ Guard }

func (g *memGuard) mustCurrent(testing.TB) Token { return g.Current() }

type fileGuard struct{ *File }

func (g fileGuard) mustCurrent(t testing.TB) Token {
	t.Helper()
	m, err := g.Current()
	if err != nil {
		t.Fatalf("Current: %v", err)
	}
	return m
}

func openTest(t testing.TB, path string) *File {
	t.Helper()
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// onEach runs test once for each kind of guard. Each run has a new guard with n
// handles.
func onEach(t *testing.T, n int, test func(t *testing.T, handles []anyGuard)) {
	t.Run("Guard", func(t *testing.T) {
		var g memGuard
		handles := make([]anyGuard, n)
		for i := range handles {
			handles[i] = &g
		}
		test(t, handles)
	})
	t.Run("File", func(t *testing.T) {
		f := fileGuard{openTest(t, filepath.Join(t.TempDir(), "mark"))}
		handles := make([]anyGuard, n)
		for i := range handles {
			handles[i] = f
		}
		test(t, handles)
	})
	t.Run("Files", func(t *testing.T) { // like n processes
		path := filepath.Join(t.TempDir(), "mark")
		handles := make([]anyGuard, n)
		for i := range handles {
			handles[i] = fileGuard{openTest(t, path)}
		}
		test(t, handles)
	})
}

func TestGuardAdmitsOnlyTokensNotBelowTheMark(t *testing.T) {
	const do, once, claim = "do", "once", "claim"
	steps := []struct {
		op    string
		token Token
		want  string // error text
		mark  Token  // afterwards
	}{
		{do, 0, "fence: token 0 is no token", 0},
		{once, 0, "fence: token 0 is no token", 0},
		{claim, 0, "fence: token 0 is no token", 0},
		{do, 5, "", 5},
		{do, 5, "", 5}, // one grant may write many times
		{do, 4, "fence: token 4 is stale: 5 has been seen", 5},
		{once, 5, "fence: token 5 is spent: it has been seen", 5},
		{once, 6, "", 6},
		{once, 6, "fence: token 6 is spent: it has been seen", 6},
		{once, 5, "fence: token 5 is stale: 6 has been seen", 6},
		{do, 6, "", 6},
		{claim, 9, "", 9},
		{claim, 9, "", 9},
		{do, 8, "fence: token 8 is stale: 9 has been seen", 9}, // though 9 never wrote
		{claim, 8, "fence: token 8 is stale: 9 has been seen", 9},
		{once, 9, "fence: token 9 is spent: it has been seen", 9},
		{do, 9, "", 9},
		{do, 0, "fence: token 0 is no token", 9},
		{do, 1<<64 - 1, "", 1<<64 - 1},
		{do, 1<<64 - 2, "fence: token 18446744073709551614 is stale: 18446744073709551615 has been seen", 1<<64 - 1},
	}
	onEach(t, 2, func(t *testing.T, g []anyGuard) {
		for i, s := range steps {
			g, ran := g[i%2], false
			write := func() error { ran = true; return nil }
			var err error
			switch s.op {
			case do:
				err = g.Do(s.token, write)
			case once:
				err = g.DoOnce(s.token, write)
			case claim:
				err = g.Claim(s.token)
			}
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != s.want {
				t.Errorf("step %d, %s %d: error %q, want %q", i, s.op, s.token, text, s.want)
			}
			if want := s.want == "" && s.op != claim; ran != want {
				t.Errorf("step %d, %s %d: write ran: %v, want %v", i, s.op, s.token, ran, want)
			}
			if m := g.mustCurrent(t); m != s.mark {
				t.Errorf("step %d, %s %d: mark %d, want %d", i, s.op, s.token, m, s.mark)
			}
			var stale *StaleError
			switch isStale := errors.As(err, &stale); {
			case isStale != errors.Is(err, ErrStale), isStale != (s.want != "" && s.token != 0):
				t.Errorf("step %d, %s %d: %v matches ErrStale: %v", i, s.op, s.token, err, errors.Is(err, ErrStale))
			case isStale && *stale != StaleError{s.token, s.mark}:
				t.Errorf("step %d, %s %d: facts %+v", i, s.op, s.token, *stale)
			case errors.Is(err, ErrUnfenced) != (s.token == 0):
				t.Errorf("step %d, %s %d: %v matches ErrUnfenced: %v", i, s.op, s.token, err, errors.Is(err, ErrUnfenced))
			}
		}
	})
}

func TestMarkStaysWhenTheWriteFails(t *testing.T) {
	onEach(t, 2, func(t *testing.T, g []anyGuard) {
		failed := errors.New("failed")
		if err := g[0].Do(7, func() error { return failed }); err != failed {
			t.Errorf("Do returned %v, want write's own error", err)
		}
		if err := g[1].Do(6, noWrite); !errors.Is(err, ErrStale) {
			t.Errorf("token 6 after 7 was shown: %v", err)
		}
		if err := g[1].Do(7, noWrite); err != nil {
			t.Errorf("token 7 tries again: %v", err)
		}
		func() {
			defer func() {
				if r := recover(); r != "torn" {
					t.Errorf("recovered %v, want write's own panic", r)
				}
			}()
			g[0].Do(8, func() error { panic("torn") })
		}()
		// The panic has unlocked the guard. Otherwise this call would hang.
		if err := g[1].Do(7, noWrite); !errors.Is(err, ErrStale) {
			t.Errorf("token 7 after 8 was shown: %v", err)
		}
		if err := g[0].DoOnce(8, noWrite); !errors.Is(err, ErrStale) {
			t.Errorf("the spent token 8: %v", err)
		}
		if err := g[0].Do(8, noWrite); err != nil {
			t.Errorf("token 8 tries again: %v", err)
		}
	})
}

// The mark is raised before write runs, so a read inside write needs no Claim.
func TestMarkIsRaisedBeforeTheWrite(t *testing.T) {
	var g Guard
	g.Do(7, func() error {
		if g.mark != 7 {
			t.Errorf("mark is %d while token 7 writes", g.mark)
		}
		return nil
	})
	path := filepath.Join(t.TempDir(), "mark")
	f := openTest(t, path)
	f.Do(7, func() error {
		if m := readRaw(t, path); m != 7 {
			t.Errorf("mark on disk is %d while token 7 writes", m)
		}
		return nil
	})
}

// race runs workers that write through guards, each with its own tokens. It
// returns an error if two writes overlap, if a token falls, or if a token below a
// claimed token writes.
func race(workers, rounds int, do func(worker int, t Token, write func() error) error, claim func(worker int, t Token) error) error {
	var (
		next    atomic.Uint64 // the last token granted by the cluster
		inside  atomic.Int32
		last    atomic.Uint64 // token of the last write
		claimed atomic.Uint64 // highest token whose claim has returned
		wrong   = make([]error, workers)
		start   sync.WaitGroup
		done    sync.WaitGroup
	)
	start.Add(1)
	for w := range workers {
		done.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), uint64(rounds)))
			t := Token(next.Add(1))
			start.Wait()
			for range rounds {
				switch r.IntN(4) {
				case 0: // a new grant without a claim
					t = Token(next.Add(1))
				case 1: // a new grant, used late
					t = Token(next.Add(1))
					runtime.Gosched()
				case 2: // a new grant, claimed now and used in a later round
					t = Token(next.Add(1))
					if claim(w, t) == nil {
						for c := claimed.Load(); c < uint64(t) && !claimed.CompareAndSwap(c, uint64(t)); c = claimed.Load() {
						}
					}
					runtime.Gosched()
					continue
				}
				floor := claimed.Load()
				err := do(w, t, func() error {
					if n := inside.Add(1); n != 1 {
						wrong[w] = fmt.Errorf("%d writes at once", n)
					}
					if was := last.Load(); was > uint64(t) {
						wrong[w] = fmt.Errorf("token %d wrote after token %d", t, was)
					}
					if uint64(t) < floor {
						wrong[w] = fmt.Errorf("token %d wrote after token %d was claimed", t, floor)
					}
					runtime.Gosched()
					last.Store(uint64(t))
					inside.Add(-1)
					return nil
				})
				if err != nil && !errors.Is(err, ErrStale) {
					wrong[w] = err
					return
				}
			}
		})
	}
	start.Done()
	done.Wait()
	return errors.Join(wrong...)
}

func TestWritesNeverOverlapNorGoBack(t *testing.T) {
	rounds := 300
	onEach(t, 8, func(t *testing.T, g []anyGuard) {
		if _, ok := g[0].(fileGuard); ok {
			rounds = 30 // each new token costs a sync
		}
		err := race(len(g), rounds,
			func(w int, t Token, write func() error) error { return g[w].Do(t, write) },
			func(w int, t Token) error { return g[w].Claim(t) })
		if err != nil {
			t.Error(err)
		}
	})
}

// These guards are broken on purpose: if race returns nil for a broken guard, race
// is wrong.
func TestRaceFindsBrokenGuards(t *testing.T) {
	var mu sync.Mutex
	var mark Token
	compare := func(t Token) error {
		mu.Lock()
		defer mu.Unlock()
		if err := admit(t, mark, false); err != nil {
			return err
		}
		mark = t
		return nil
	}
	broken := map[string]func(int, Token, func() error) error{
		"compares, unlocks, writes": func(_ int, t Token, write func() error) error {
			if err := compare(t); err != nil {
				return err
			}
			runtime.Gosched()
			return write()
		},
		"never compares": func(_ int, _ Token, write func() error) error {
			mu.Lock()
			defer mu.Unlock()
			return write()
		},
	}
	claim := func(_ int, t Token) error { return compare(t) }
	for name, do := range broken {
		mark = 0
		if err := race(8, 2000, do, claim); err == nil {
			t.Errorf("a guard that %s passes", name)
		}
	}
	// A guard that forgets claims.
	var g Guard
	if err := race(8, 2000, func(_ int, t Token, write func() error) error { return g.Do(t, write) },
		func(int, Token) error { return nil }); err == nil {
		t.Error("a guard that forgets claims passes")
	}
}

// If several callers show one token at the same time, DoOnce admits one caller.
func TestDoOnceAdmitsOneOfMany(t *testing.T) {
	onEach(t, 8, func(t *testing.T, g []anyGuard) {
		for tok := Token(1); tok <= 20; tok++ {
			var ran atomic.Int32
			var wg sync.WaitGroup
			for _, g := range g {
				wg.Go(func() {
					err := g.DoOnce(tok, func() error { ran.Add(1); return nil })
					if err != nil && !errors.Is(err, ErrStale) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := ran.Load(); n != 1 {
				t.Fatalf("token %d had %d accesses", tok, n)
			}
		}
	})
}
