package port

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// A connection stands for one cluster on both sides. Open ones are closed when the
// member changes its cluster, and a handshake under way fails.
func TestANewEraClosesEveryConnection(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		var id atomic.Pointer[[16]byte]
		id.Store(&clusterA)
		var between func() // runs when the ID has been read
		mine := w.open(t, 1, func(c *Config) {
			c.ClusterID = func() [16]byte {
				now := *id.Load()
				if between != nil {
					f := between
					between = nil
					f()
				}
				return now
			}
		})
		old := w.open(t, 2, func(c *Config) { c.ClusterID = known(clusterA) })
		next := w.open(t, 3, func(c *Config) { c.ClusterID = known(clusterB) })
		accepted := make(chan *Conn, 4)
		for _, p := range []*Port{mine, old, next} {
			p.Handle(KindMember, func(c *Conn) { accepted <- c })
			p.Serve()
		}
		dialled, err := mine.Dial(t.Context(), old.Addr(), KindMember, Peer{})
		check(t, err)
		far, err := old.Dial(t.Context(), mine.Addr(), KindMember, Peer{})
		check(t, err)
		between = func() {
			id.Store(&clusterB)
			mine.NewEra()
		}
		if c, err := mine.Dial(t.Context(), old.Addr(), KindMember, Peer{}); err == nil {
			_ = c.Close()
			t.Error("a handshake of the former cluster succeeded")
		}
		for _, c := range []net.Conn{dialled, far} {
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.ErrNoProgress) || isTimeout(err) {
				t.Errorf("still open: %v", err)
			}
			_ = c.Close()
		}
		c, err := mine.Dial(t.Context(), next.Addr(), KindMember, Peer{})
		check(t, err)
		_ = c.Close()
		for len(accepted) > 0 {
			_ = (<-accepted).Close()
		}
		closeAll(mine, old, next)
	})
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
