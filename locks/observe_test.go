package locks

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// A watcher that was cut off hears of the elected client from a leader whose table
// came from a snapshot, and goes on from there.
func TestObserverFollowsALeaderFromASnapshot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		o, m := w.client(t, "o")
		ctx, cancel := context.WithCancel(bg)
		var mu sync.Mutex
		var told []string
		var wg sync.WaitGroup
		wg.Go(func() {
			for e, err := range o.Observe(ctx, "k") {
				if err == nil {
					mu.Lock()
					told = append(told, fmt.Sprintf("%s %d", e.Client, e.Token))
					mu.Unlock()
				}
			}
		})
		last := func() string {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			return told[len(told)-1]
		}
		l := acquire(t, a, "k")
		if got, want := last(), fmt.Sprint("a ", l.Token()); got != want {
			t.Errorf("told %q, want %q", got, want)
		}
		m.Isolate()
		release(t, l)
		l = acquire(t, b, "k")
		w.LeadFromSnapshot()
		w.Lead()
		m.Heal()
		if got, want := last(), fmt.Sprint("b ", l.Token()); got != want {
			t.Errorf("told %q, want %q", got, want)
		}
		w.LeadFromSnapshot()
		release(t, l)
		if got := last(); got != " 0" {
			t.Errorf("told %q of a vacant key", got)
		}
		cancel()
		wg.Wait()
	})
}

func TestObserveYieldsEachLeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, ma := w.client(t, "a")
		b, _ := w.client(t, "b")
		o, _ := w.client(t, "o")
		ctx, cancel := context.WithCancel(bg)
		var told []string
		var last fence.Token
		var wg sync.WaitGroup
		wg.Go(func() {
			for e, err := range o.Observe(ctx, "boss") {
				if err != nil {
					told = append(told, err.Error())
					continue
				}
				if e.Token != 0 && e.Token < last {
					t.Errorf("token %d after %d", e.Token, last)
				}
				last = max(last, e.Token)
				told = append(told, fmt.Sprintf("%s@%s %t %s", e.Client, e.Node, e.Token != 0, e.Meta["at"]))
			}
		})
		synctest.Wait()
		lead := func(c *Client) func() {
			ctx, stop := context.WithCancel(bg)
			var wg sync.WaitGroup
			wg.Go(func() {
				c.Elect(ctx, "boss", func(ctx context.Context, l *Lock) error {
					<-ctx.Done()
					return nil
				}, Meta(map[string]string{"at": "x"}))
			})
			synctest.Wait()
			return func() { stop(); wg.Wait() }
		}
		stopA := lead(a)
		stopB := lead(b) // waits, of no interest to observers
		w.Lead()
		synctest.Wait()
		stopA()
		synctest.Wait()
		stopB()
		synctest.Wait()
		// A delay keeps the key, but its former holder leads no more.
		acquire(t, a, "boss", Delay(time.Hour))
		synctest.Wait()
		ma.Isolate()
		time.Sleep(2 * testTTL)
		if st, err := o.Inspect(bg, "boss"); err != nil || !st.Held() || !st.Holders[0].Delayed {
			t.Errorf("%+v, %v", st, err)
		}
		cancel()
		wg.Wait()
		ma.Heal()
		want := "@ false , a@node-a true x, b@node-b true x, @ false , a@node-a true , @ false , " + `locks: watch "boss": context canceled`
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("told %s\nwant %s", got, want)
		}
	})
}
