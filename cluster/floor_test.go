package cluster

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// floored gives a member a TokenFloor.
func floored(f func(ctx context.Context) (fence.Token, error)) func(*Config) {
	return func(c *Config) { c.Recovery.TokenFloor = f }
}

// While the resource behind TokenFloor does not answer, nothing is founded and Health says
// why. The report tells that a TokenFloor is set, and nothing of what it asks. The answer
// founds the cluster.
func TestHealthTellsOfATokenFloorThatFails(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var up atomic.Bool
		floor := floored(func(context.Context) (fence.Token, error) {
			if !up.Load() {
				return 0, errors.New("the database is down")
			}
			return 7, nil
		})
		n1 := b.start("n1", floor)
		b.start("n2", floor)
		b.start("n3", floor)
		time.Sleep(30 * time.Second)
		h := n1.Health(b.within(10 * time.Second))
		if n1.founding.Value() != nil || !strings.Contains(h.Reason, "Recovery.TokenFloor fails: the database is down") || h.Next != letFloorAnswer {
			t.Errorf("%+v", h)
		}
		if r := n1.Report(); !r.Config.TokenFloor || !strings.Contains(r.Health.Reason, "Recovery.TokenFloor fails") {
			t.Errorf("%+v", r)
		}
		up.Store(true)
		b.ready(n1)
		if h := n1.Health(b.within(10 * time.Second)); h.Reason != "" {
			t.Errorf("still: %+v", h)
		}
	})
}

// Stop ends the question of a TokenFloor that is under way.
func TestStopEndsTheQuestionForTheTokenFloor(t *testing.T) {
	inBubble(t, func(b *bubble) {
		asked, ended := make(chan struct{}, 100), make(chan error, 100)
		n1 := b.start("n1", alone, floored(func(ctx context.Context) (fence.Token, error) {
			asked <- struct{}{}
			<-ctx.Done()
			ended <- ctx.Err()
			return 0, ctx.Err()
		}))
		<-asked
		delete(b.nodes, "n1")
		began := time.Now()
		if err := n1.Stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Stop took %v", took)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the question ended with %v", err)
		}
	})
}
