package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/timing"
)

// maxRefusedDepartures bounds the requests to be replaced that a leader refuses at
// once, in a row: the pauses between so many last about five seconds.
const maxRefusedDepartures = 10

// departure asks the leader to replace this member as a voter, one attempt after the
// other. A leader of another version, or a false leader, refuses each attempt at
// once. So the attempts have growing pauses, and end after maxRefusedDepartures
// refusals: the others replace a member that has stopped, too.
type departure struct {
	ask  func(context.Context) error          // link.Link.Depart
	wait func(context.Context, time.Duration) // ends early with news of the leader

	refused int
	pause   time.Duration
}

// attempt asks once, for timing.DepartPatience at most, and pauses after a failure.
// Over says that no further attempt is needed: the member is replaced, or err is the
// reason to give up.
func (d *departure) attempt(ctx context.Context) (over bool, err error) {
	began := time.Now()
	asking, cancel := context.WithTimeout(ctx, timing.DepartPatience)
	err = d.ask(asking)
	cancel()
	switch {
	case err == nil:
		return true, nil
	case !errors.Is(err, replica.ErrVersion):
		d.refused = 0
	default:
		d.refused++
	}
	if d.refused == maxRefusedDepartures {
		return true, fmt.Errorf("cluster: the leader replaces no member: %w", err)
	}
	if time.Since(began) > timing.Reconcile {
		d.pause = 0 // the attempt was a pause
		return false, nil
	}
	d.pause = min(max(2*d.pause, timing.LeastBackoff), timing.Reconcile)
	d.wait(ctx, d.pause)
	return false, nil
}
