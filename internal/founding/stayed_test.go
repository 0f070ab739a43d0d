package founding

import (
	"os"
	"sync/atomic"
	"testing"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// A member that has left its cluster and cannot store the next one is told to go back: it
// would wait between the two for ever.
func TestAChangeThatCannotBeStoredIsTakenBack(t *testing.T) {
	dir := t.TempDir() + "/a"
	record, err := identity.Open(dir, "a", "test", true)
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	inMoot(t, func(m *moot) {
		var stayed atomic.Int32
		a := m.start("a", record, func(c *Config) { c.InitialSize, c.Stayed = 0, func() { stayed.Add(1) } })
		first := wire.Founding{Cluster: machine.ClusterID{1}, Floor: 1, TTL: 1000, Voters: []string{"x#1"}}
		next := wire.Founding{Cluster: machine.ClusterID{2}, Floor: 2, TTL: 1000, Voters: []string{"x#2"}, Predecessors: []machine.ClusterID{{1}}}
		if err := a.Adopt(first); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := a.Change(m.t.Context(), next); err == nil || a.Cluster() != first.Cluster || stayed.Load() != 1 {
			t.Errorf("%v: in cluster %v, stayed %d times", err, a.Cluster(), stayed.Load())
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := a.Change(m.t.Context(), next); err != nil || a.Cluster() != next.Cluster || stayed.Load() != 1 {
			t.Errorf("%v: in cluster %v, stayed %d times", err, a.Cluster(), stayed.Load())
		}
	})
}
