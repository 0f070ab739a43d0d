package gossip

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// keyOf returns a key made of one byte.
func keyOf(b byte) []byte { return slices.Repeat([]byte{b}, 32) }

// counted gives a node a log of refusals.
func counted(c *Config) { c.Self.Refused = refused.New(slog.New(slog.DiscardHandler)) }

// The messages of memberlist, as a member may forge them.
type (
	forgedAlive struct {
		Incarnation uint32
		Node        string
		Addr        []byte
		Port        uint16
		Meta        []byte
		Vsn         []uint8
	}
	forgedDead struct {
		Incarnation uint32
		Node, From  string
	}
)

func aliveAt(p member.Process, incarnation uint32, meta member.Metadata) forgedAlive {
	host, port, _ := member.SplitAddr(p.Addr)
	return forgedAlive{incarnation, gossipName(p), net.ParseIP(host).To4(), uint16(port), wire.Marshal(&meta), []byte{1, 5, 2, 0, 0, 0}}
}

// forge seals a message of a member that holds the keys.
func forge(keys [][]byte, kind byte, message any) []byte {
	r, err := newRing("test", keys)
	if err != nil {
		panic(err)
	}
	b := append([]byte{244, 4}, "test"...)
	return r.seal(nil, append(append(b, kind), wire.Marshal(message)...), r.packets)
}

// Members learn a new key, then put it first, then forget the old one: each step on
// one member after the other. No member is called dead at any time.
func TestKeysChangeOneMemberAfterTheOther(t *testing.T) {
	inTown(t, func(w *town) {
		one, two := keyOf(1), keyOf(2)
		var all []*node
		for i, name := range []string{"a", "b", "c"} {
			all = append(all, w.start(fmt.Sprintf("10.0.0.%d", i+1), name, keyed(one), counted))
		}
		time.Sleep(5 * time.Second)
		for _, keys := range [][][]byte{{one, two}, {two, one}, {two}} {
			for _, n := range all {
				if err := n.SetKeys(keys); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Second)
			}
		}
		for _, n := range all {
			if n.sees() != "a b c" {
				t.Errorf("%s sees %q", n.self.Name, n.sees())
			}
			for _, e := range n.diary.events() {
				if strings.HasPrefix(e, "left") {
					t.Errorf("%s was told %q", n.self.Name, e)
				}
			}
			if c := n.cfg.Self.Refused.Counts(); len(c) > 0 {
				t.Errorf("%s refused %v", n.self.Name, c)
			}
		}
		late := w.start("10.0.0.4", "old", keyed(one))
		time.Sleep(10 * time.Second)
		if late.sees() != "old" || all[0].sees() != "a b c" {
			t.Errorf("under the removed key: %q, and a sees %q", late.sees(), all[0].sees())
		}
	})
}

func TestKeysAreRefusedWhole(t *testing.T) {
	inTown(t, func(w *town) {
		a, plain := w.start("10.0.0.1", "a", keyed(keyOf(1))), w.start("10.0.0.2", "b")
		for _, keys := range [][][]byte{nil, {keyOf(2), []byte("short")}, slices.Repeat([][]byte{keyOf(2)}, maxKeys+1)} {
			if err := a.SetKeys(keys); err == nil {
				t.Errorf("%d keys were taken", len(keys))
			}
		}
		if err := plain.SetKeys([][]byte{keyOf(1)}); err == nil {
			t.Error("plain gossip took a key")
		}
		r := a.transport.ring
		if _, err := r.open(r.seal(nil, []byte("x"), r.packets), r.packets); err != nil {
			t.Error("a refused change took the key away")
		}
		if _, err := r.open(r.seal(nil, []byte("x"), r.packets), r.messages); err == nil {
			t.Error("a packet passes as a message of a stream")
		}
	})
}

