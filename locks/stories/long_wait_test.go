package stories

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// A wait lasts longer than any single call to the cluster may take. The lease is
// 2 s.
//
//	 0 s  the key is held
//	 0 s  three wait: on a follower, on the leader, and on a thin member
//	24 s  all three still wait
//	25 s  the holder releases, and all three are served in order
//
// No contrast: no lock fails in this story.
func TestLongWaitsEndInAGrantOnEveryMember(t *testing.T) {
	const lease = 2 * time.Second
	const long = 25 * time.Second
	play(t, 4, lease, func(s *stage) {
		t := s.t
		holder := s.acquire(s.named(s.leader, "holder"), "k")
		var wg sync.WaitGroup
		var order []int // written under the lock
		for turn, on := range []int{s.others[0], s.leader, 3} {
			c := s.member(on, fmt.Sprint("waiter ", turn))
			s.at(time.Duration(turn+1) * 100 * time.Millisecond)
			wg.Go(func() {
				err := c.Do(s.ctx, "k", func(context.Context, *locks.Lock) error {
					s.near("the next is granted the key", s.now(), long)
					order = append(order, turn)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		s.at(long - time.Second)
		status, err := s.cluster.Client(0).Inspect(s.ctx, "k")
		if err != nil || status.Queue != 3 {
			t.Errorf("%d wait: %v", status.Queue, err)
		}
		s.at(long)
		s.live("the holder", holder)
		if err := holder.Release(s.ctx); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if !slices.Equal(order, []int{0, 1, 2}) {
			t.Errorf("served in the order %v", order)
		}
	})
}

// A candidate gives up while its member cannot reach the cluster. The lease is 10 s.
//
//	1 s  a candidate waits behind the holder, and its member is cut off
//	2 s  the candidate gives up
//	4 s  its member is connected again
//	6 s  another candidate waits
//	8 s  the holder releases, and the other candidate is elected: the first one has
//	     left nothing in the queue
//
// No contrast: no lock fails in this story.
func TestWaitGivenUpBehindACutDelaysNobody(t *testing.T) {
	play(t, 3, 10*time.Second, func(s *stage) {
		t := s.t
		holder := s.acquire(s.named(s.leader, "holder"), "k")
		gone, next := s.member(s.others[0], "gone"), s.member(s.others[1], "next")
		lead := func(when time.Duration) locks.Work {
			return func(context.Context, *locks.Lock) error {
				s.between("a candidate is elected", s.now(), when, when+time.Second)
				return locks.Final(errors.New("enough"))
			}
		}
		if err := gone.Elect(s.ctx, "warm up", lead(0)); err == nil { // gone has a session now
			t.Error("elected for ever")
		}
		s.at(time.Second)
		ctx, giveUp := context.WithCancel(s.ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			err := gone.Elect(ctx, "k", func(context.Context, *locks.Lock) error {
				t.Error("elected after it gave up")
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		time.Sleep(3 * time.Millisecond) // the request is in the queue, or under way
		s.Isolate(s.others[0])
		s.at(2 * time.Second)
		giveUp()
		wg.Wait()
		s.at(4 * time.Second)
		s.Heal()
		s.at(6 * time.Second)
		wg.Go(func() {
			if err := next.Elect(s.ctx, "k", lead(8*time.Second)); err == nil {
				t.Error("elected for ever")
			}
		})
		s.at(8 * time.Second)
		if err := holder.Release(s.ctx); err != nil {
			t.Error(err)
		}
		wg.Wait()
		status, err := next.Inspect(s.ctx, "k")
		if err != nil || status.Held() || status.Queue != 0 {
			t.Errorf("left: %+v, %v", status, err)
		}
	})
}
