package cluster

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/timing"
)

// warnings counts the lines of a log at Warn and above.
type warnings struct {
	slog.Handler
	count *int
}

func (w warnings) Enabled(context.Context, slog.Level) bool { return true }
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler { return w }
func (w warnings) WithGroup(string) slog.Handler            { return w }
func (w warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		*w.count++
	}
	return nil
}

// A stranger takes all places of a member's name and floods the port. The log has a
// few lines, Health tells the flood, and the member reaches its leader in places of
// its own.
func TestAFloodIsToldAndLocksNoMemberOut(t *testing.T) {
	inBubble(t, func(b *bubble) {
		lines := 0
		n1 := b.start("n1", func(c *Config) { c.InitialSize = 1; c.Logger = slog.New(warnings{count: &lines}) })
		if err := n1.Ready(b.within(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n2 := b.start("n2", func(c *Config) { c.InitialSize = 1 })
		if err := n2.Ready(b.within(time.Minute)); err != nil {
			t.Fatal(err)
		}
		p, err := port.Open(port.Config{
			Network: b.networkOf("stranger"), Bind: b.addr("stranger"), Cluster: "test",
			Self: port.Peer{Name: "n2", Boot: 1}, ClusterID: func() [16]byte { return n1.founding.Cluster() },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		// The name is full when the member comes back. The stranger talks on each
		// connection, so none gives way.
		talk := func(c *port.Conn) {
			for b := []byte{0, 15, 255, 255}; ; b = b[:1] { // a large frame that drips
				if _, err := c.Write(b); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		admitted := 0
		for range 500 {
			c, err := p.Dial(b.within(time.Second), n1.Addr(), port.KindMember, port.Peer{})
			if err == nil {
				admitted++
				go talk(c)
			}
		}
		n2.port.Drop("n1", 0)
		time.Sleep(timing.FrameWithin / 2) // before the stranger's frames are late
		if leader, _, ok := n2.link.Leader(); !ok || leader != "n1" {
			t.Error("the member is locked out")
		}
		var flood Refusal
		for _, r := range n1.Health(b.within(time.Minute)).Refused {
			if r.Kind == "flood" {
				flood = r
			}
		}
		if flood.Count < 100 || flood.From == "" || flood.Next == "" || flood.At.IsZero() {
			t.Errorf("%d admitted, told %+v", admitted, flood)
		}
		if lines > 5 {
			t.Errorf("%d lines", lines)
		}
	})
}
