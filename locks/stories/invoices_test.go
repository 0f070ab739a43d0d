package stories

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// Two servers send the nightly invoices, and each night's must be sent once.
//
//	each night  both servers come; the clock of the second is later every night, so
//	            that in the end it comes when all is done
//	last night  the first server dies while it sends: the second does not send, as
//	            nobody knows how many invoices went out
//
// Contrast: servers that only hold a lock while they send, and keep no record. The
// second server sends again once the lock is free.
func TestNightlyInvoicesAreSentOnce(t *testing.T) {
	const nights = 5
	const night = 20 * time.Second // short ones
	const once = "each night's invoices are sent once"
	type sending func(ctx context.Context) ([]byte, error)
	story := func(s *stage) {
		// run sends unless that is done already.
		run := func(ctx context.Context, c client, name string, send sending) (result []byte, err error) {
			if c, ok := c.(member); ok {
				return c.Once(ctx, name, send)
			}
			err = errors.Join(do(ctx, c, "invoices", func() { result, err = send(ctx) }), err)
			return result, err
		}
		servers := []client{s.named(s.others[0], "first"), s.named(s.others[1], "second")}
		var mu sync.Mutex
		sent := make(map[string]int)
		send := func(night string) sending {
			return func(context.Context) ([]byte, error) {
				mu.Lock()
				sent[night]++
				mu.Unlock()
				time.Sleep(time.Second)
				return []byte("sent " + night), nil
			}
		}
		name := func(night int) string { return fmt.Sprint("invoices-2026-03-0", night+1) }
		for i := range nights {
			s.at(time.Duration(i) * night)
			var wg sync.WaitGroup
			for j, server := range servers {
				wg.Go(func() {
					time.Sleep(time.Duration(i*j) * 500 * time.Millisecond)
					got, err := run(s.ctx, server, name(i), send(name(i)))
					s.check("both servers have the result", err == nil && string(got) == "sent "+name(i), "%q, %v", got, err)
				})
			}
			wg.Wait()
			mu.Lock()
			s.check(once, sent[name(i)] == 1, "%s were sent %d times", name(i), sent[name(i)])
			mu.Unlock()
		}
		if s.contrast {
			return
		}

		last := name(nights)
		s.at(nights * night)
		var wg sync.WaitGroup
		wg.Go(func() {
			// The dead are told nothing: the result does not matter.
			_, _ = run(s.ctx, servers[0], last, send(last))
		})
		time.Sleep(500 * time.Millisecond)
		s.Kill(s.others[0])
		_, err := run(s.ctx, servers[1], last, send(last))
		var unfinished *locks.OnceError
		ok := errors.Is(err, locks.ErrUnfinished) && errors.As(err, &unfinished) && unfinished.Unfinished
		s.check("the second server finds the work unfinished", ok, "%v", err)
		wg.Wait()
		s.check("invoices are sent every night", len(sent) == nights+1, "%d of %d nights", len(sent), nights+1)
		for night, n := range sent {
			s.check(once, n == 1, "%s were sent %d times", night, n)
		}
	}
	play(t, 3, 5*time.Second, story)
	contrast(t, "a lock and no record", once, newTable(5*time.Second, 100*time.Millisecond), story)
}
