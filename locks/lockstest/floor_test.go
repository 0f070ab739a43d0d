package lockstest_test

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// Every process and every memory is lost, and the clocks of the next founders are hours
// behind: the protected resource tells the floor, and the next grant's token is above. So
// the resource admits the rightful holder, and refuses a former holder that was paused
// before its claim. Without the floor the resource would refuse the rightful holder, which
// is the control.
func TestTheResourceTellsTheFloorOfTheNextCluster(t *testing.T) {
	for _, floored := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			guard, err := fence.OpenFile(filepath.Join(t.TempDir(), "mark"))
			if err != nil {
				t.Fatal(err)
			}
			defer guard.Close()
			take := func(c *lockstest.Cluster) fence.Token {
				l, err := c.Client(1).Acquire(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Release(t.Context())
				return l.Token()
			}
			config := lockstest.Config(func(i int, cfg *cluster.Config) {
				if floored {
					cfg.Recovery.TokenFloor = guard.Highest
				}
			})

			c := lockstest.New(t, 3, config)
			claimed := take(c)
			if err := guard.Claim(claimed); err != nil {
				t.Fatal(err)
			}
			paused := take(c) // its holder stops before the claim
			for i := range 3 {
				c.Kill(i)
			}

			behind := lockstest.Clocks(func(i int) lockstest.Clock { return lockstest.Clock{Offset: -time.Duration(i+1) * 5 * time.Hour} })
			c = lockstest.New(t, 3, config, behind)
			next := take(c)
			if floored != (next > paused) {
				t.Errorf("with a floor: %t; token %d after %d, of which the resource has seen %d", floored, next, paused, claimed)
			}
			if !floored {
				if err := guard.Claim(next); !errors.Is(err, fence.ErrStale) {
					t.Errorf("the control: %v", err)
				}
				return
			}
			if err := guard.Claim(next); err != nil {
				t.Errorf("the rightful holder: %v", err)
			}
			if err := guard.Claim(paused); !errors.Is(err, fence.ErrStale) {
				t.Errorf("the paused holder: %v", err)
			}
		})
	}
}
