package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The last event about a name is about the name's newest process, or says so.
func TestTheEndOfAnEarlierProcessIsToldAsSuch(t *testing.T) {
	inBubble(t, func(b *bubble) {
		told := make(chan Event, 100)
		n1, n3 := b.start("n1"), b.start("n3")
		n2 := b.start("n2", func(c *Config) {
			c.Events = func(_ context.Context, e Event) {
				if (e.Kind == MemberJoined || e.Kind == MemberLeft) && e.Member.Name == "n3" {
					told <- e
				}
			}
		})
		b.ready(n1, n2, n3)
		earlier := n3.self.Boot
		b.crash("n3")
		time.Sleep(time.Second)
		boot := b.join("n3").self.Boot
		time.Sleep(time.Minute)
		for _, want := range []struct {
			kind EventKind
			boot uint64
			text string
		}{
			{MemberJoined, earlier, "member joined: n3"},
			{MemberJoined, boot, "member joined: n3"},
			{MemberLeft, earlier, "member left: n3: an earlier start of it"},
		} {
			if len(told) == 0 {
				t.Fatalf("not told %q", want.text)
			}
			if e := <-told; e.Kind != want.kind || e.Member.Boot != want.boot || e.String() != want.text {
				t.Errorf("told %v of boot %d, want %q of boot %d", e, e.Member.Boot, want.text, want.boot)
			}
		}
		if len(told) > 0 {
			t.Errorf("told %v", <-told)
		}
	})
}

// While the user's function blocks, the newest events are kept. At the end, the
// queued events are told.
func TestEventsAreToldInOrderAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		blocked := make(chan struct{})
		q := newHookQueue(func(_ context.Context, e Event) {
			<-blocked
			told = append(told, e.Detail)
		})
		ctx, end := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { q.run(ctx); close(ended) }()
		q.put(Event{Detail: "first"})
		synctest.Wait()
		want := []string{"first"}
		for i := range 2 * maxEvents {
			q.put(Event{Detail: fmt.Sprint(i)})
			if i >= maxEvents {
				want = append(want, fmt.Sprint(i))
			}
		}
		end()
		close(blocked)
		<-ended
		if !slices.Equal(told, want) {
			t.Errorf("%d events told, want %d", len(told), len(want))
		}
	})
}

func TestEventsHaveNames(t *testing.T) {
	for kind := MemberJoined; kind <= Founding; kind++ {
		if s := kind.String(); s == "" || s == fmt.Sprintf("EventKind(%d)", kind) {
			t.Errorf("kind %d has no name", kind)
		}
	}
	for _, kind := range []EventKind{0, Founding + 1} {
		if s := kind.String(); s != fmt.Sprintf("EventKind(%d)", kind) {
			t.Errorf("kind %d is called %q", kind, s)
		}
	}
}
