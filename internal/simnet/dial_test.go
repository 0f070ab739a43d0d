package simnet

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

func TestDialNeedsBothWays(t *testing.T) {
	for _, cut := range [][2]int{{1, 2}, {2, 1}} {
		inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
			sim.Cut(ip(cut[0]), ip(cut[1]))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			start := time.Now()
			c, err := e[1].Dial(ctx, e[2].Addr())
			if c != nil || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Hour {
				t.Errorf("dial over a cut link: %v, %v after %v", c, err, time.Since(start))
			}
			go func() { time.Sleep(time.Minute); sim.Heal() }()
			x, y := pair(t, e[1], e[2])
			closeAll(x, y)
			// And closing the endpoint ends a Dial.
			sim.Cut(ip(cut[0]), ip(cut[1]))
			go func() { time.Sleep(time.Minute); _ = e[1].Close() }()
			if _, err := e[1].Dial(t.Context(), e[2].Addr()); !errors.Is(err, net.ErrClosed) {
				t.Errorf("dial from a closed endpoint: %v", err)
			}
		})
	}
}
