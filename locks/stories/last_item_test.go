package stories

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"
)

// The last item is left, and two buyers ask at the same moment. Each reads the stock,
// pays for 100 ms, and writes the stock back.
//
// The first buys, the second finds the stock empty.
//
// Contrast: a shop without a lock. Both buyers read a stock of 1, and both buy.
func TestLastItemIsSoldOnce(t *testing.T) {
	const once = "the item is sold once"
	// update reads the stock of a shop, calls change, and writes the result.
	story := func(update func(ctx context.Context, c client, change func([]byte) []byte) error) timeline {
		return func(s *stage) {
			stock := func(b []byte) int {
				n, err := strconv.Atoi(string(b))
				s.ok("the stock is a number", err)
				return n
			}
			s.ok("the stock is set", update(s.ctx, s.named(s.leader, "shop"), func([]byte) []byte { return []byte("1") }))
			var wg sync.WaitGroup
			bought := make([]bool, 2)
			for i, on := range s.others {
				wg.Go(func() {
					s.ok("a buyer is served", update(s.ctx, s.named(on, "buyer"), func(old []byte) []byte {
						n := stock(old)
						time.Sleep(100 * time.Millisecond) // the payment
						if bought[i] = n > 0; bought[i] {
							n--
						}
						return []byte(strconv.Itoa(n))
					}))
				})
			}
			wg.Wait()
			s.check(once, bought[0] != bought[1], "bought: %v", bought)
			s.ok("the stock is read", update(s.ctx, s.named(s.leader, "shop"), func(left []byte) []byte {
				s.check("nothing is left", string(left) == "0", "%q are left", left)
				return left
			}))
		}
	}
	play(t, 3, 5*time.Second, story(func(ctx context.Context, c client, change func([]byte) []byte) error {
		return c.(member).Cell("stock").Update(ctx, change)
	}))
	var mu sync.Mutex
	var stock []byte
	contrast(t, "no lock", once, newTable(0, 0), story(func(_ context.Context, _ client, change func([]byte) []byte) error {
		mu.Lock()
		old := stock
		mu.Unlock()
		next := change(old)
		mu.Lock()
		defer mu.Unlock()
		stock = next
		return nil
	}))
}
