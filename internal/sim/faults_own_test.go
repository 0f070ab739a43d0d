package sim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/transport"
)

// A site that was slow and then met another fault is fast again once the network is mended.
func TestMendingEndsSlowness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, mixed(1, 10*time.Second))
		var ends []transport.Endpoint
		for _, s := range w.sites[:2] {
			e, err := simnet.HostOf[transport.Endpoint](w.net, s.ip).Listen(s.ip + ":7000")
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			ends = append(ends, e)
		}
		w.slow(w.sites[0], 0, time.Second)
		w.isolate(w.sites[0])
		w.mendNet()
		began := time.Now()
		conn, err := ends[0].Dial(context.Background(), ends[1].Addr())
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if d := time.Since(began); d > 10*time.Millisecond {
			t.Errorf("a dial takes %v", d)
		}
	})
}
