package budget

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

var (
	one = netip.MustParseAddr("10.0.0.1")
	two = netip.MustParseAddr("10.0.0.2")
)

const largest = 1 << 20

// held has the holds of the shares of a test.
var held sync.Map

// holder tells the shares of a member in a budget.
type holder struct {
	*Budget
	payer
}

// take takes the bytes of a largest frame.
func take(s *Share, stop <-chan struct{}) bool {
	h, ok := s.Take(largest, stop, func() {})
	if ok {
		h.Complete()
		all, _ := held.LoadOrStore(holder{s.budget, s.payer}, new(sync.Map))
		all.(*sync.Map).Store(h, true)
	}
	return ok
}

// give gives back n frames of the share's payer.
func give(s *Share, n int) {
	all, _ := held.Load(holder{s.budget, s.payer})
	all.(*sync.Map).Range(func(h, _ any) bool {
		h.(*Hold).Give()
		all.(*sync.Map).Delete(h)
		n--
		return n > 0
	})
}

// taking calls Take on a goroutine.
func taking(s *Share, stop <-chan struct{}) <-chan bool {
	done := make(chan bool, 1)
	go func() { done <- take(s, stop) }()
	return done
}

func waits(t *testing.T, done <-chan bool) {
	t.Helper()
	synctest.Wait()
	if len(done) != 0 {
		t.Fatal("a frame beyond the budget was let in")
	}
}

func TestFramesWaitForTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(nil)
		member := b.Share("a", one)
		for range FramesPerMember / largest {
			if !take(member, nil) {
				t.Fatal("no room in an empty budget")
			}
		}
		stop := make(chan struct{})
		beyond := taking(member, nil)
		stopped := taking(member, stop)
		waits(t, beyond)
		// Others of the host go on, up to the host's bound; then others still.
		var host []*Share
		for i := range FramesPerAddress/largest - FramesPerMember/largest {
			host = append(host, b.Share(fmt.Sprint("b", i), one))
			take(host[i], nil)
		}
		late := taking(b.Share("c", one), nil)
		waits(t, late)
		var rest []*Share
		for i := range FramesPerAddress / largest {
			rest = append(rest, b.Share(fmt.Sprint("d", i), two))
			take(rest[i], nil)
		}
		third := taking(b.Share("e", netip.Addr{}), nil)
		waits(t, third)
		close(stop)
		if <-stopped {
			t.Error("Take went on after stop")
		}
		give(member, 1)
		if !<-third {
			t.Error("the address without a frame got nothing")
		}
		waits(t, beyond)
		give(member, 1)
		if !<-beyond {
			t.Error("the first in line got nothing")
		}
		waits(t, late)
		for _, s := range append(host, rest...) {
			give(s, 1)
		}
		if !<-late {
			t.Error("freed bytes were not given")
		}
		synctest.Wait()
		give(b.Share("c", one), 1)
		give(b.Share("e", netip.Addr{}), 1)
		give(member, FramesPerMember/largest)
		if p := &b.large; p.taken.all != 0 || len(p.taken.members)+len(p.taken.addresses)+len(p.arriving)+p.waiting.Len() != 0 {
			t.Errorf("%+v and %d waiting are left", p.taken, p.waiting.Len())
		}
	})
}

// A frame gives way to a waiting one if it is slow, not complete, and holds bytes that the
// waiting one waits for; no other frame does.
func TestASlowFrameGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(nil)
		member := b.Share("a", one)
		yields := make(map[string]int)
		begin := func(name string, s *Share) *Hold {
			h, _ := s.Take(largest, nil, func() { yields[name]++ })
			return h
		}
		slow, fast, whole, foreign := begin("slow", member), begin("fast", member), begin("whole", member), begin("foreign", b.Share("b", one))
		last := begin("last", member)
		whole.Complete()
		const rate = leastRate * int(timing.FrameYields) / int(time.Second)
		slow.Came(rate - 1)
		fast.Came(10 * rate)
		last.Came(10 * rate)
		time.Sleep(timing.FrameYields)
		if len(yields) != 0 {
			t.Error("a frame gives way to nobody")
		}
		done := taking(member, nil)
		waits(t, done)
		time.Sleep(2 * timing.FrameYields)
		if len(yields) != 1 || yields["slow"] != 1 || !slow.Over() || fast.Over() {
			t.Errorf("gave way: %v", yields)
		}
		slow.Give()
		if !<-done {
			t.Error("the waiting frame got nothing")
		}
		for _, h := range []*Hold{fast, whole, foreign, last} {
			h.Give()
		}
		give(member, 1)
	})
}

