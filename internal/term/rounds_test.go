package term

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// inRounds runs f in a bubble beside rounds that take a millisecond each. Begun counts
// the rounds.
func inRounds(t *testing.T, f func(r *rounds, begun *atomic.Int64)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var begun atomic.Int64
		r := newRounds(func(context.Context) bool {
			begun.Add(1)
			time.Sleep(time.Millisecond)
			return true
		})
		var wg sync.WaitGroup
		wg.Go(func() { r.run(ctx) })
		defer wg.Wait()
		defer cancel()
		f(r, &begun)
	})
}

// Thousands of sessions cost the voters a hundred rounds a second, and every beat gets
// the verdict of a round that began after the beat.
func TestBeatsShareRounds(t *testing.T) {
	inRounds(t, func(r *rounds, begun *atomic.Int64) {
		time.Sleep(time.Minute)
		start := time.Now()
		var answered atomic.Int64
		const beats = 3000 // in a second
		for range beats {
			sent, before := time.Now(), begun.Load()
			r.addBeat(func(ok bool) {
				answered.Add(1)
				if took := time.Since(sent); !ok || took < time.Millisecond || took > timing.BeatsTogether+2*time.Millisecond {
					t.Errorf("a beat is answered with %t after %v", ok, took)
				}
				if begun.Load() == before {
					t.Error("the round began before the beat")
				}
			})
			time.Sleep(time.Second / beats)
		}
		synctest.Wait()
		took, n := time.Since(start), time.Duration(begun.Load())
		if n > took/timing.BeatsTogether+1 || n < took/timing.BeatsTogether/2 {
			t.Errorf("%d rounds for %d beats in %v", n, beats, took)
		}
		time.Sleep(time.Second)
		if answered.Load() != beats {
			t.Errorf("%d of %d beats are answered", answered.Load(), beats)
		}
	})
}

// A lone beat waits for nobody, and no other question waits for beats.
func TestOnlyBeatsWaitForBeats(t *testing.T) {
	inRounds(t, func(r *rounds, begun *atomic.Int64) {
		answers := make(chan time.Duration, 2)
		ask := func(add func(func(bool)), want time.Duration) {
			t.Helper()
			sent := time.Now()
			add(func(bool) { answers <- time.Since(sent) })
			if took := <-answers; took != want {
				t.Errorf("answered after %v, want %v", took, want)
			}
		}
		ask(r.addBeat, time.Millisecond)
		ask(r.addBeat, timing.BeatsTogether) // the round before began a millisecond ago
		ask(r.add, time.Millisecond)
		sent := time.Now()
		r.addBeat(func(bool) { answers <- time.Since(sent) })
		synctest.Wait()
		ask(r.add, time.Millisecond)
		if took := <-answers; took != time.Millisecond || begun.Load() != 4 {
			t.Errorf("a beat beside a question is answered after %v, in round %d", took, begun.Load())
		}
	})
}

// The answers to other questions, which take work, keep no beat waiting; and all of them
// are given before run returns.
func TestNoBeatWaitsForAnswers(t *testing.T) {
	told := 0
	inRounds(t, func(r *rounds, _ *atomic.Int64) {
		for range 100 {
			r.add(func(bool) {
				time.Sleep(time.Second) // the work
				told++
			})
		}
		for range 10 {
			time.Sleep(time.Second)
			sent := time.Now()
			answered := make(chan time.Duration, 1)
			r.addBeat(func(bool) { answered <- time.Since(sent) })
			if took := <-answered; took > time.Millisecond {
				t.Errorf("a beat is answered after %v", took)
			}
		}
	})
	if told != 100 {
		t.Errorf("%d of 100 questions are answered", told)
	}
}
