package consensus

import (
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// A log of few and large entries is compacted by its bytes, on every voter.
func TestLargeEntriesAreCompacted(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		const size, count = 500 << 10, 80
		for range count {
			b.commit(strings.Repeat("x", size))
		}
		for _, c := range b.all {
			r := c.raft()
			b.eventually("compacted", func() bool {
				first, err := r.store.FirstIndex()
				if err != nil {
					t.Fatal(err)
				}
				last, _ := r.store.LastIndex()
				var bytes int
				for i := first; i <= last; i++ {
					var log raft.Log
					if err := r.store.GetLog(i, &log); err == nil {
						bytes += len(log.Data)
					}
				}
				return bytes <= trailingBytes+3*leastLog
			})
		}
	})
}
