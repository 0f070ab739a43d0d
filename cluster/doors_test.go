package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// All members stop while new ones start, as in a deployment that replaces every
// process at once. The newcomers take the cluster over, or found the next one; none
// of them may enter a cluster that ends at that moment and takes nobody in.
func TestNewcomersOutliveAClusterThatStopsAsTheyStart(t *testing.T) {
	rounds := testrounds.Rounds(5, 14)
	for i := range rounds {
		late := time.Duration(i) * 650 * time.Millisecond / time.Duration(rounds-1)
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				all := joins(b.addr("n1"), b.addr("n2"), b.addr("n3"), b.addr("m1"), b.addr("m2"), b.addr("m3"))
				first := func(cfg *Config) { cfg.InitialSize = 3 }
				b.form(all)
				stopped := make(chan error, 3)
				for name, n := range b.nodes {
					delete(b.nodes, name)
					go func() { stopped <- n.Stop() }()
				}
				time.Sleep(late)
				for _, name := range []string{"m1", "m2", "m3"} {
					b.start(name, all, first)
					time.Sleep(20 * time.Millisecond)
				}
				for range 3 {
					if err := <-stopped; err != nil {
						t.Error(err)
					}
				}
				for _, n := range b.nodes {
					if err := n.Ready(b.within(40 * time.Second)); err != nil {
						t.Errorf("%s is not ready: %v", n.Name(), err)
					}
				}
			})
		})
	}
}
