package cluster

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/timing"
)

// A process that says again and again that it is in another cluster holds the first grant
// back. Health names the process at once, and the log once it has lasted; both take the
// word back when the process has gone.
func TestAProcessThatHoldsTheFirstGrantIsTold(t *testing.T) {
	inBubble(t, func(b *bubble) {
		l := newLogbook()
		n := b.start("n1", l.config, alone)
		liar := port.Hello{Kind: port.KindMember, Cluster: n.self.Cluster, ClusterID: [16]byte{9}, From: port.Peer{Name: "liar", Boot: 7}}
		says := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				n.foreign(liar, "192.0.2.1:9", false)
			}
		}
		says(20 * time.Second)
		h := n.Health(b.within(time.Second))
		if h.Granting || !strings.Contains(h.Reason, "liar at an unknown address, by a stream from 192.0.2.1, says that it is in another cluster") || h.Next == "" {
			t.Errorf("Health: granting %v, %q, %q", h.Granting, h.Reason, h.Next)
		}
		if len(h.Conflicts) != 0 {
			t.Errorf("told early: %q", h.Conflicts)
		}
		says(timing.ConflictAtMost)
		h = n.Health(b.within(time.Second))
		if len(h.Conflicts) != 1 || !strings.Contains(h.Conflicts[0], "no lock is granted") {
			t.Errorf("conflicts %q", h.Conflicts)
		}
		if lines := slices.DeleteFunc(l.above(slog.LevelWarn), func(s string) bool { return !strings.Contains(s, "no lock is granted") }); len(lines) == 0 {
			t.Errorf("the log has nothing: %q", l.above(slog.LevelWarn))
		}
		// The liar may claim the address of a member, and cannot stand there.
		for at, want := range map[string]string{"10.0.0.9:7000": "liar at 10.0.0.9:7000, by a stream from 192.0.2.1,", "192.0.2.1:7000": "liar at 192.0.2.1:7000"} {
			n.meetings.met(member.Process{Name: "liar", Boot: 7}, at, true)
			if got := n.heldBy(); got != want {
				t.Errorf("held by %q, want %q", got, want)
			}
		}
		time.Sleep(time.Minute)
		if h = n.Health(b.within(time.Second)); !h.Granting || h.Reason != "" || len(h.Conflicts) != 0 {
			t.Errorf("afterwards: %+v", h)
		}
	})
}
