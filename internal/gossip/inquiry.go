package gossip

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
)

const (
	maxTurns = 256 // processes with questions that wait, of each kind; further ones are left out
	maxAsked = 8   // addresses asked about in a turn
	maxDials = 16  // at once
)

// inquiries dials processes before this member acts on gossip's word about them. Any
// member can spread words about any other:
//
//   - A process called dead may live. Its connections are closed only once a dial to
//     that very process has failed at each of its addresses.
//   - A process has one address for life. Another address is believed once that
//     very process has answered there. If nothing proves the name that answers, the process
//     must not answer at the address known before.
//
// A dial to an address of nobody takes timing.Dial, and a liar can name any number of them.
// So the processes take turns, and each of them is dialled once at a time for questions of a
// kind: words about one process delay no question about another, nor does a word about an
// address delay a word about an end.
type inquiries struct {
	dial func(ctx context.Context, to member.Process) (proved bool, err error)
	more wakeup.One

	mu    sync.Mutex
	turns map[subject]*turn
	order []subject // of turns, the next first, but for those that are dialled
}

// subject is what a question is about: the end of a process, or its address.
type subject struct {
	name string
	boot uint64
	end  bool
}

// turn has the questions about a subject, at one address each.
type turn struct{ asked []inquiry }

// inquiry is a question: does the process answer at its address?
type inquiry struct {
	at   member.Process
	told func(answers bool)

	before string // the address known before, of a question about an address
}

func newInquiries(dial func(context.Context, member.Process) (proved bool, err error)) *inquiries {
	return &inquiries{dial: dial, more: wakeup.NewOne(), turns: make(map[subject]*turn)}
}

// askEnd notes the question of a process that gossip calls dead: see ask.
func (q *inquiries) askEnd(p member.Process, told func(answers bool)) {
	q.ask(subject{p.Name, p.Boot, true}, inquiry{at: p, told: told})
}

// askAddress notes the question of a process with another address than before: see ask.
func (q *inquiries) askAddress(p member.Process, before string, told func(answers bool)) {
	q.ask(subject{p.Name, p.Boot, false}, inquiry{p, told, before})
}

// ask notes a question, and does not block. A later question about the same process and
// address takes the place of one that waits; in a full turn, of any other one, so that no
// flood keeps an address out for good. Told is called on a goroutine of run.
func (q *inquiries) ask(about subject, asked inquiry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.turns[about]
	if t == nil {
		if q.waiting(about.end) >= maxTurns {
			return
		}
		t = &turn{}
		q.turns[about] = t
		q.order = append(q.order, about)
	}
	at := slices.IndexFunc(t.asked, func(o inquiry) bool { return o.at == asked.at })
	switch {
	case at >= 0:
		t.asked[at] = asked
	case len(t.asked) < maxAsked:
		t.asked = append(t.asked, asked)
	default:
		t.asked[rand.N(maxAsked)] = asked
	}
	q.more.Wake()
}

// waiting returns the number of subjects of a kind. The caller holds q.mu.
func (q *inquiries) waiting(end bool) (n int) {
	for about := range q.turns {
		if about.end == end {
			n++
		}
	}
	return n
}

// next begins the next turn with one of its questions. The caller calls done.
func (q *inquiries) next() (about subject, asked inquiry, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.order) == 0 {
		return about, asked, false
	}
	about = q.order[0]
	q.order = slices.Delete(q.order, 0, 1)
	t := q.turns[about]
	asked = t.asked[0]
	t.asked = slices.Delete(t.asked, 0, 1)
	return about, asked, true
}

// done ends a turn. The subject is the last in line if it has more questions.
func (q *inquiries) done(about subject) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turns[about].asked) == 0 {
		delete(q.turns, about)
		return
	}
	q.order = append(q.order, about)
	q.more.Wake()
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
		case places <- struct{}{}:
		}
		about, asked, ok := q.next()
		if !ok {
			<-places
			select {
			case <-ctx.Done():
				return
			case <-q.more:
			}
			continue
		}
		wg.Go(func() {
			proved, answers := q.answers(ctx, asked.at)
			if before := asked.at; answers && !proved && asked.before != "" {
				before.Addr = asked.before
				_, there := q.answers(ctx, before)
				answers = !there
			}
			if ctx.Err() == nil {
				asked.told(answers)
			}
			q.done(about)
			<-places
		})
	}
}

// answers dials a process.
func (q *inquiries) answers(ctx context.Context, at member.Process) (proved, answers bool) {
	ctx, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	proved, err := q.dial(ctx, at)
	return proved, err == nil
}
