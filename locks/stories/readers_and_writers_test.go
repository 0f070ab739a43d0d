package stories

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
)

// A room is guarded by a key. It counts the readers and writers inside, and fails
// the test if a writer is not alone.
type room struct {
	t *testing.T

	mu               sync.Mutex
	readers, writers int
	together         int // most readers at a time
	reads, writes    int
}

func (r *room) enter(write bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if write {
		r.writers++
		r.writes++
	} else {
		r.readers++
		r.reads++
		r.together = max(r.together, r.readers)
	}
	if r.writers > 1 || r.writers == 1 && r.readers > 0 {
		r.t.Errorf("%d readers and %d writers are inside", r.readers, r.writers)
	}
}

func (r *room) leave(write bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if write {
		r.writers--
	} else {
		r.readers--
	}
}

// visit enters the room under a lock, and fails the test if the lock is refused.
func (r *room) visit(s *stage, c *locks.Client, write bool, stay time.Duration) {
	var opts []locks.Option
	if !write {
		opts = append(opts, locks.Shared())
	}
	err := c.Do(s.ctx, "room", func(context.Context, *locks.Lock) error {
		r.enter(write)
		defer r.leave(write)
		time.Sleep(stay)
		return nil
	}, opts...)
	if err != nil {
		r.t.Error(err)
	}
}

// Clients on eight members visit one room. Nine of ten visits are reads, the tenth
// is a write. Readers meet, writers are alone.
//
// No contrast: no lock fails in this story.
func TestEightMembersReadTogetherAndWriteAlone(t *testing.T) {
	const members = 8
	rounds := testrounds.Rounds(20, 80) // tens
	play(t, members, 5*time.Second, func(s *stage) {
		t := s.t
		r := &room{t: t}
		var wg sync.WaitGroup
		for i := range members {
			c := s.cluster.Client(i)
			wg.Go(func() {
				for round := range rounds {
					r.visit(s, c, (round+i)%10 == 0, time.Millisecond)
				}
			})
		}
		wg.Wait()
		if r.writes != members*rounds/10 || r.reads != members*rounds*9/10 || r.together < 2 {
			t.Errorf("%d reads, %d at most together; %d writes", r.reads, r.together, r.writes)
		}
	})
}

// Five clients visit one room at random times, to read or to write.
//
// No contrast: no lock fails in this story.
func TestReadersAndWritersAtRandomNeverMeet(t *testing.T) {
	play(t, 3, 5*time.Second, func(s *stage) {
		t := s.t
		const visitors, rounds = 5, 40
		r := &room{t: t}
		var wg sync.WaitGroup
		for i := range visitors {
			c := s.member(i%3, fmt.Sprint("visitor ", i))
			random := rand.New(rand.NewPCG(uint64(i), 5))
			wg.Go(func() {
				for range rounds {
					time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
					r.visit(s, c, random.IntN(2) == 0, time.Duration(random.IntN(20))*time.Millisecond)
				}
			})
		}
		wg.Wait()
		if r.reads+r.writes != visitors*rounds || r.together < 2 || r.writes == 0 {
			t.Errorf("%d reads, %d at most together; %d writes", r.reads, r.together, r.writes)
		}
	})
}

// Clients on five members write in one room, one after the other. All have done so
// within five seconds.
//
// No contrast: no lock fails in this story.
func TestKeyPassesThroughFiveMembers(t *testing.T) {
	play(t, 5, 10*time.Second, func(s *stage) {
		t := s.t
		r := &room{t: t}
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() { r.visit(s, s.cluster.Client(i), true, 0) })
		}
		wg.Wait()
		s.between("all have held the key", s.now(), 0, 5*time.Second)
		if r.writes != 5 {
			t.Errorf("%d held the key", r.writes)
		}
	})
}
