package processes

import (
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/towns"
)

// newNamespaces returns a town of n members, each with a network namespace and an
// address for itself. The test is skipped if the host offers no namespaces to this user.
// The end of the test removes the namespaces.
func newNamespaces(t *testing.T, n int, change func(i int, s *settings)) (*town, *towns.Net) {
	t.Helper()
	net, err := towns.NewNet(n)
	if err != nil {
		t.Skipf("no network namespaces: %v", err)
	}
	t.Cleanup(net.Close)
	w := newTown(t, n, change)
	for i := range n {
		w.addrs[i] = net.Host(i) + ":7000"
	}
	w.wrap = net.Wrap
	return w, net
}

// Nothing that one member sends reaches the leader, while the leader's packets and all
// other ways work. The member is granted locks all the same.
func TestAOneWayCutToTheLeaderCostsTheMemberNoService(t *testing.T) {
	t.Parallel()
	w, net := newNamespaces(t, 4, nil)
	all := w.startAll()
	leader := w.leader(all)
	cut := all[(leader.i+1)%4]
	cut.acquire("before", patience)
	if err := net.Cut(cut.i, leader.i); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	cut.acquire("k", patience)
	t.Logf("granted %v after the cut", time.Since(began))
	others := all[(leader.i+2)%4]
	others.acquire("l", patience)
	if err := net.Heal(cut.i, leader.i); err != nil {
		t.Fatal(err)
	}
	cut.acquire("m", patience)
}
