package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

func TestReadsWaitForAChange(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		q := replica.Query{Key: "k", Waiters: 10, Also: []string{"k/0", "k/1"}}
		for i, n := range nodes {
			a, err := n.link.Read(b.within(5*time.Second), q)
			if err != nil {
				t.Fatal(err)
			}
			wait := q
			wait.Version = a.Version
			if _, err := n.link.Read(b.within(3*time.Second), wait); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%s: nothing changed, but Read returned %v", n.Name(), err)
			}
			answers := make(chan replica.Answer, 1)
			go func() {
				a, err := n.link.Read(b.within(20*time.Second), wait)
				if err != nil {
					t.Error(err)
				}
				answers <- a
			}()
			time.Sleep(time.Second)
			token, _ := b.hold(nodes[(i+1)%3], byte(i+1), "k/1")
			if a := <-answers; a.Also[1].Token != token {
				t.Errorf("read %+v, want token %d", a, token)
			}
			b.propose(nodes[(i+1)%3], machine.Close{Session: sid(byte(i + 1))})
		}
	})
}

// The largest query fits in a frame, and so does the largest answer: a thin member
// reads as much as a leader.
func TestTheLargestQueryIsAnswered(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		far := b.join("far", thin)
		q := replica.Query{Key: strings.Repeat("k", machine.MaxKey), Waiters: replica.MaxListed, Value: true, Session: sid(1), Seq: 1 << 62}
		for i := range replica.MaxAlso {
			q.Also = append(q.Also, fmt.Sprintf("%0*d", replica.MaxAlsoBytes/replica.MaxAlso, i))
		}
		for _, n := range []*Node{far, b.leader()} {
			if a, err := n.link.Read(b.within(10*time.Second), q); err != nil || len(a.Also) != replica.MaxAlso {
				t.Errorf("%s: %d told, %v", n.Name(), len(a.Also), err)
			}
		}
		q.Also[0] += "0"
		if _, err := far.link.Read(b.within(10*time.Second), q); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("over the limit: %v", err)
		}
		if _, err := far.link.Scan(b.within(time.Second), replica.Scan{Limit: replica.MaxScanned + 1}); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("over the limit: %v", err)
		}
	})
}

// A thin member gives up many reads and scans. The leader keeps none of them
// waiting, and the stream has room for others: a Cancel reaches the leader.
func TestReadsThatWereGivenUpAreCancelled(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.join("n1", alone)
		far := b.join("far", thin)
		b.hold(far, 9, "other")
		stop := b.beat(far, 9)
		list, err := far.link.Scan(b.within(time.Second), replica.Scan{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		// Each read watches the most keys allowed: after 64 pending reads, the
		// leader refuses the next.
		many := make([]string, replica.MaxAlso)
		for i := range many {
			many[i] = "none"
		}
		q := replica.Query{Key: "k", Also: many}
		a, err := far.link.Read(b.within(time.Second), q)
		if err != nil {
			t.Fatal(err)
		}
		q.Version = a.Version
		for range 100 {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			far.link.Read(ctx, q)
			cancel()
		}
		for range 100 {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			far.link.Scan(ctx, replica.Scan{Limit: 1, Since: list.Version})
			cancel()
		}
		// A read that waits is answered at once. A refused read would be tried
		// again after half a second.
		other := replica.Query{Key: "watched", Also: many}
		if a, err = far.link.Read(b.within(time.Second), other); err != nil {
			t.Fatal(err)
		}
		other.Version = a.Version
		answered := make(chan time.Time, 1)
		go func() {
			if _, err := far.link.Read(b.within(10*time.Second), other); err != nil {
				t.Errorf("a read after many: %v", err)
			}
			answered <- time.Now()
		}()
		time.Sleep(3 * time.Second)
		b.acquire(far, 9, 2, "watched")
		granted := time.Now()
		if took := (<-answered).Sub(granted); took > 10*time.Millisecond {
			t.Errorf("a change was told after %v", took)
		}
		if err := stop(); err != nil {
			t.Errorf("beat: %v", err)
		}
	})
}
