package stories

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

// Agents patch the files of one repository, each with the help of a model behind an
// API that allows two calls at a time. The lease is 3 s.
//
//	0.0 s  three agents work, an orchestrator hands out nine patches, and another
//	       orchestrator stands by
//	0.0 s  a fourth agent opens doc.go, and its process is stopped
//	1.5 s  the orchestrator dies
//	9.0 s  the fourth agent wakes up and delivers its result
//
// None of the usual accidents happens: two agents in one file, more than two calls
// at a time, a stale result in doc.go, a repository that stalls without an
// orchestrator, or an order of the dead one.
//
// No contrast: no lock fails in this story. The accidents have stories
// of their own: see zombie_test.go, fence_test.go and crash_without_ttl_test.go.
func TestAgentsPatchOneRepository(t *testing.T) {
	const lease = 3 * time.Second
	play(t, 5, lease, func(s *stage) {
		t := s.t
		const quota = 2
		type file struct {
			guard   fence.Guard
			patches []string // written through guard
		}
		repo := map[string]*file{"main.go": {}, "util.go": {}, "doc.go": {}}
		type task struct{ file, patch string }
		var plan []task
		for _, patch := range []string{"rename", "simplify", "comment"} {
			for _, name := range []string{"main.go", "util.go", "doc.go"} {
				plan = append(plan, task{name, patch})
			}
		}
		ctx, stop := context.WithCancel(s.ctx)
		defer stop()
		var wg sync.WaitGroup
		defer wg.Wait()
		defer stop()

		// The observations for the verdict.
		var mu sync.Mutex
		editors := make(map[string]int)
		calls, most := 0, 0
		var terms []fence.Token
		leading := 0

		// askModel is the API: at most quota calls at a time, of a second each.
		askModel := func(ctx context.Context, c *locks.Client) error {
			return c.Do(ctx, "api", func(context.Context, *locks.Lock) error {
				mu.Lock()
				calls++
				most = max(most, calls)
				if calls > quota {
					t.Errorf("at %v %d agents call the API", s.now(), calls)
				}
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				calls--
				mu.Unlock()
				return nil
			}, locks.Permits(1, quota))
		}
		// apply writes a model's answer. The write may be repeated, and the file
		// refuses the write of an agent that has lost its lock.
		apply := func(token fence.Token, of task) error {
			f := repo[of.file]
			return f.guard.Do(token, func() error {
				if !slices.Contains(f.patches, of.patch) {
					f.patches = append(f.patches, of.patch)
				}
				return nil
			})
		}
		edit := func(ctx context.Context, c *locks.Client, of task) error {
			return c.Do(ctx, "file:"+of.file, func(ctx context.Context, l *locks.Lock) error {
				mu.Lock()
				if editors[of.file]++; editors[of.file] > 1 {
					t.Errorf("at %v %d agents edit %s", s.now(), editors[of.file], of.file)
				}
				mu.Unlock()
				defer func() {
					mu.Lock()
					editors[of.file]--
					mu.Unlock()
				}()
				if err := repo[of.file].guard.Claim(l.Token()); err != nil {
					return err
				}
				if err := askModel(ctx, c); err != nil {
					return err
				}
				return apply(l.Token(), of)
			})
		}

		work := make(chan task)
		isDone := func(ctx context.Context, c *locks.Client, of task) (bool, error) {
			v, err := c.Cell("done:" + of.file + ":" + of.patch).Get(ctx)
			return string(v) == "done", err
		}
		for i := range 3 { // each voter runs an agent
			c := s.member(i, fmt.Sprint("agent ", i))
			wg.Go(func() {
				for {
					select {
					case of := <-work:
						err := edit(ctx, c, of)
						if err == nil {
							err = c.Cell("done:"+of.file+":"+of.patch).Update(ctx, func([]byte) []byte { return []byte("done") })
						}
						if err != nil && ctx.Err() == nil && !errors.Is(err, locks.ErrLost) && !errors.Is(err, locks.ErrSessionLost) {
							t.Errorf("agent %d: %v", i, err)
						}
					case <-ctx.Done():
						return
					}
				}
			})
		}

		// The orchestrator hands out open tasks until all are done. Its state is in the
		// cluster; the token of its election entitles the holder.
		var orders fence.Guard
		allDone := errors.New("all done")
		dead := make(chan struct{})
		orchestrate := func(c *locks.Client, killed <-chan struct{}) {
			wg.Go(func() {
				err := c.Elect(ctx, "orchestrator", func(ctx context.Context, l *locks.Lock) error {
					mu.Lock()
					terms = append(terms, l.Token())
					if leading++; leading > 1 {
						t.Error("two orchestrators")
					}
					mu.Unlock()
					defer func() {
						mu.Lock()
						leading--
						mu.Unlock()
					}()
					for {
						missing := 0
						for _, of := range plan {
							done, err := isDone(ctx, c, of)
							if err != nil {
								return nil // the term or the session has ended
							}
							if done {
								continue
							}
							missing++
							if err := orders.Claim(l.Token()); err != nil {
								return err
							}
							select {
							case work <- of:
							case <-ctx.Done():
								return nil
							}
						}
						if missing == 0 {
							return locks.Final(allDone)
						}
					}
				})
				select {
				case <-killed:
					return // a dead process says nothing
				default:
				}
				if !errors.Is(err, allDone) && ctx.Err() == nil {
					t.Errorf("orchestrator: %v", err)
				}
				stop()
			})
		}
		orchestrate(s.member(3, "orchestrator"), dead)
		time.Sleep(10 * time.Millisecond)
		orchestrate(s.member(4, "standby"), nil)

		// An agent reads doc.go, and its process is stopped for three leases.
		asleep := s.others[0]
		sleeper := s.named(asleep, "sleeper")
		old := s.acquire(sleeper, "file:doc.go")
		if err := repo["doc.go"].guard.Claim(old.Token()); err != nil {
			t.Error(err)
		}
		s.Freeze(asleep)

		s.at(1500 * time.Millisecond)
		close(dead)
		s.Kill(3)

		s.at(3 * lease)
		s.Thaw(asleep)
		s.lost("the sleeper", old, locks.ProcessPaused)
		if err := apply(old.Token(), task{"doc.go", "stale"}); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the sleeper's result: %v", err)
		}

		select {
		case <-ctx.Done(): // by the orchestrator, when all was done
		case <-time.After(5 * time.Minute):
			t.Error("the agents stall")
		}
		stop()
		wg.Wait()
		for name, f := range repo {
			slices.Sort(f.patches)
			if !slices.Equal(f.patches, []string{"comment", "rename", "simplify"}) {
				t.Errorf("%s has %v", name, f.patches)
			}
		}
		if most != quota {
			t.Errorf("at most %d called the API at a time, want %d", most, quota)
		}
		if len(terms) != 2 || terms[1] <= terms[0] {
			t.Fatalf("terms %v, want two that rise", terms)
		}
		s.stale("the dead orchestrator's order:", orders.Claim(terms[0]), terms[0], terms[1])
	})
}