// Without keys, and with streams that prove the other side, no byte goes by UDP.
func TestPacketsTravelInStreams(t *testing.T) {
	inTown(t, func(w *town) {
		streams := func(c *Config) { c.InStreams = true; counted(c) }
		a, b, c := w.start("10.0.0.1", "a", streams), w.start("10.0.0.2", "b", streams), w.start("10.0.0.3", "c", streams)
		a.Packet(forge(nil, msgDead, &forgedDead{9, gossipName(b.self.Process()), gossipName(b.self.Process())}), "10.0.0.9:7000", time.Now())
		if n := a.cfg.Self.Refused.Counts()[refused.Packet]; n != 1 {
			t.Errorf("%d packets by UDP were refused", n)
		}
		time.Sleep(2 * time.Minute)
		for _, n := range []*node{a, b, c} {
			if n.sees() != "a b c" {
				t.Errorf("%s sees %q", n.self.Name, n.sees())
			}
			n.port.mu.Lock()
			if n.port.sent > 0 || n.port.dials['p'] == 0 || n.port.dials['p'] > 8 {
				t.Errorf("%s: %d packets by UDP, %v streams", n.self.Name, n.port.sent, n.port.dials)
			}
			n.port.mu.Unlock()
		}
		b.Update(func(m *member.Metadata) { m.Leads = 7 })
		time.Sleep(3 * time.Second)
		if got := a.Alive()[1].Meta.Leads; got != 7 {
			t.Errorf("a sees the term %d of b", got)
		}
		w.halt("10.0.0.3", false)
		time.Sleep(time.Minute)
		if a.sees() != "a b" || b.sees() != "a b" {
			t.Errorf("after a crash a sees %q, b %q", a.sees(), b.sees())
		}
	})
}

// Garbage costs a counter: honest packets pass, and no line is written for each.
func TestGarbageDisplacesNoPacket(t *testing.T) {
	inTown(t, func(w *town) {
		var log bytes.Buffer
		loud := func(c *Config) {
			c.Self.Log = slog.New(slog.NewTextHandler(&log, nil))
			c.Self.Refused = refused.New(c.Self.Log)
		}
		a, b := w.start("10.0.0.1", "a", keyed(keyOf(1)), loud), w.start("10.0.0.2", "b", keyed(keyOf(1)))
		time.Sleep(5 * time.Second)
		garbage := [][]byte{nil, {1}, make([]byte, 1400), slices.Repeat([]byte{1}, 1400),
			forge(nil, msgDead, &forgedDead{9, gossipName(b.self.Process()), "x"}),
			forge([][]byte{keyOf(2)}, msgDead, &forgedDead{9, gossipName(b.self.Process()), "x"})}
		const seconds, each = 20, 5000
		for i := range seconds * each {
			a.Packet(garbage[i%len(garbage)], "10.0.0.9:1", time.Now())
			if len(a.transport.packets) > 8 {
				t.Fatalf("%d packets wait for memberlist", len(a.transport.packets))
			}
			time.Sleep(time.Second / each)
		}
		b.Update(func(m *member.Metadata) { m.Leads = 7 })
		time.Sleep(time.Second)
		if a.sees() != "a b" || a.Alive()[1].Meta.Leads != 7 {
			t.Errorf("a sees %q", a.sees())
		}
		if n := a.cfg.Self.Refused.Counts()[refused.Packet]; n != seconds*each {
			t.Errorf("%d packets were counted, want %d", n, seconds*each)
		}
		if n := strings.Count(log.String(), "\n"); n > 3 {
			t.Errorf("%d lines:\n%.2000s", n, log.String())
		}
	})
}

// A member that calls a living member dead cuts none of its connections. What a dead
// one leaves behind is cut: see TestMembersJoinAndLeave.
func TestAForgedDeathDropsNoConnection(t *testing.T) {
	inTown(t, func(w *town) {
		keys := [][]byte{keyOf(1)}
		a, b := w.start("10.0.0.1", "a", keyed(keys...)), w.start("10.0.0.2", "b", keyed(keys...))
		time.Sleep(5 * time.Second)
		for i := range uint32(30) {
			for _, from := range []string{"ghost.1", gossipName(b.self.Process())} { // dead, and left
				a.Packet(forge(keys, msgDead, &forgedDead{100 * (i + 1), gossipName(b.self.Process()), from}), "10.0.0.2:7000", time.Now())
				time.Sleep(time.Second)
			}
		}
		time.Sleep(10 * time.Second)
		if len(a.port.drops()) > 0 || a.sees() != "a b" {
			t.Errorf("a dropped %q, and sees %q", a.port.drops(), a.sees())
		}
		if !slices.Contains(a.diary.events(), "left b 2") {
			t.Error("the forgery was not believed at all: the test shows nothing")
		}
	})
}

