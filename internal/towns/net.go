package towns

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
)

// nets numbers the networks of this process.
var nets atomic.Int32

// Net is a network of n members, each with a network namespace and an address for each,
// connected by a bridge in a further namespace. Nothing leaves the namespaces. The methods
// may be called from any goroutine.
type Net struct {
	prefix string
	n      int
	end    func() // removes the namespaces

	mu   sync.Mutex
	cut  map[[2]int]int // how many times
	lost map[[2]int]int // percent
	slow map[int]bool
}

// NewNet makes a network, and fails without the right to make namespaces, or without
// iproute2; then nothing is left behind. The caller must Close the Net.
func NewNet(n int) (*Net, error) {
	w := &Net{
		prefix: fmt.Sprintf("wm%d-%d", os.Getpid(), nets.Add(1)), n: n,
		cut: make(map[[2]int]int), lost: make(map[[2]int]int), slow: make(map[int]bool),
	}
	script := "ip netns del " + w.hub() + "\n"
	for i := range n {
		script += "ip netns del " + w.Namespace(i) + "\n"
	}
	var err error
	if w.end, err = AtEnd(script); err != nil {
		return nil, err
	}
	if err = w.build(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Net) build() error {
	lines := []string{"netns add " + w.hub(), "-n " + w.hub() + " link add br0 type bridge", "-n " + w.hub() + " link set br0 up"}
	for i := range w.n {
		ns := w.Namespace(i)
		lines = append(lines,
			"netns add "+ns,
			fmt.Sprintf("-n %s link add port%d type veth peer name eth0 netns %s", w.hub(), i, ns),
			fmt.Sprintf("-n %s link set port%d master br0 up", w.hub(), i),
			fmt.Sprintf("-n %s link set lo up", ns),
			fmt.Sprintf("-n %s link set eth0 address 02:00:00:00:00:%02x up", ns, i+1),
			fmt.Sprintf("-n %s address add %s/24 dev eth0", ns, w.Host(i)))
	}
	for _, line := range lines {
		if err := command("ip", line); err != nil {
			return err
		}
	}
	return nil
}

func command(name, line string) error {
	if out, err := exec.Command(name, strings.Fields(line)...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, line, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Close removes the namespaces. The processes in them should have ended before.
func (w *Net) Close() { w.end() }

func (w *Net) hub() string { return w.prefix + "-hub" }

// Namespace returns the name of the namespace of member i.
func (w *Net) Namespace(i int) string { return fmt.Sprint(w.prefix, "-", i) }

// Host returns the IP address of member i.
func (w *Net) Host(i int) string { return fmt.Sprint("10.77.0.", i+1) }

// Wrap returns the command that executes a program in the namespace of member i.
func (w *Net) Wrap(i int) []string { return []string{"ip", "netns", "exec", w.Namespace(i)} }

// Cut silently drops all packets of member from to member to: the sender takes a link
// address without a host for the receiver's. Each Cut needs a Heal.
func (w *Net) Cut(from, to int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut[[2]int{from, to}]++; w.cut[[2]int{from, to}] > 1 {
		return nil
	}
	return command("ip", fmt.Sprintf("-n %s neigh replace %s lladdr 02:00:00:00:00:99 dev eth0 nud permanent", w.Namespace(from), w.Host(to)))
}

// Heal undoes one Cut. Without a Cut Heal does nothing.
func (w *Net) Heal(from, to int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	way := [2]int{from, to}
	if w.cut[way]--; w.cut[way] > 0 {
		return nil
	}
	if w.cut[way] < 0 {
		w.cut[way] = 0
		return nil
	}
	return command("ip", fmt.Sprintf("-n %s neigh del %s dev eth0", w.Namespace(from), w.Host(to)))
}

// Lose drops a random share of the packets of member from to member to, in percent; 0 drops
// none. Lose fails without nft.
func (w *Net) Lose(from, to, percent int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost[[2]int{from, to}] = percent
	rules := "add table inet storm\ndelete table inet storm\ntable inet storm {\n chain out {\n  type filter hook output priority 0;\n"
	for way, p := range w.lost {
		switch {
		case way[0] != from || p <= 0:
		case p < 100:
			rules += fmt.Sprintf("  ip daddr %s numgen random mod 100 < %d drop\n", w.Host(way[1]), p)
		default:
			rules += fmt.Sprintf("  ip daddr %s drop\n", w.Host(way[1]))
		}
	}
	cmd := exec.Command("ip", "netns", "exec", w.Namespace(from), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules + " }\n}\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}

// Slow bounds the packets of member i to 256 kbit a second, with a queue of 400 ms, until
// Hasten. Slow fails without tc.
func (w *Net) Slow(i int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slow[i] = true
	return command("tc", fmt.Sprintf("-n %s qdisc replace dev eth0 root tbf rate 256kbit burst 4kb latency 400ms", w.Namespace(i)))
}

// Hasten undoes Slow. Without a Slow Hasten does nothing.
func (w *Net) Hasten(i int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.slow[i] {
		return nil
	}
	delete(w.slow, i)
	return command("tc", fmt.Sprintf("-n %s qdisc del dev eth0 root", w.Namespace(i)))
}