// However many frames of an address wait, the frame of another one is next.
func TestAnAddressWithFewBytesGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(nil)
		var full []*Share
		for i := range Frames / largest {
			s := b.Share(fmt.Sprint("m", i), []netip.Addr{one, two}[i%2])
			take(s, nil)
			full = append(full, s)
		}
		stop := make(chan struct{})
		var flood []<-chan bool
		for i := range 40 {
			flood = append(flood, taking(b.Share(fmt.Sprint("w", i), []netip.Addr{one, two}[i%2]), stop))
		}
		synctest.Wait()
		honest := b.Share("honest", netip.AddrFrom4([4]byte{10, 0, 0, 3}))
		done := taking(honest, nil)
		waits(t, done)
		give(full[0], 1)
		if !<-done {
			t.Error("got nothing")
		}
		close(stop)
		for _, f := range flood {
			if <-f {
				t.Error("a frame that came before took the place")
			}
		}
		give(honest, 1)
		for _, s := range full[1:] {
			give(s, 1)
		}
	})
}

// A full budget refuses the many requests, and none of a connection with few.
func TestFewRequestsPassAFullBudget(t *testing.T) {
	told := 0
	b := New(func(string, string) { told++ })
	var many []*Share
	for i := range Requests / RequestsPerMember {
		many = append(many, b.Share(fmt.Sprint("a", i), netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})))
		for own := largest; own <= RequestsPerMember; own += largest {
			if !many[i].Begin(largest, own) {
				t.Fatal("refused below the bound")
			}
		}
	}
	few := b.Share("b", two)
	if !few.Begin(RequestsLeast, RequestsLeast) || few.Begin(1, RequestsLeast+1) {
		t.Error("a connection has not its least")
	}
	few.Refused("full")
	few.End(RequestsLeast + 1)
	for _, s := range many {
		s.End(RequestsPerMember)
	}
	if r := b.requests; r.all != 0 || len(r.members)+len(r.addresses) != 0 || told != 1 {
		t.Errorf("%+v is left, told %d times", r, told)
	}
	var none *Share
	h, ok := none.Take(1, nil, nil)
	if !none.Begin(1, 1) || !ok {
		t.Error("a nil share has bounds")
	}
	none.End(1)
	h.Came(1)
	h.Complete()
	h.Give()
	none.Refused("")
}

// One member, on however many streams, leaves most of the budget to the others, and the
// members of one address leave half.
func TestRequestsOfOneMemberAreBounded(t *testing.T) {
	b := New(nil)
	own := 0
	fill := func(s *Share) (n int) {
		for s.Begin(largest, largest) {
			n += largest
		}
		s.End(largest)
		own += n
		return n
	}
	for stream := range 8 {
		if n := fill(b.Share("a", one)); (n == RequestsPerMember) != (stream == 0) {
			t.Fatalf("stream %d has %d bytes", stream, n)
		}
	}
	for i := range 8 {
		fill(b.Share(fmt.Sprint("b", i), one))
	}
	if own != RequestsPerAddress {
		t.Errorf("the members of an address have %d bytes", own)
	}
	other := b.Share("c", two)
	if !other.Begin(2*RequestsLeast, 2*RequestsLeast) || !other.Begin(1, 2*RequestsLeast+1) {
		t.Error("another member has its least alone")
	}
}
