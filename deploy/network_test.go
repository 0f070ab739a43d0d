//go:build linux

package deploy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// network is a bridge in a namespace, the hub, with a namespace for each pod. Nothing
// leaves the namespaces.
type network struct {
	hub    string
	server string // the address of the DNS server, in the hub
	tasks  chan func()

	mu   sync.Mutex
	next int
}

var networks struct {
	sync.Mutex
	made int
}

// newNetwork makes a network with the address server in the hub. The end of the test
// removes the network.
func newNetwork(t *testing.T, server string) *network {
	t.Helper()
	networks.Lock()
	networks.made++
	n := &network{hub: fmt.Sprintf("wmd%d-%d", os.Getpid(), networks.made), server: server, tasks: make(chan func())}
	networks.Unlock()
	if err := ip("netns add %s", n.hub); err != nil {
		t.Fatalf("the play needs Linux, root and iproute2: %v", err)
	}
	t.Cleanup(func() { _ = ip("netns del %s", n.hub) })
	for _, line := range []string{"link set lo up", "link add br0 type bridge", "address add " + server + "/16 dev br0", "link set br0 up"} {
		if err := ip("-n %s %s", n.hub, line); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func ip(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", line, err, out)
	}
	return nil
}

// place is a namespace with an address.
type place struct {
	n                  *network
	namespace, address string
	port               string // the hub's end of its cable
	resolv             string // the directory of its resolv.conf
}

// place makes a namespace. The address "" stands for a fresh one: no address is given
// twice.
func (n *network) place(address string) (*place, error) {
	n.mu.Lock()
	n.next++
	i := n.next
	n.mu.Unlock()
	if address == "" {
		address = fmt.Sprintf("%s.%d.%d", strings.Join(strings.Split(n.server, ".")[:2], "."), 1+i/200, 1+i%200)
	}
	p := &place{n: n, namespace: fmt.Sprintf("%s-%d", n.hub, i), address: address, port: fmt.Sprint("pod", i)}
	p.resolv = filepath.Join("/etc/netns", p.namespace)
	err := os.MkdirAll(p.resolv, 0o755)
	if err == nil {
		resolv := "search default.svc.cluster.local svc.cluster.local cluster.local\nnameserver " + n.server + "\noptions ndots:5\n"
		err = os.WriteFile(filepath.Join(p.resolv, "resolv.conf"), []byte(resolv), 0o644)
	}
	for _, line := range []string{
		fmt.Sprintf("netns add %s", p.namespace),
		fmt.Sprintf("-n %s link add %s type veth peer name eth0 netns %s", n.hub, p.port, p.namespace),
		fmt.Sprintf("-n %s link set %s master br0 up", n.hub, p.port),
		fmt.Sprintf("-n %s link set lo up", p.namespace),
		fmt.Sprintf("-n %s link set eth0 up", p.namespace),
		fmt.Sprintf("-n %s address add %s/16 dev eth0", p.namespace, address),
	} {
		if err == nil {
			err = ip("%s", line)
		}
	}
	if err != nil {
		p.remove()
	}
	return p, err
}

func (p *place) remove() {
	_ = ip("netns del %s", p.namespace)
	_ = os.RemoveAll(p.resolv)
}

// cut drops all packets to and from the place. The place sees its cable plugged in.
func (p *place) cut() error  { return ip("-n %s link set %s nomaster", p.n.hub, p.port) }
func (p *place) heal() error { return ip("-n %s link set %s master br0", p.n.hub, p.port) }

// inside runs f on a thread in the hub. Sockets that f makes stay there. The threads are
// kept for ever: the end of a thread would end the processes that it has started, by
// setpriv --pdeathsig.
func (n *network) inside(f func() error) error {
	done := make(chan error, 1)
	task := func() { done <- f() }
	select {
	case n.tasks <- task:
	default:
		ready := make(chan error)
		go n.thread(ready)
		if err := <-ready; err != nil {
			return err
		}
		n.tasks <- task
	}
	return <-done
}

func (n *network) thread(ready chan<- error) {
	runtime.LockOSThread()
	fd, err := unix.Open(filepath.Join("/run/netns", n.hub), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Setns(fd, unix.CLONE_NEWNET)
		unix.Close(fd)
	}
	ready <- err
	for task := range n.tasks {
		task()
	}
}

// client returns a client for HTTP that dials from the hub.
func (n *network) client(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			err = n.inside(func() (err error) {
				conn, err = new(net.Dialer).DialContext(ctx, network, addr)
				return err
			})
			return conn, err
		},
	}}
}

// serveDNS answers until the test ends. lookup returns the IPv4 addresses of a name with
// its final dot, and whether the name is known.
func (n *network) serveDNS(t *testing.T, lookup func(name string) ([]string, bool)) {
	t.Helper()
	var conn net.PacketConn
	err := n.inside(func() (err error) {
		conn, err = net.ListenPacket("udp4", n.server+":53")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-served })
	go func() {
		defer close(served)
		b := make([]byte, 4096)
		for {
			size, from, err := conn.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if answer, err := answer(b[:size], lookup); err == nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
}

// answer answers a question as a DNS server of Kubernetes does: addresses to A, and
// nothing to AAAA.
func answer(question []byte, lookup func(string) ([]string, bool)) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) != 1 {
		return nil, fmt.Errorf("no question: %w", err)
	}
	q := m.Questions[0]
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired}
	m.Additionals = nil
	addrs, known := lookup(q.Name.String())
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, addr := range addrs {
		if q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 5},
				Body:   &dnsmessage.AResource{A: [4]byte(net.ParseIP(addr).To4())},
			})
		}
	}
	return m.Pack()
}
