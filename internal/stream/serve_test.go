package stream

import (
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/wardmote/wardmote/internal/wire"
)

// A peer may have thousands of streams and ask nothing: each costs the goroutine that
// serves it. Once the peer has asked, there is the writer too, and Serve joins it.
func TestASilentStreamCostsOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50
		var serving sync.WaitGroup
		var streams []*Stream
		var far []net.Conn
		before := runtime.NumGoroutine()
		for range n {
			near, peer := net.Pipe()
			s := New(near, func(q *Request) { q.Answer(wire.CodeOK, nil) })
			streams, far = append(streams, s), append(far, peer)
			serving.Go(s.Serve)
		}
		synctest.Wait()
		if each := float64(runtime.NumGoroutine()-before) / n; each > 1.5 {
			t.Errorf("a silent stream costs %.1f goroutines", each)
		}
		for _, c := range far[:n/2] {
			asker := New(c, func(*Request) {})
			asker.Start()
			if f, err := asker.Call(t.Context(), wire.Who, nil); err != nil || f.Code != wire.CodeOK {
				t.Errorf("answer %v, %v", f.Code, err)
			}
			asker.Close()
		}
		for _, s := range streams[n/2:] {
			s.Stop(ErrClosed)
		}
		serving.Wait()
		for _, c := range far {
			_ = c.Close()
		}
	})
}
