package processes

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// newNamespaces returns a town of n members, each with a network namespace and an
// address for itself, connected by a bridge in a further namespace. The test is
// skipped if the host offers no namespaces to this user. The end of the test removes
// the namespaces.
func newNamespaces(t *testing.T, n int, change func(i int, s *settings)) *town {
	t.Helper()
	hub := fmt.Sprintf("wm%d-hub", os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", hub).CombinedOutput(); err != nil {
		t.Skipf("no network namespaces: %v %s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", hub).Run() })
	run := func(format string, args ...any) {
		t.Helper()
		line := strings.Fields(fmt.Sprintf(format, args...))
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", line, err, out)
		}
	}
	run("ip -n %s link add br0 type bridge", hub)
	run("ip -n %s link set br0 up", hub)
	w := newTown(t, n, change)
	for i := range n {
		ns := w.namespace(i)
		run("ip netns add %s", ns)
		t.Cleanup(func() { exec.Command("ip", "netns", "del", ns).Run() })
		run("ip -n %s link add port%d type veth peer name eth0 netns %s", hub, i, ns)
		run("ip -n %s link set port%d master br0 up", hub, i)
		run("ip -n %s link set lo up", ns)
		run("ip -n %s link set eth0 address 02:00:00:00:00:%02x up", ns, i+1)
		run("ip -n %s address add 10.77.0.%d/24 dev eth0", ns, i+1)
		w.addrs[i] = fmt.Sprintf("10.77.0.%d:7000", i+1)
	}
	w.wrap = func(i int) []string { return []string{"ip", "netns", "exec", w.namespace(i)} }
	return w
}

func (w *town) namespace(i int) string { return fmt.Sprintf("wm%d-%d", os.Getpid(), i) }

// cut silently drops everything that member from sends to member to: the sender
// takes a link address without a host for the receiver's.
func (w *town) cut(from, to int) {
	w.t.Helper()
	out, err := exec.Command("ip", "-n", w.namespace(from), "neigh", "replace", fmt.Sprintf("10.77.0.%d", to+1),
		"lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent").CombinedOutput()
	if err != nil {
		w.t.Fatalf("cut: %v %s", err, out)
	}
}

// heal undoes cut.
func (w *town) heal(from, to int) {
	w.t.Helper()
	out, err := exec.Command("ip", "-n", w.namespace(from), "neigh", "del", fmt.Sprintf("10.77.0.%d", to+1), "dev", "eth0").CombinedOutput()
	if err != nil {
		w.t.Fatalf("heal: %v %s", err, out)
	}
}

// Nothing that one member sends reaches the leader, while the leader's packets and all
// other ways work. The member is granted locks all the same.
func TestAOneWayCutToTheLeaderCostsTheMemberNoService(t *testing.T) {
	t.Parallel()
	w := newNamespaces(t, 4, nil)
	all := w.startAll()
	leader := w.leader(all)
	cut := all[(leader.i+1)%4]
	cut.acquire("before", patience)
	w.cut(cut.i, leader.i)
	began := time.Now()
	cut.acquire("k", patience)
	t.Logf("granted %v after the cut", time.Since(began))
	others := all[(leader.i+2)%4]
	others.acquire("l", patience)
	w.heal(cut.i, leader.i)
	cut.acquire("m", patience)
}
