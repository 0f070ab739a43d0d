package stories

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

// A holder falls asleep, and wakes up as a zombie: its lock has expired and is held
// by a successor. The lease is 10 s.
//
//	 0.0 s  A is granted the lock
//	 2.0 s  A falls asleep
//	10.5 s  at the latest B is granted the lock
//	12.0 s  A wakes up, tries to write, and releases
//	30.0 s  B still holds the lock
//
// Contrast: a lock without tokens, released by name. A's write arrives, and A's
// release frees B's lock.
func TestZombieHarmsNoSuccessor(t *testing.T) {
	const lease = 10 * time.Second
	const survives = "B's lock survives A's release"
	const refused = "A's write is refused"
	story := func(s *stage) {
		var file resource
		var last string
		write := func(name string) func() { return func() { last = name } }

		a := s.acquire(s.named(s.others[0], "A"), "k")
		s.ok("A begins", file.open(a))
		s.at(2 * time.Second)
		s.live("A holds the lock when it falls asleep", a)
		ctx := a.Context()
		s.Freeze(s.others[0])

		s.at(3 * time.Second)
		b := s.acquire(s.named(s.others[1], "B"), "k")
		s.between("B is granted the key", s.now(), lease, lease+500*time.Millisecond)
		s.check("A, asleep, is told nothing", ctx.Err() == nil, "%v", context.Cause(ctx))
		s.ok("B begins", file.open(b))
		s.ok("B writes", file.write(b, write("B")))

		s.at(12 * time.Second)
		s.Thaw(s.others[0])
		s.lost("A has lost the lock when it wakes up", a, locks.ProcessPaused)
		err := a.Require(0)
		s.check("A is told if it asks before its write", errors.Is(err, locks.ErrLost), "%v", err)
		// A does not ask.
		err = file.write(a, write("A"))
		s.check(refused, errors.Is(err, fence.ErrStale) && last == "B", "%v, and the file is %s's", err, last)
		if s.cluster != nil {
			s.stale(refused, err, a.Token(), b.Token())
		}
		err = a.Release(s.ctx)
		s.check("A's release is an error", errors.Is(err, locks.ErrLost), "%v", err)
		again := s.named(s.others[0], "A again")
		s.heldBy(survives, again, "k", "B", b)

		s.at(30 * time.Second)
		s.live("B holds the lock long after", b)
		s.heldBy("A's process finds the key held long after", again, "k", "B", b)
	}
	play(t, 3, lease, story)
	naive := newTable(lease, 500*time.Millisecond)
	contrast(t, "release by name", survives, naive, story)
	contrast(t, "no tokens", refused, naive, story)
}
