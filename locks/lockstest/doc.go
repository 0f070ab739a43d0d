// Package lockstest gives tests a whole wardmote cluster: several members in this
// process, on a network in memory, with the faults that locks must survive.
//
// A test of a scheduler, which must move on when its process dies:
//
//	func TestMySchedulerMovesOn(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			c := lockstest.New(t, 3)
//			for i := range 3 {
//				go c.Client(i).Elect(t.Context(), "scheduler", schedule)
//			}
//			first, _ := c.WaitHeld("scheduler")
//			time.Sleep(time.Minute) // takes a moment: time is the bubble's
//			c.KillHolder("scheduler")
//			killed := time.Now()
//			next, _ := c.WaitHeld("scheduler")
//			if took := time.Since(killed); next == first || took > 5*time.Second {
//				t.Errorf("member %d leads after %v", next, took)
//			}
//		})
//	}
//
// A test of a writer, which must not write over the work of its successor after a long stop
// of its process. The account compares tokens, as package fence does:
//
//	func TestMyWriterIsFenced(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			c := lockstest.New(t, 3)
//			account := newAccount()
//			old, err := c.Client(0).Acquire(t.Context(), "account")
//			if err != nil {
//				t.Fatal(err)
//			}
//			c.Freeze(0) // the garbage collector runs just before the write
//			l, err := c.Client(1).Acquire(t.Context(), "account")
//			if err != nil {
//				t.Fatal(err)
//			}
//			if err := account.Write(l.Token(), "from member 1"); err != nil {
//				t.Error(err)
//			}
//			c.Thaw(0)
//			if err := account.Write(old.Token(), "from member 0"); !errors.Is(err, fence.ErrStale) {
//				t.Errorf("the late write returned %v", err)
//			}
//			if err := old.Err(); !errors.Is(err, locks.ErrLost) {
//				t.Errorf("the late writer was told %v", err)
//			}
//		})
//	}
//
// A test of a service, which must go on while the disk of the leader hangs:
//
//	func TestMyServiceSurvivesAHangingDisk(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			c := lockstest.New(t, 3)
//			held, err := c.Client(0).Acquire(t.Context(), "held")
//			if err != nil {
//				t.Fatal(err)
//			}
//			c.HangStore(c.Leader())
//			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
//			defer cancel()
//			if err := c.Client(1).Do(ctx, "job", work); err != nil {
//				t.Errorf("no lock beside a disk that hangs: %v", err)
//			}
//			if err := held.Err(); err != nil {
//				t.Errorf("a lock was lost: %v", err)
//			}
//		})
//	}
//
// # Time
//
// Use the package inside a testing/synctest bubble. There, time is fake: a
// minute of beats, expiries and elections passes in milliseconds. Outside a
// bubble the cluster runs in real time, with all the same faults. In both cases the
// cluster opens no port, so tests may run side by side.
//
// In a bubble time passes only while every goroutine waits for time, a channel, or the
// cluster. A test must not wait for a mutex that is held across a call of the library.
//
// # Faults
//
//	Kill, KillHolder, Restart     kill -9, and the next process of the member
//	Freeze, Thaw                  SIGSTOP and SIGCONT, a long collection of garbage
//	Pause, Resume                 a network that delivers nothing for a while
//	Isolate, Partition, Cut       a network that loses everything, in both directions or in one
//	SetLink                       a slow network, or a lossy one
//	HangStore, FailStore          a disk
//	SetClock                      a clock that is fast, slow, or set wrong
//	Heal, HealStore               the end of faults
//
// Holder names the holder of a key, and WaitHeld waits for the next holder. Leader names
// the leader, and Settle waits until the next Kill costs no quorum.
//
// # Limits
//
// All members share this process, so the code of a killed or frozen member goes on
// running. A killed member is cut off for good, and its clients fail; the calls of a
// frozen member into the library block. See Freeze for the differences to a stopped
// process. The timers of raft and memberlist cannot be replaced: they run by the test's
// clock at all times, frozen or not, and at rate 1. A member with a Dir reads and writes
// real files, which takes no time of a bubble. Code that must survive being stopped in
// the middle of a statement needs a test with real processes; see examples/quickstart.
package lockstest
