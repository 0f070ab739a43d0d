package consensus

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/judge"
	"github.com/wardmote/wardmote/internal/timing"
)

// A doubt is told once the sender has been in doubt for timing.Doubted without a
// break, whatever terms it claims; a confirmation or a pause begins anew.
func TestOnlyALastingDoubtIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known atomic.Bool
		a := &admission{ask: func(context.Context, judge.Doubt) bool { return known.Load() }, inquiries: make(map[string]*inquiry)}
		a.ctx, a.stop = context.WithCancel(t.Context())
		defer a.wait()
		defer a.stop()
		term := uint64(3)
		doubted := func(d time.Duration) (lasts bool) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(timing.MostFollows) {
				term++ // a liar's terms rise
				doubt := judge.Doubt{Sender: "b#1", Term: term}
				a.settle(doubt)
				lasts = a.lasts(doubt)
			}
			return lasts
		}
		if doubted(timing.Doubted - timing.MostFollows) {
			t.Error("a young doubt is told")
		}
		if !doubted(2 * timing.Doubted) {
			t.Error("a doubt that lasts is not told")
		}
		known.Store(true)
		a.settle(judge.Doubt{Sender: "b#1", Term: term + 1})
		known.Store(false)
		if doubted(timing.Doubted / 2) {
			t.Error("a doubt after a confirmation is told at once")
		}
		doubted(2 * timing.Doubted)
		time.Sleep(time.Minute)
		if doubted(timing.Doubted / 2) {
			t.Error("a doubt after a pause is told at once")
		}
	})
}
