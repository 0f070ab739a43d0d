package stories

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

// The elected leader of a program dies, and a standby takes over. The lease is
// 15 s.
//
//	 0 s  the first candidate is elected; two others stand by
//	32 s  its process dies; its last beat was sent at 30 s
//	45 s  the second candidate is elected
//
// If the process led the cluster as well, the next leader of the cluster gives
// every session a whole lease: the second candidate is elected at 49 s at the
// latest.
//
// No contrast: no lock fails in this story. See holder_death_test.go for a
// lock without a TTL, which has no takeover.
func TestStandbyTakesOverWithinALease(t *testing.T) {
	const lease = 15 * time.Second
	const election = 2 * time.Second
	for _, both := range []bool{false, true} {
		t.Run(fmt.Sprintf("the process leads the cluster as well: %v", both), func(t *testing.T) {
			play(t, 3, lease, func(s *stage) {
				stand := []int{s.others[0], s.leader, s.others[1]}
				if both {
					stand[0], stand[1] = stand[1], stand[0]
				}
				type term struct {
					by    int
					token fence.Token
					at    time.Duration
				}
				var mu sync.Mutex
				var terms []term
				leading := -1
				ctx, stop := context.WithCancel(s.ctx)
				var wg sync.WaitGroup
				for i, on := range stand {
					c := s.member(on, fmt.Sprint("candidate ", i))
					wg.Go(func() {
						err := c.Elect(ctx, "scheduler", func(ctx context.Context, l *locks.Lock) error {
							mu.Lock()
							s.check("only one leads", leading < 0, "%d leads beside %d", i, leading)
							leading = i
							terms = append(terms, term{i, l.Token(), s.now()})
							mu.Unlock()
							<-ctx.Done()
							mu.Lock()
							leading = -1
							mu.Unlock()
							return nil
						})
						s.check("a candidate stands until it is told to stop", i == 0 || errors.Is(err, context.Canceled), "candidate %d: %v", i, err)
					})
					time.Sleep(10 * time.Millisecond)
				}
				var seen []string
				wg.Go(func() {
					for e, err := range s.member(stand[2], "observer").Observe(ctx, "scheduler") {
						if err == nil && e.Token != 0 {
							seen = append(seen, e.Client)
						}
					}
				})

				const crash = 32 * time.Second
				s.at(crash)
				s.Kill(stand[0])
				s.at(crash + lease + election + lease)
				stop()
				wg.Wait()
				if len(terms) != 2 || terms[0].by != 0 || terms[1].by != 1 || terms[1].token <= terms[0].token {
					s.t.Fatalf("terms: %+v", terms)
				}
				s.near("the first candidate is elected", terms[0].at, 0)
				if both {
					s.between("the standby takes over", terms[1].at, crash+lease, crash+lease+election+soon)
				} else {
					s.near("the standby takes over", terms[1].at, crash-2*time.Second+lease)
				}
				s.check("the observer sees both", fmt.Sprint(seen) == "[candidate 0 candidate 1]", "%q", seen)
			})
		})
	}
}