// A process is found where it answers, although a forgery was there first.
func TestAForgedAddressIsMended(t *testing.T) {
	inTown(t, func(w *town) {
		keys := [][]byte{keyOf(1)}
		a := w.start("10.0.0.1", "a", keyed(keys...))
		w.start("10.0.0.2", "b", keyed(keys...))
		time.Sleep(5 * time.Second)
		next := member.Process{Name: "c", Boot: w.boot + 1, Addr: "10.0.0.66:7000"}
		for _, n := range w.nodes {
			n.Packet(forge(keys, msgAlive, new(aliveAt(next, 5, member.Metadata{}))), "10.0.0.2:7000", time.Now())
		}
		time.Sleep(time.Second)
		if a.sees() != "a b c" {
			t.Fatalf("a sees %q: the test shows nothing", a.sees())
		}
		c := w.start("10.0.0.3", "c", keyed(keys...))
		time.Sleep(2 * time.Minute)
		for _, n := range w.nodes {
			if i := slices.IndexFunc(n.Alive(), func(s member.Sighting) bool { return s.Name == "c" }); i < 0 || n.Alive()[i].Addr != c.self.Addr {
				t.Errorf("%s sees %+v", n.self.Name, n.Alive())
			}
		}
		// And a forgery moves no process that is known.
		a.Packet(forge(keys, msgDead, &forgedDead{1000, gossipName(c.self.Process()), gossipName(c.self.Process())}), "10.0.0.2:7000", time.Now())
		synctest.Wait() // memberlist takes an alive first
		a.Packet(forge(keys, msgAlive, new(aliveAt(next, 1001, member.Metadata{}))), "10.0.0.2:7000", time.Now())
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			for _, s := range a.All() {
				if s.Boot == c.self.Boot && s.Addr != c.self.Addr {
					t.Fatalf("after the second forgery a sees %+v", s)
				}
			}
		}
		if a.sees() != "a b c" {
			t.Errorf("after the second forgery a sees %q", a.sees())
		}
	})
}

func TestDescriptionsThatNoMemberHasAreRefused(t *testing.T) {
	inTown(t, func(w *town) {
		a := w.start("10.0.0.1", "a")
		forged := []any{
			aliveAt(member.Process{Name: "x", Boot: 1, Addr: "0.0.0.0:7000"}, 1, member.Metadata{}),
			aliveAt(member.Process{Name: "x", Boot: 1, Addr: "224.0.0.1:7000"}, 1, member.Metadata{}),
			aliveAt(member.Process{Name: "x y", Boot: 1, Addr: "10.0.0.3:7000"}, 1, member.Metadata{}),
			aliveAt(member.Process{Name: strings.Repeat("x", member.MaxName+1), Boot: 1, Addr: "10.0.0.3:7000"}, 1, member.Metadata{}),
			aliveAt(member.Process{Name: "x", Boot: 0, Addr: "10.0.0.3:7000"}, 1, member.Metadata{}),
			aliveAt(member.Process{Name: "x", Boot: 1, Addr: "10.0.0.3:7000"}, 1, member.Metadata{Zone: "a\nb"}),
			aliveAt(member.Process{Name: "x", Boot: 1, Addr: "10.0.0.3:7000"}, 1, member.Metadata{Zone: strings.Repeat("z", 300)}),
			aliveAt(member.Process{Name: "x", Boot: 1, Addr: "10.0.0.3:7000"}, 1, member.Metadata{Keys: "seven b"}),
			forgedAlive{1, "x.01", []byte{10, 0, 0, 3}, 7000, nil, []byte{1, 5, 2, 0, 0, 0}},
			forgedAlive{1, "x.1", []byte{10, 0, 0}, 7000, nil, []byte{1, 5, 2, 0, 0, 0}},
		}
		for _, f := range forged {
			a.Packet(forge(nil, msgAlive, f), "10.0.0.2:7000", time.Now())
		}
		time.Sleep(5 * time.Second)
		if len(a.All()) != 1 {
			t.Errorf("listed: %+v", a.All())
		}
		a.Packet(forge(nil, msgAlive, new(aliveAt(member.Process{Name: "x", Boot: 1, Addr: "10.0.0.3:7000"}, 1, member.Metadata{Zone: "z"}))), "10.0.0.2:7000", time.Now())
		time.Sleep(time.Second)
		if len(a.All()) != 2 {
			t.Error("an honest description was refused: the test shows nothing")
		}
	})
}

