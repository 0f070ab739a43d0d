package stories

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// A garbage collector stops a process for 12 s between its read and its write. The
// lease is 10 s. A and B both add to an account.
//
//	 0 s  A is granted the lock, reads the balance, and is stopped
//	 1 s  B asks
//	10 s  B is granted the lock, reads the balance, and writes the sum
//	12 s  A runs on and writes a sum of its own
//
// With a fence the account refuses A's write. Contrasts: the same cluster without a
// fence, and a lock without tokens. Both lose B's update without a word.
func TestCollectorPauseLosesNoUpdate(t *testing.T) {
	const lease, pause = 10 * time.Second, 12 * time.Second
	const a, b = 10, 1
	const kept = "B's update is kept"
	story := func(unfenced bool) timeline {
		return func(s *stage) {
			account := resource{unfenced: unfenced}
			var mu sync.Mutex
			balance := 0
			read := func() int {
				mu.Lock()
				defer mu.Unlock()
				return balance
			}
			update := func(c client, add int, between func()) error {
				l, err := c.Acquire(s.ctx, "account")
				if err != nil {
					return err
				}
				if err := account.open(l); err != nil { // before the first read
					return err
				}
				sum := read() + add
				between()
				return account.write(l, func() {
					mu.Lock()
					defer mu.Unlock()
					balance = sum
				})
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				s.at(time.Second)
				s.ok("B updates the account", update(s.named(s.others[1], "B"), b, func() {
					s.near("B is granted the key", s.now(), lease)
				}))
			})
			err := update(s.named(s.others[0], "A"), a, func() {
				s.Freeze(s.others[0])
				s.at(pause)
				s.Thaw(s.others[0])
			})
			wg.Wait()
			s.check(kept, read() == b || read() == a+b, "the balance is %d", read())
			s.check("A's update is refused, and A is told", read() == b && errors.Is(err, fence.ErrStale), "the balance is %d, %v", read(), err)
		}
	}
	play(t, 3, lease, story(false))
	contrastOnCluster(t, "no fence", kept, 3, lease, story(true))
	contrast(t, "no tokens", kept, newTable(lease, time.Millisecond), story(false))
}
