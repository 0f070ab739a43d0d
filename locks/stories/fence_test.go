package stories

import (
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

// A protected resource checks the token of each write. The lease is 3 s.
//
//	0 s  A is granted token 1 and falls asleep
//	4 s  B is granted token 2 and writes
//	5 s  A wakes up and writes: the resource has seen token 2 and refuses token 1
//
// Contrasts: the same cluster with a resource without checks, and a lock
// without tokens. In both A overwrites B's work.
func TestFenceRefusesTokenOneAfterTwo(t *testing.T) {
	const lease = 3 * time.Second
	const kept = "A's late write does not replace B's"
	story := func(unfenced bool) timeline {
		return func(s *stage) {
			file := resource{unfenced: unfenced}
			var last string
			write := func(name string) func() { return func() { last = name } }

			one := s.acquire(s.named(s.others[0], "A"), "k")
			s.Freeze(s.others[0])

			s.at(4 * time.Second)
			two := s.acquire(s.named(s.others[1], "B"), "k")
			s.near("B is granted the key, which is free,", s.now(), 4*time.Second)
			for range 2 { // one grant, many writes
				s.ok("B writes", file.write(two, write("B")))
			}

			s.at(5 * time.Second)
			s.Thaw(s.others[0])
			err := file.write(one, write("A")) // A does not know that it slept
			s.check(kept, last == "B", "the file is %s's", last)
			if !s.contrast {
				s.check("tokens follow each other", two.Token() == one.Token()+1, "tokens %d and %d", one.Token(), two.Token())
				s.stale("A is told so", err, one.Token(), two.Token())
			}
		}
	}
	play(t, 3, lease, story(false))
	contrastOnCluster(t, "a resource that does not check", kept, 3, lease, story(true))
	contrast(t, "no tokens", kept, newTable(lease, 100*time.Millisecond), story(false))
}

// The same timeline with a resource for a single access under each grant: B's second
// write is refused, and A's late write as well.
//
// Contrast: the same resource, written through a guard that allows many accesses.
func TestFenceAllowsOneAccessForEachGrant(t *testing.T) {
	const lease = 3 * time.Second
	const once = "B writes once"
	story := func(access func(*fence.Guard, fence.Token, func() error) error) timeline {
		return func(s *stage) {
			var guard fence.Guard
			writes := make(map[string]int)
			write := func(name string) func() error {
				return func() error { writes[name]++; return nil }
			}
			one := s.acquire(s.named(s.others[0], "A"), "k")
			s.Freeze(s.others[0])
			s.at(4 * time.Second)
			two := s.acquire(s.named(s.others[1], "B"), "k")
			s.ok("B writes", access(&guard, two.Token(), write("B")))
			err := access(&guard, two.Token(), write("B"))
			s.check(once, writes["B"] == 1, "B wrote %d times", writes["B"])
			s.stale("B's second write is refused", err, two.Token(), two.Token())
			s.at(5 * time.Second)
			s.Thaw(s.others[0])
			s.stale("A's write is refused", access(&guard, one.Token(), write("A")), one.Token(), two.Token())
			s.check("A writes nothing", writes["A"] == 0, "A wrote %d times", writes["A"])
			s.lost("A has lost the lock", one, locks.ProcessPaused)
		}
	}
	play(t, 3, lease, story((*fence.Guard).DoOnce))
	contrastOnCluster(t, "many accesses", once, 3, lease, story((*fence.Guard).Do))
}
