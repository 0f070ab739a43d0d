package gossip

import (
	"context"
	"sync"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
)

const (
	maxInquiries = 256 // waiting; further ones are left out
	maxDials     = 16  // at once
)

// inquiries dials processes before this member acts on gossip's word about them. Any
// member can spread words about any other:
//
//   - A process called dead may live. Its connections are closed only once a dial to
//     that very process has failed at each of its addresses.
//   - A process has one address for life. Another address is believed once that
//     very process has answered there.
type inquiries struct {
	dial func(ctx context.Context, to member.Process) error
	more wakeup.One

	mu  sync.Mutex
	due map[member.Process]func(answers bool)
}

func newInquiries(dial func(context.Context, member.Process) error) *inquiries {
	return &inquiries{dial: dial, more: wakeup.NewOne(), due: make(map[member.Process]func(bool))}
}

// ask notes a question, and does not block: does the process p answer at its address?
// A later question about the same process and address takes the place of one that
// waits. Told is called on a goroutine of run.
func (q *inquiries) ask(p member.Process, told func(answers bool)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.due[p]; ok || len(q.due) < maxInquiries {
		q.due[p] = told
		q.more.Wake()
	}
}

// run answers the questions until ctx ends, and returns when its goroutines have
// ended.
func (q *inquiries) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, maxDials)
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.more:
		}
		q.mu.Lock()
		due := q.due
		q.due = make(map[member.Process]func(bool))
		q.mu.Unlock()
		for p, told := range due {
			select {
			case <-ctx.Done():
				return
			case places <- struct{}{}:
			}
			wg.Go(func() {
				dialling, cancel := context.WithTimeout(ctx, timing.Dial)
				err := q.dial(dialling, p)
				cancel()
				if ctx.Err() == nil {
					told(err == nil)
				}
				<-places
			})
		}
	}
}
