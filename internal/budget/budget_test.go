package budget

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
)

var (
	one = netip.MustParseAddr("10.0.0.1")
	two = netip.MustParseAddr("10.0.0.2")
)

const largest = 1 << 20

// taking calls Take on a goroutine.
func taking(s *Share, stop <-chan struct{}) <-chan bool {
	done := make(chan bool, 1)
	go func() { done <- s.Take(largest, stop) }()
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
			if !member.Take(largest, nil) {
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
			host[i].Take(largest, nil)
		}
		late := taking(b.Share("c", one), nil)
		waits(t, late)
		var rest []*Share
		for i := range FramesPerAddress / largest {
			rest = append(rest, b.Share(fmt.Sprint("d", i), two))
			rest[i].Take(largest, nil)
		}
		waits(t, taking(b.Share("e", netip.Addr{}), nil))
		close(stop)
		if <-stopped {
			t.Error("Take went on after stop")
		}
		member.Give(largest)
		if !<-beyond {
			t.Error("the first in line got nothing")
		}
		waits(t, late)
		for _, s := range append(host, rest...) {
			s.Give(largest)
		}
		if !<-late {
			t.Error("freed bytes were not given")
		}
		synctest.Wait()
		b.Share("c", one).Give(largest)
		b.Share("e", netip.Addr{}).Give(largest)
		member.Give(FramesPerMember)
		if f := b.frames; f.all != 0 || len(f.members)+len(f.addresses)+b.waiting.Len() != 0 {
			t.Errorf("%+v and %d waiting are left", f, b.waiting.Len())
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
	if !none.Begin(1, 1) || !none.Take(1, nil) {
		t.Error("a nil share has bounds")
	}
	none.End(1)
	none.Give(1)
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
