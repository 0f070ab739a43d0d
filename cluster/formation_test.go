package cluster

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// foundingsTold returns the events about the way into a cluster that a member told.
func (b *bubble) foundingsTold(name string) (out []string) {
	for _, e := range b.told() {
		if _, e, _ := strings.Cut(e, " "); strings.HasPrefix(e, name+": founding") || strings.HasPrefix(e, name+": cluster founded") || strings.HasPrefix(e, name+": granting") {
			out = append(out, strings.TrimPrefix(e, name+": "))
		}
	}
	return out
}

// From the first process until the first grant: events, Health and Ready tell how far
// the founding is, and how long the wait lasts.
func TestTheFoundingTellsItsProgress(t *testing.T) {
	inBubble(t, func(b *bubble) {
		long := ttl(10 * time.Second)
		n1 := b.start("n1", long)
		time.Sleep(3 * time.Second)
		n2 := b.start("n2", long)
		time.Sleep(10 * time.Second)
		const two = "2 of 3 first members seen (n1 at 10.0.0.1:7000, n2 at 10.0.0.2:7000); missing 1; join address 10.0.0.3:7000 does not answer: connection refused"
		ready := func(n *Node) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return n.Ready(ctx)
		}
		if h := n1.Health(context.Background()); h.Reason != "no cluster yet: "+two || h.Next == "" {
			t.Errorf("health: %q, %q", h.Reason, h.Next)
		}
		if err := ready(n1); err == nil || !strings.Contains(err.Error(), two) {
			t.Errorf("ready: %v", err)
		}
		n3 := b.start("n3", long)
		b.eventually("founded", time.Minute, func() bool { return n2.founding.Value() != nil && n2.link.Reached() == nil })
		founded := time.Now()
		time.Sleep(time.Second)
		shown := regexp.MustCompile(`^the cluster is founded, and grants in (\d\.\d) s, since survivors of an earlier cluster may still hold locks$`)
		reason := n2.Health(context.Background()).Reason
		var seconds float64
		if m := shown.FindStringSubmatch(reason); m == nil {
			t.Errorf("health: %q", reason)
		} else if fmt.Sscan(m[1], &seconds); seconds < 8.5 || seconds > 9.2 {
			t.Errorf("health a second after the founding: %q", reason)
		}
		if err := ready(n3); err == nil || !strings.Contains(err.Error(), "and grants in ") {
			t.Errorf("ready: %v", err)
		}
		b.ready(n1, n2, n3)
		if d := time.Since(founded); d > 10500*time.Millisecond {
			t.Errorf("granted after %v", d)
		}
		n4 := b.join("n4", thin, long)
		if h := n4.Health(context.Background()); h.Reason != "" {
			t.Errorf("health of a member of a cluster that grants: %q", h.Reason)
		}
		want := []string{
			"founding: 1 of 3 first members seen (n1 at 10.0.0.1:7000); missing 2; join address 10.0.0.2:7000 does not answer: connection refused; join address 10.0.0.3:7000 does not answer: connection refused",
			"founding: " + two,
			"cluster founded: " + clusterText(n1.founding.Cluster()) + "; grants in 10s, since survivors of an earlier cluster may still hold locks",
			"granting",
		}
		if got := b.foundingsTold("n1"); !slices.Equal(got, want) {
			t.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if got := b.foundingsTold("n4"); !slices.Contains(got, "cluster founded: "+clusterText(n1.founding.Cluster())+", founded by others") || len(got) > 2 || strings.Contains(fmt.Sprint(got), "grants in") {
			t.Errorf("a late member told %q", got)
		}
	})
}

// A member without addresses to join may be found by others; if not, the member says why
// it is alone.
func TestAnEmptyJoinIsTold(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.start("n1", func(c *Config) { c.Join = nil })
		time.Sleep(5 * time.Second)
		if h := n1.Health(context.Background()); !strings.Contains(h.Reason, "1 of 3 first members seen") || !strings.Contains(h.Reason, "Join names no address") {
			t.Errorf("health: %q", h.Reason)
		}
	})
}

// Members that come and go all the time do not flood the log.
func TestTheProgressIsToldRarely(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.start("n1")
		b.start("n2")
		const lasts = 30 * time.Second
		for began := time.Now(); time.Since(began) < lasts; time.Sleep(300 * time.Millisecond) {
			n := b.start("x", thin)
			time.Sleep(200 * time.Millisecond)
			delete(b.nodes, "x")
			if err := n.Stop(); err != nil {
				t.Error(err)
			}
		}
		if got := len(b.foundingsTold("n1")); got < 1 || got > int(lasts/(2*time.Second))+1 {
			t.Errorf("told %d times in %v", got, lasts)
		}
	})
}