// pushPull is the message of a stream that claims n members and u bytes of user
// state, with the given members.
func pushPull(n, u any, entries ...any) []byte {
	b := append([]byte{msgPushPull}, wire.Marshal(map[string]any{"Nodes": n, "UserStateLen": u, "Join": true})...)
	for _, e := range entries {
		b = wire.Append(b, e)
	}
	return b
}

func TestMessagesOfOtherShapesNeverReachMemberlist(t *testing.T) {
	entry := map[string]any{"Name": "x.1", "Addr": []byte{10, 0, 0, 3}, "Port": 7000, "Vsn": []byte{1, 5, 2, 0, 0, 0}}
	large := map[string]any{"Name": "x.1", "Meta": make([]byte, maxEntry)}
	for name, x := range map[string]struct {
		b      []byte
		answer bool
		ok     bool
	}{
		"state":                     {pushPull(1, 0, entry), false, true},
		"answered state":            {pushPull(2, 0, entry, entry), true, true},
		"a million members":         {pushPull(1<<20, 0, entry), false, false},
		"fewer members than said":   {pushPull(2, 0, entry), false, false},
		"more members than said":    {pushPull(1, 0, entry, entry), false, false},
		"negative members":          {pushPull(-1, 0), false, false},
		"user state":                {pushPull(1, 20<<20, entry), false, false},
		"a large member":            {pushPull(1, 0, large), false, false},
		"compressed":                {append([]byte{9}, wire.Marshal(map[string]any{"Algo": 0, "Buf": []byte("x")})...), false, false},
		"a user message":            {append([]byte{8}, wire.Marshal(map[string]any{"UserMsgLen": 20 << 20})...), false, false},
		"encrypted":                 {append([]byte{10}, 1, 0, 0, 0), false, false},
		"nothing":                   {nil, false, false},
		"a ping":                    {append([]byte{msgPing}, wire.Marshal(map[string]any{"SeqNo": 1})...), false, true},
		"a ping for an answer":      {append([]byte{msgPing}, wire.Marshal(map[string]any{"SeqNo": 1})...), true, false},
		"an answer":                 {append([]byte{msgAck}, wire.Marshal(map[string]any{"SeqNo": 1})...), true, true},
		"an error nobody asked for": {append([]byte{msgError}, wire.Marshal(map[string]any{"Error": "x"})...), false, false},
		"a long error":              {append([]byte{msgError}, wire.Marshal(map[string]any{"Error": string(make([]byte, 2000))})...), true, false},
	} {
		if _, err := checkState(x.b, x.answer); (err == nil) != x.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	label := append([]byte{244, 4}, "test"...)
	ping := append([]byte{msgPing}, wire.Marshal(map[string]any{"SeqNo": 1})...)
	compound := func(parts ...[]byte) []byte {
		b := []byte{msgCompound, byte(len(parts))}
		for _, p := range parts {
			b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
		}
		return append(b, bytes.Join(parts, nil)...)
	}
	for name, x := range map[string]struct {
		b  []byte
		ok bool
	}{
		"ping":                 {slices.Concat(label, ping), true},
		"two":                  {slices.Concat(label, compound(ping, ping)), true},
		"no label":             {ping, false},
		"another label":        {slices.Concat([]byte{244, 4}, []byte("tesT"), ping), false},
		"nested":               {slices.Concat(label, compound(compound(ping))), false},
		"compressed":           {slices.Concat(label, []byte{9}, wire.Marshal(map[string]any{"Algo": 0, "Buf": []byte("x")})), false},
		"compressed, compound": {slices.Concat(label, compound(append([]byte{9}, wire.Marshal(map[string]any{"Algo": 0})...))), false},
		"user message":         {slices.Concat(label, []byte{8, 1, 2, 3}), false},
		"truncated":            {slices.Concat(label, compound(ping))[:len(label)+8], false},
		"nothing":              {label, false},
	} {
		if _, err := checkPacket(x.b, "test"); (err == nil) != x.ok {
			t.Errorf("packet %s: %v", name, err)
		}
	}
}

// A stream that claims 4 GiB costs no memory, one that never ends is cut, and streams
// beyond the places are closed and counted.
func TestStreamsAreBounded(t *testing.T) {
	inTown(t, func(w *town) {
		a := w.start("10.0.0.1", "a", keyed(keyOf(1)), counted)
		time.Sleep(time.Second)
		open := func(name string, host byte) net.Conn {
			here, there := net.Pipe()
			go a.Accept(here, name, hostIP(host))
			return there
		}
		c := open("m", 0)
		_, _ = c.Write([]byte{0xff, 0xff, 0xff, 0xff})
		if _, err := c.Read(make([]byte, 1)); err == nil {
			// memberlist answers with the error
			c.Close()
		}
		time.Sleep(2 * timing.GossipTCP)
		var silent []net.Conn
		for i := range maxStreams + maxWaiting + 20 {
			silent = append(silent, open(fmt.Sprint("m", i/3), byte(i/3)))
		}
		synctest.Wait()
		if n := a.cfg.Self.Refused.Counts()[refused.Flood]; n != 20 {
			t.Errorf("%d streams were refused", n)
		}
		time.Sleep(2*timing.GossipTCP + timing.GossipTurn)
		for i, c := range silent {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			for { // memberlist may have sent the error
				if _, err := c.Read(make([]byte, 100)); err != nil {
					if ne, ok := err.(net.Error); ok && ne.Timeout() {
						t.Errorf("silent stream %d is open", i)
					}
					break
				}
			}
		}
		g := a.transport.guard
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.active != 0 || len(g.names)+len(g.hosts) != 0 || g.waiting != 0 {
			t.Errorf("%d places are taken, of %v, %d wait", g.active, g.names, g.waiting)
		}
	})
}

// hostIP returns a host of many.
func hostIP(i byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 1, i}) }

