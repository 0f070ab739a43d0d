package stories

import (
	"context"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// A link is cut for a second, works for a second, and so on, for a quarter of
// a minute, or for one to ten minutes with WARDMOTE_FULL.
//
// A voter that hears from a living leader denies others its vote. A link that
// leaves the leader a majority therefore changes no leader. A leader that is cut
// off from all is replaced, and the next leader is well. A fault that follows the
// leadership deposes a leader at each flap: at most two, as an election may be cut
// short. The fault follows the last leader at the rhythm of the flaps: a fault that waits for
// each new leader, and cuts the leader off before another member hears of the election, leaves no
// cluster a quorum.
//
// Throughout, a client on a healthy member keeps its lock, and at least half of its
// requests are answered within a second.
//
// No contrast: no cluster fails in this story. The last case shows that
// links can depose leaders at all.
func TestFlappingLinkCausesNoElectionStorm(t *testing.T) {
	const lease, flap = 10 * time.Second, time.Second
	short := time.Duration(testrounds.Rounds(16, 60)) * time.Second
	long := time.Duration(testrounds.Rounds(16, 600)) * time.Second
	const few = 20
	for _, test := range []struct {
		name   string
		cut    func(s *stage, last int) // last is the member that led last
		length time.Duration
		least  int // changes of leader
		most   int
	}{
		{"the leader's link to one follower", func(s *stage, _ int) { s.cluster.Partition([]int{s.leader}, []int{s.others[0]}) }, long, 0, 0},
		{"that link, one way", func(s *stage, _ int) { s.cluster.Cut(s.leader, s.others[0]) }, short, 0, 0},
		{"that link, the other way", func(s *stage, _ int) { s.cluster.Cut(s.others[0], s.leader) }, short, 0, 0},
		{"all links of a follower", func(s *stage, _ int) { s.Isolate(s.others[0]) }, short, 0, 0},
		{"all links of the leader", func(s *stage, _ int) { s.Isolate(s.leader) }, short, 0, few},
		{"all links of the member that leads", func(s *stage, last int) { s.Isolate(last) }, long, 2, 2 * int(long/(2*flap))},
	} {
		t.Run(test.name, func(t *testing.T) {
			var led leaders
			play(t, 4, lease, func(s *stage) {
				healthy := s.named(3, "healthy") // on a thin member, which is well
				l := s.acquire(healthy, "k")
				before, _, last := led.told(s)
				lost, served, flaps := 0, 0, 0
				for ; s.now() < test.length; flaps++ {
					test.cut(s, s.numberOf(last))
					time.Sleep(flap)
					s.Heal()
					pause := time.After(flap)
					ctx, cancel := context.WithTimeout(s.ctx, flap)
					if err := do(ctx, healthy, "other", func() {}); err == nil {
						served++
					}
					cancel()
					<-pause
					if l.Err() != nil {
						lost++
						l = s.acquire(healthy, "k")
					}
					_, _, last = led.told(s)
				}
				changes, _, _ := led.told(s)
				changes -= before
				s.t.Logf("%d flaps, %d changes of leader, %d requests served within a second", flaps, changes, served)
				s.check("changes of leader are bounded", changes >= test.least && changes <= test.most, "%d changes, want %d to %d", changes, test.least, test.most)
				s.check("a healthy holder keeps its lock", lost == 0, "lost %d times", lost)
				s.check("a healthy client is served", served >= flaps/2, "%d of %d requests", served, flaps)
				s.heldBy("another member says so", s.named(s.others[1], "B"), "k", "healthy", l)
			}, led.option())
		})
	}
}

// numberOf returns the number of the member of that name.
func (s *stage) numberOf(name string) int {
	s.t.Helper()
	for i := range 4 {
		if s.cluster.Node(i).Name() == name {
			return i
		}
	}
	s.t.Fatalf("no member %q", name)
	return -1
}
