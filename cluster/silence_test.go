package cluster

import (
	"context"
	"testing"
	"time"
)

// A member cut off holds a lock with a long TTL. The only voter left started after
// the loss and was told nothing; its log knows the bound.
func TestTheSilenceCoversTheBoundInTheLog(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		b.form(inDir(dir))
		n4 := b.join("n4", thin, ttl(20*time.Second), inDir(dir))
		b.eventually("the bound has risen", time.Minute, func() bool { return b.leader().currentTerm().Bound() == 20_000 })
		b.hold(n4, 1, "k")
		b.net.Isolate(b.host("n4"))
		for _, name := range []string{"n1", "n2", "n3"} {
			b.crash(name)
		}
		n1 := b.start("n1", inDir(dir))
		if err := n1.Recover(b.within(time.Minute), RecoverOptions{Gone: []string{"n2", "n3"}}); err != nil {
			t.Fatal(err)
		}
		b.eventually("n1 leads", time.Minute, func() bool { return n1.currentTerm() != nil })
		time.Sleep(19 * time.Second)
		if n1.currentTerm().Lifted() {
			t.Error("the successor grants while n4 trusts its lock")
		}
		b.ready(n1)
	})
}

// The bound has fallen since the session was opened, and the voter joined after that.
func TestTheSilenceCoversTheSessionsOfTheTable(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		n4 := b.join("n4", thin, ttl(40*time.Second))
		b.eventually("the bound has risen", time.Minute, func() bool { return b.leader().currentTerm().Bound() == 40_000 })
		b.hold(n4, 1, "k")
		b.net.Isolate(b.host("n4"))
		b.eventually("the bound has fallen", time.Minute, func() bool { return b.leader().currentTerm().Bound() == 2000 })
		n5 := b.join("n5", thin)
		b.crash(b.followers()[0].Name())
		b.eventually("n5 votes", time.Minute, func() bool {
			r := n5.seat.Current()
			return r != nil && r.Votes() && tableOf(n5).Bound() > 0
		})
		for name := range b.nodes {
			if name != "n4" && name != "n5" {
				b.crash(name)
			}
		}
		b.eventually("n5 has no leader", time.Minute, func() bool { return n5.link.Reached() != nil })
		for range 2 {
			a, err := n5.retire(context.Background(), n5.founding.Cluster())
			if err != nil || a.Refused != "" || a.TTL != 40_000 {
				t.Errorf("retired with %+v, %v", a, err)
			}
		}
	})
}