// Two names cannot fill the line for places.
func TestNamesLeavePlacesInTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard()
		done := make(chan struct{})
		var wg sync.WaitGroup
		for _, name := range []string{"x", "y"} {
			for range 80 { // the port lets so many in
				wg.Go(func() { g.enter(name, hostIP(1), done) })
			}
		}
		synctest.Wait()
		if n := g.waiting; n != 2*maxWaitingPerName {
			t.Errorf("%d wait", n)
		}
		for i := range maxStreams - 2*maxStreamsPerName {
			if g.enter(fmt.Sprint("honest", i), hostIP(byte(10+i)), done) == nil {
				t.Errorf("refused, with %d of %d places taken and %d waiting", g.active, maxStreams, g.waiting)
			}
		}
		close(done)
		wg.Wait()
		if g.waiting != 0 || g.names["x"] != (streamsOf{active: maxStreamsPerName}) {
			t.Errorf("%d wait, %v", g.waiting, g.names)
		}
	})
}

// A host that takes many names leaves the streams of other hosts places, and room in the line:
// none waits for longer than for a place that is freed.
func TestAHostLeavesPlacesInTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard()
		done := make(chan struct{})
		var wg sync.WaitGroup
		defer wg.Wait()
		defer close(done)
		for i := range 20 {
			for range maxStreamsPerName + maxWaitingPerName {
				wg.Go(func() {
					if g.enter(fmt.Sprint("mallory", i), hostIP(1), done) != nil {
						<-done
					}
				})
			}
		}
		synctest.Wait()
		var leaves []func()
		for i := 0; g.active < maxStreams; i++ {
			leave := g.enter(fmt.Sprint("honest", i), hostIP(byte(10+i)), done)
			if leave == nil {
				t.Fatalf("refused, with %d of %d places taken and %d waiting", g.active, maxStreams, g.waiting)
			}
			leaves = append(leaves, leave)
		}
		if len(leaves) < maxStreams/2 {
			t.Fatalf("%d places for others", len(leaves))
		}
		time.AfterFunc(timing.GossipTurn/2, leaves[0])
		if g.enter("late", hostIP(2), done) == nil {
			t.Errorf("refused, with %d of %d places taken and %d waiting", g.active, maxStreams, g.waiting)
		}
	})
}

