package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

func TestReadsWaitForAChange(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		q := replica.Query{Key: "k/1", Waiters: 10}
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
			if a := <-answers; a.Status.Held != 1 || a.Status.Holders[0].Token != token {
				t.Errorf("read %+v, want token %d", a, token)
			}
			b.propose(nodes[(i+1)%3], machine.Close{Session: sid(byte(i + 1))})
		}
	})
}

// A thin member reads as much as a leader, and neither reads more than a query may ask for.
func TestTheLargestQueryIsAnswered(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		far := b.join("far", thin)
		q := replica.Query{Key: strings.Repeat("k", machine.MaxKey), Group: strings.Repeat("g", machine.MaxKey), Waiters: replica.MaxListed, Value: true, Session: sid(1), Seq: 1 << 62}
		for _, n := range []*Node{far, b.leader()} {
			if _, err := n.link.Read(b.within(10*time.Second), q); err != nil {
				t.Errorf("%s: %v", n.Name(), err)
			}
		}
		q.Waiters++
		if _, err := far.link.Read(b.within(10*time.Second), q); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("over the limit: %v", err)
		}
		if _, err := far.link.Scan(b.within(time.Second), replica.Scan{Limit: replica.MaxScanned + 1}); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("over the limit: %v", err)
		}
	})
}
