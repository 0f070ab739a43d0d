package cluster

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// Rounds that follow each other at once do not dial a voter that has ended again and again, and
// dial it soon once it is back. A stream that breaks is dialled again at once.
func TestRoundsDialALostVoterNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int64
		var back, cut atomic.Bool
		n := &Node{peers: stream.NewPeers(func(context.Context, member.Process) (net.Conn, error) {
			dials.Add(1)
			if !back.Load() {
				time.Sleep(time.Millisecond) // a majority is there before
				return nil, errors.New("refused")
			}
			near, far := net.Pipe()
			stream.New(far, func(q *stream.Request) {
				if cut.Load() {
					_ = far.Close()
					return
				}
				q.Answer(wire.CodeOK, nil)
			}).Start()
			return near, nil
		})}
		defer n.peers.Stop()
		confirm := func() (yes bool) {
			answer := make(chan bool, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Microsecond) // the end of the round
			defer cancel()
			n.confirmAt(ctx, member.Process{Name: "b", Boot: 1, Addr: "b"}, wire.ConfirmRequest{Term: 1}, func(ok bool) { answer <- ok })
			return <-answer
		}
		for range 1000 {
			if confirm() {
				t.Fatal("confirmed by nobody")
			}
			time.Sleep(time.Millisecond)
		}
		if n := dials.Load(); n < 10 || n > int64(time.Second/timing.LeastBackoff)+1 {
			t.Errorf("%d dials in a second", n)
		}
		back.Store(true)
		time.Sleep(timing.LeastBackoff)
		if !confirm() {
			t.Error("a voter that is back is not asked")
		}
		cut.Store(true)
		if confirm() {
			t.Error("confirmed by a broken stream")
		}
		cut.Store(false)
		if !confirm() {
			t.Error("a broken stream is not dialled again at once")
		}
	})
}