func TestAFrameTakesNoMemoryBeforeItsBytes(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		if _, err := readFrame(bytes.NewReader([]byte{0, 0x20, 0, 0, 1}), maxMessage); err == nil {
			t.Fatal("a frame of one byte was taken")
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes for claims", n)
	}
}

// A packet that was recorded is nothing but old news. The living stay, whichever
// packets of theirs come again, and nobody's connection is closed.
func TestReplayedPacketsChangeNothing(t *testing.T) {
	inTown(t, func(w *town) {
		a := w.start("10.0.0.1", "a", keyed(keyOf(1)))
		a.port.record()
		w.start("10.0.0.2", "b", keyed(keyOf(1)))
		c := w.start("10.0.0.3", "c", keyed(keyOf(1)))
		a.enter(machine.ClusterID{1})
		time.Sleep(10 * time.Second)
		c.Update(func(m *member.Metadata) { m.Leads = 9 })
		time.Sleep(10 * time.Second)
		c.Update(func(m *member.Metadata) { m.Leads = 0 })
		time.Sleep(3 * time.Second)
		w.halt("10.0.0.3", true) // an old leave
		time.Sleep(3 * time.Second)
		w.start("10.0.0.3", "c", keyed(keyOf(1)))
		w.halt("10.0.0.2", false) // an old death
		w.start("10.0.0.2", "b", keyed(keyOf(1)))
		time.Sleep(2 * time.Minute)
		told, dropped := len(a.diary.events()), len(a.port.drops())
		old := a.port.recorded()
		if len(old) < 100 || a.sees() != "a b c" {
			t.Fatalf("%d packets, a sees %q", len(old), a.sees())
		}
		for range 3 {
			for _, b := range old {
				a.Packet(b, "10.0.0.3:7000", time.Now())
				time.Sleep(time.Millisecond)
			}
			time.Sleep(20 * time.Second)
			if a.sees() != "a b c" {
				t.Errorf("a sees %q", a.sees())
			}
		}
		time.Sleep(2 * time.Minute)
		if a.sees() != "a b c" {
			t.Errorf("at the end a sees %q", a.sees())
		}
		for _, e := range a.diary.events()[told:] {
			if !strings.HasSuffix(e, "earlier") { // an earlier process may haunt for a while
				t.Errorf("a was told %q", e)
			}
		}
		for _, d := range a.port.drops()[dropped:] {
			if d != "b 2" && d != "c 3" {
				t.Errorf("a dropped %s", d)
			}
		}
		for _, s := range a.Alive() {
			if s.Meta.Leads != 0 {
				t.Errorf("%s leads", s.Name)
			}
		}
	})
}

// BenchmarkGarbagePacket is the cost of a packet that no key opens.
func BenchmarkGarbagePacket(b *testing.B) {
	for _, n := range []int{1, maxKeys} {
		var keys [][]byte
		for i := range n {
			keys = append(keys, keyOf(byte(i)))
		}
		tr := newTransport(Config{Self: self, Port: bound(""), Keys: func() [][]byte { return keys }})
		garbage := slices.Repeat([]byte{1}, 1400)
		b.Run(fmt.Sprint("keys=", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tr.packet(garbage, "10.0.0.1:7000", time.Now())
			}
		})
	}
}
