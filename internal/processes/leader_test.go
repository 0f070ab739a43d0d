package processes

import (
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// The leader's process is killed: how long until a survivor is granted a lock that
// it asks for at that moment.
func TestTheNextGrantAfterTheLeadersDeath(t *testing.T) {
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable=%t", durable), func(t *testing.T) {
			company(t)
			w := newTown(t, 3, nil)
			if durable {
				w.lasting()
			}
			all := w.startAll()
			w.whole(all)
			var took []time.Duration
			rounds := testrounds.Rounds(1, 50)
			for round := range rounds {
				time.Sleep(500 * time.Millisecond) // the next death finds a settled cluster
				leader := w.leader(all)
				asker := all[(leader.i+1)%3]
				killed := time.Now()
				leader.kill()
				asker.acquire(fmt.Sprint("k", round), time.Minute)
				took = append(took, time.Since(killed))
				if last := took[len(took)-1]; last > 5*time.Second {
					w.broken(killed, "round %d took %v", round, last)
				}
				if round < rounds-1 {
					all[leader.i] = w.start(leader.i)
					w.whole(all)
				}
			}
			t.Log(percentiles(took))
		})
	}
}
