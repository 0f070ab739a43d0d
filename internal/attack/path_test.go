package attack

import (
	"bytes"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// path is an attacker that sees and changes every byte on the way to a member.
const path = "path"

// A proxy stands in front of a member. It carries and records every byte and packet
// towards the member, and changes some if told to.
type proxy struct {
	to      string
	streams net.Listener
	packets net.PacketConn
	spoil   atomic.Bool

	mu      sync.Mutex
	said    []*bytes.Buffer // by the dialling side of each stream
	near    []net.Conn      // the streams, the ended ones too
	answers bytes.Buffer    // of the member, all streams together
	sent    [][]byte        // packets to the member
}

const mostSaid = 1 << 20 // recorded bytes of a stream

// newProxy starts a proxy on a free port of the member's host.
func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	p := &proxy{to: to}
	var err error
	if p.streams, err = net.Listen("tcp", hostOf(to)+":0"); err != nil {
		t.Fatal(err)
	}
	if p.packets, err = net.ListenPacket("udp", p.streams.Addr().String()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(p.runPackets)
	wg.Go(func() {
		for {
			c, err := p.streams.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.carry(c) })
		}
	})
	t.Cleanup(func() {
		p.streams.Close()
		p.packets.Close()
		wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.streams.Addr().String() }

func (p *proxy) runPackets() {
	far, err := net.Dial("udp", p.to)
	if err != nil {
		return
	}
	defer far.Close()
	buf := make([]byte, 64<<10)
	for {
		n, _, err := p.packets.ReadFrom(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		if len(p.sent) < 4096 {
			p.sent = append(p.sent, bytes.Clone(buf[:n]))
		}
		p.mu.Unlock()
		p.change(buf[:n])
		_, _ = far.Write(buf[:n])
	}
}

// change spoils a byte, if the proxy is told to.
func (p *proxy) change(b []byte) {
	if p.spoil.Load() && len(b) > 0 {
		b[len(b)/2] ^= 0x20
	}
}

func (p *proxy) carry(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer far.Close()
	said := &bytes.Buffer{}
	p.mu.Lock()
	p.said = append(p.said, said)
	p.near = append(p.near, near)
	p.mu.Unlock()
	copyTo := func(to, from net.Conn, record *bytes.Buffer) {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			p.mu.Lock()
			if record.Len() < mostSaid {
				record.Write(buf[:n])
			}
			p.mu.Unlock()
			p.change(buf[:n])
			if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
				near.Close()
				far.Close()
				return
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { copyTo(near, far, &p.answers) })
	copyTo(far, near, said)
	wg.Wait()
}

// cut ends the streams to the member. New ones are carried.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.near {
		_ = c.Close()
	}
	p.near = nil
}

// records returns everything recorded so far.
func (p *proxy) records() (said [][]byte, answers []byte, packets [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.said {
		said = append(said, bytes.Clone(s.Bytes()))
	}
	return said, bytes.Clone(p.answers.Bytes()), append([][]byte(nil), p.sent...)
}

// readableWords are in everything that members say in the clear. A match is long enough
// that encrypted bytes, tens of megabytes in a run, have it by chance in one run of
// thousands.
var readableWords = regexp.MustCompile(`held-|fresh-|m[0-9]#[0-9a-z]{8}|` + regexp.QuoteMeta(memberURI("")))

func readable(heap []byte) (all []string) {
	for _, word := range readableWords.FindAll(heap, 3) {
		all = append(all, "read "+string(word))
	}
	return all
}

// tryOnPath attacks a town from the path to one of its members, and another town
// instead if a verdict is void.
func tryOnPath(t *testing.T, m mode) []verdict {
	for n := 1; ; n++ {
		if all, void := onPath(t, m, n); !void {
			return all
		}
	}
}

// onPath is try n of tryOnPath. It ends early with a verdict that is void.
func onPath(t *testing.T, m mode, n int) (all []verdict, void bool) {
	w := newTown(t, 3, m)
	defer w.end()
	p := newProxy(t, w.addrs[2])
	w.told[2] = p.addr()
	w.settle()
	for range 3 { // something to read
		if why := w.harm(1); why != "" {
			t.Logf("on the path: %s", why)
		}
	}
	try := func(name string, settle time.Duration, run func() string) {
		if void {
			return
		}
		began := time.Now()
		_, _, terms := w.leads()
		v := verdict{mode: m, who: path, attack: name}
		gain := run()
		time.Sleep(settle)
		v.harm = strings.Trim(gain+"; "+w.harm(terms), "; ")
		v.took = time.Since(began)
		void = w.void(v, began, n)
		all = append(all, v)
		t.Logf("%-8s %-8s %-48s %v (%v)", v.mode, v.who, v.attack, v, v.took.Round(time.Millisecond))
	}
	said, answers, packets := p.records()
	try("reading on the path", 0, func() string {
		heap := append(bytes.Join(said, nil), answers...)
		heap = append(heap, bytes.Join(packets, nil)...)
		return strings.Join(readable(heap), "; ")
	})
	try("probing with what the path shows", 0, func() string {
		a := w.attacker(stranger)
		defer a.close()
		return a.probeBy(protocolOf(w.papers.secret, clusterName))
	})
	try("replayed streams", time.Second, func() (gain string) {
		for _, s := range said {
			c, err := net.Dial("tcp", w.addrs[2])
			if err != nil {
				continue
			}
			_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
			_, _ = c.Write(s)
			answer, _ := io.ReadAll(io.LimitReader(c, 6))
			if bytes.HasPrefix(answer, []byte("wmt1")) && len(answer) == 6 && answer[5] == statusOK {
				gain = "admitted"
			}
			_ = c.Close()
		}
		return gain
	})
	try("replayed packets", time.Second, func() string {
		for range 3 {
			for _, addr := range w.addrs {
				c, err := net.Dial("udp", addr)
				if err != nil {
					continue
				}
				for n, b := range packets {
					_, _ = c.Write(b)
					if n%50 == 49 {
						time.Sleep(5 * time.Millisecond)
					}
				}
				_ = c.Close()
			}
		}
		return ""
	})
	if void {
		return nil, true
	}
	began := time.Now()
	v := spoiled(w, p)
	return append(all, v), w.void(v, began, n)
}

// spoiled changes bytes on the path. The path can cut streams, and so cost a leader
// or a wait; no process ends, no lock is lost and none granted twice.
func spoiled(w *town, p *proxy) verdict {
	v := verdict{mode: w.mode, who: path, attack: "changed bytes on the path"}
	began := time.Now()
	p.spoil.Store(true)
	time.Sleep(ttl / 4)
	p.spoil.Store(false)
	for range 10 {
		_, _, terms := w.leads()
		time.Sleep(time.Second)
		if v.harm = w.harm(terms); v.harm == "" {
			break
		}
	}
	v.took = time.Since(began)
	w.t.Logf("%-8s %-8s %-48s %v (%v)", v.mode, v.who, v.attack, v, v.took.Round(time.Millisecond))
	return v
}
