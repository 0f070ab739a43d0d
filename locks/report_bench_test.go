package locks_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// BenchmarkReports measures reports and pages of 256 keys beside 10,000 keys of the client,
// on a voter and on a thin member. A report takes 0.08 ms of CPU time, whose wall time is up
// to a millisecond on two cores with thirty other processes.
func BenchmarkReports(b *testing.B) {
	one, err := cluster.Start(b.Context(), cluster.Config{Name: "m1", InitialSize: 1, TTL: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	defer one.Stop()
	two, err := cluster.Start(b.Context(), cluster.Config{Name: "m2", Join: []string{one.Addr()}, TTL: time.Second, Voting: cluster.Voting{Thin: true}})
	if err != nil {
		b.Fatal(err)
	}
	defer two.Stop()
	for _, m := range []struct {
		kind string
		node *cluster.Node
	}{{"voter", one}, {"thin", two}} {
		c := locks.New(m.node, locks.Options{})
		for i := range 10_000 {
			if _, err := c.Acquire(b.Context(), fmt.Sprintf("%s-%05d", m.kind, i)); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(m.kind+"/keys", func(b *testing.B) {
			for b.Loop() {
				c.LocalKeys(m.kind, m.kind+"-05000", 0)
			}
		})
		b.Run(m.kind+"/report", func(b *testing.B) {
			for b.Loop() {
				c.Report()
			}
		})
		if err := c.Close(b.Context()); err != nil {
			b.Error(err)
		}
	}
}
