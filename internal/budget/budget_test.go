package budget

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
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
		if !<-late {
			t.Error("the member without a frame got nothing")
		}
		waits(t, beyond)
		for _, s := range append(host, rest...) {
			give(s, 1)
		}
		if !<-beyond {
			t.Error("freed bytes were not given")
		}
		synctest.Wait()
		give(b.Share("c", one), 1)
		give(b.Share("e", netip.Addr{}), 1)
		give(member, FramesPerMember/largest)
		if p := b.large; p.taken.all != 0 || len(p.taken.members)+len(p.taken.addresses)+len(p.arriving)+p.waiting.Len() != 0 {
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
		synctest.Wait()
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

// dripping has frames that come at rates of their own, and the bytes that give way.
type dripping struct {
	budget  *Budget
	yielded []string // names of the frames, in order; guarded by the budget
	holds   map[string]*Hold
}

// begin takes the bytes of a largest frame, of which rate bytes a second have come soon.
func (d *dripping) begin(name string, s *Share, rate int) {
	d.holds[name], _ = s.Take(largest, nil, func() { d.yielded = append(d.yielded, name) })
	d.holds[name].Came(rate)
}

// gaveWay returns the names of the frames that gave way, in order.
func (d *dripping) gaveWay() []string {
	synctest.Wait()
	d.budget.large.mu.Lock()
	defer d.budget.large.mu.Unlock()
	return slices.Clone(d.yielded)
}

// Of the slow frames the slowest give way, as many as wait, and no frame gives way for bytes
// that another one gives back already.
func TestTheSlowestFramesGiveWayFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(nil)
		member := b.Share("a", one)
		d := dripping{budget: b, holds: make(map[string]*Hold)}
		for i, name := range []string{"third", "first", "fourth", "second"} {
			d.begin(name, member, []int{300, 100, 400, 200}[i])
		}
		stop := make(chan struct{})
		waiting := []<-chan bool{taking(member, stop)}
		time.Sleep(10 * timing.FrameYields)
		if !slices.Equal(d.gaveWay(), []string{"first"}) {
			t.Errorf("for one frame gave way: %v", d.gaveWay())
		}
		waiting = append(waiting, taking(member, stop), taking(member, stop))
		if !slices.Equal(d.gaveWay(), []string{"first", "second", "third"}) {
			t.Errorf("for three frames gave way: %v", d.gaveWay())
		}
		for _, name := range d.gaveWay() {
			d.holds[name].Give()
		}
		for _, w := range waiting {
			if !<-w {
				t.Error("a waiting frame got nothing")
			}
		}
		// A frame that is complete all the same is no room, until its request is done.
		waiting = []<-chan bool{taking(member, stop)}
		time.Sleep(2 * timing.FrameYields)
		d.holds["fourth"].Complete()
		waits(t, waiting[0])
		close(stop)
		<-waiting[0]
		d.holds["fourth"].Give()
		give(member, 3)
		empty(t, b)
	})
}

// No frame gives way to a frame that does not fit a bound all the same.
func TestNoFrameGivesWayInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(nil)
		d := dripping{budget: b, holds: make(map[string]*Hold)}
		member := b.Share("a", one)
		for range FramesPerMember / largest {
			take(member, nil)
		}
		for i := range (Frames - FramesPerMember) / largest {
			d.begin(fmt.Sprint(i), b.Share(fmt.Sprint("m", i), netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})), i)
		}
		stop := make(chan struct{})
		own := taking(member, stop)
		time.Sleep(4 * timing.FrameYields)
		waits(t, own)
		if len(d.gaveWay()) != 0 {
			t.Errorf("gave way to a member with its part: %v", d.gaveWay())
		}
		give(member, 1)
		if !<-own {
			t.Error("the member got nothing of its own bytes")
		}
		other := taking(b.Share("b", two), stop)
		time.Sleep(2 * timing.FrameYields)
		if !slices.Equal(d.gaveWay(), []string{"0"}) {
			t.Errorf("gave way to another member: %v", d.gaveWay())
		}
		for _, h := range d.holds {
			h.Give()
		}
		if !<-other {
			t.Error("the other member got nothing")
		}
		give(b.Share("b", two), 1)
		give(member, FramesPerMember/largest)
		empty(t, b)
	})
}

// A frame that nobody could read, since this process stood still, is not slow.
func TestAStandstillMakesNoFrameSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(nil)
		p := b.large
		member := b.Share("a", one)
		d := dripping{budget: b, holds: make(map[string]*Hold)}
		for i := range FramesPerMember / largest {
			d.begin(fmt.Sprint(i), member, 0)
		}
		time.Sleep(time.Hour) // without a waiting frame nobody looks for a standstill
		stop := make(chan struct{})
		done := taking(member, stop)
		if len(d.gaveWay()) != 0 {
			t.Error("a frame gives way at the first look")
		}
		time.Sleep(timing.FrameLook / 2)
		for range 5 {
			time.Sleep(4 * timing.FrameLook)
			p.mu.Lock() // as if this process had stood still until now
			p.looked, p.begun = p.looked.Add(-time.Second), p.begun.Add(-time.Second)
			p.mu.Unlock()
		}
		for range 20 { // the bytes that came meanwhile, and later ones
			time.Sleep(timing.FrameLook)
			for _, h := range d.holds {
				h.Came(2 * leastRate / int(time.Second/timing.FrameLook))
			}
		}
		if len(d.gaveWay()) != 0 {
			t.Errorf("gave way, though nobody could read: %v", d.gaveWay())
		}
		time.Sleep(10 * timing.FrameYields)
		if len(d.gaveWay()) != 1 {
			t.Errorf("slow after the standstill: %v", d.gaveWay())
		}
		close(stop)
		<-done
		for _, h := range d.holds {
			h.Give()
		}
		empty(t, b)
	})
}

// empty fails the test if something of the budget of large frames is taken.
func empty(t *testing.T, b *Budget) {
	t.Helper()
	synctest.Wait()
	for _, s := range []sums{b.large.taken, b.large.leaving, b.large.promised} {
		if s.all != 0 || len(s.addresses)+len(s.members) != 0 {
			t.Errorf("%+v is left", s)
		}
	}
	if len(b.large.arriving)+b.large.waiting.Len() != 0 {
		t.Error("a frame is left")
	}
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
		done := taking(honest, stop)
		waits(t, done)
		give(full[0], 1)
		if synctest.Wait(); len(done) == 0 {
			t.Error("got nothing")
		}
		close(stop)
		got := <-done
		for _, f := range flood {
			if <-f {
				t.Error("a frame that came before took the place")
			}
		}
		if got {
			give(honest, 1)
		}
		for _, s := range full[1:] {
			give(s, 1)
		}
	})
}

// parts divide the bounds for each class.
var parts = map[Class]int{Passing: 1, Lasting: 2, Beats: 2}

// fill counts requests of a class until one is refused, and returns their bytes.
func fill(s *Share, c Class) (n int) {
	for s.Count(c, n, n+largest) {
		n += largest
	}
	s.Count(c, n+largest, n)
	return n
}

// One member, on however many streams, leaves most of the budget to the others, and the
// members of one address leave half. A full budget refuses the many requests, and none of a
// connection with few.
func TestRequestsAreBounded(t *testing.T) {
	for c, part := range parts {
		told := 0
		b := New(func(string, string) { told++ })
		counted := make(map[*Share]int)
		take := func(name string, ip netip.Addr) int {
			s := b.Share(name, ip)
			counted[s] = fill(s, c)
			return counted[s]
		}
		own, others := 0, 0
		for range 8 {
			own += take("a", one)
		}
		for i := range 8 {
			others += take(fmt.Sprint("b", i), one)
		}
		if own != RequestsPerMember/part || own+others != RequestsPerAddress/part {
			t.Errorf("class %d: a member has %d bytes, and the others of its address %d", c, own, others)
		}
		all := own + others
		for i := range 8 {
			all += take(fmt.Sprint("c", i), netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}))
		}
		if all != Requests/part {
			t.Errorf("class %d: all have %d bytes", c, all)
		}
		few := b.Share("a", one)
		if !few.Count(c, 0, RequestsLeast) || few.Count(c, RequestsLeast, RequestsLeast+largest) {
			t.Errorf("class %d: a connection has not its least", c)
		}
		few.Refused("full")
		counted[few] = RequestsLeast + largest
		for s, n := range counted {
			s.Count(c, n, 0)
		}
		for _, r := range []sums{b.requests, b.lasting, b.beats} {
			if r.all != 0 || len(r.members)+len(r.addresses) != 0 || told != 1 {
				t.Errorf("class %d: %+v is left, told %d times", c, r, told)
			}
		}
	}
}

// Voters' frames of raft wait for those of voters alone, of one name for its own, and those of
// all other processes have half as much together. Frames of streams are in neither.
func TestEntriesAreBounded(t *testing.T) { synctest.Test(t, testEntriesAreBounded) }

func testEntriesAreBounded(t *testing.T) {
	b := New(nil)
	stop := make(chan struct{})
	take := func(name string, ip netip.Addr, voter bool) int {
		var got atomic.Int64
		for range Entries/largest + 1 {
			go func() {
				if _, ok := b.Share(name, ip).TakeEntries(largest, voter, stop, func() {}); ok {
					got.Add(largest)
				}
			}()
		}
		synctest.Wait()
		return int(got.Load())
	}
	others := 0
	for i := range 8 {
		others += take(fmt.Sprint("x", i), netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), false)
	}
	if n := take("y", two, false); n != 0 || others != Entries/2 {
		t.Errorf("processes that are no voters have %d bytes", others)
	}
	if n := take("a", one, true); n != EntriesOfMember {
		t.Errorf("a voter has %d bytes", n)
	}
	for i := range 8 {
		take(fmt.Sprint("b", i), one, true)
	}
	if n := take("c", two, true); n != EntriesOfMember {
		t.Errorf("a voter at another address has %d bytes", n)
	}
	for i := range 8 {
		take(fmt.Sprint("d", i), netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), true)
	}
	if n := b.Held() - others; n != Entries {
		t.Errorf("voters have %d bytes", n)
	}
	if _, ok := b.Share("a", one).Take(largest, stop, func() {}); !ok {
		t.Error("a frame of a stream finds no room beside those of raft")
	}
	close(stop)
}

// A frame of raft that is not complete gives way to that of a member with nothing under way, at
// any rate, and of members alike that one comes first whose turn was longest ago. So no number
// of frames that end just in time keeps a leader's waiting.
func TestFramesOfRaftComeInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, stop := New(nil), make(chan struct{})
		flood := func(name string) {
			for range 8 {
				go func() {
					for {
						over := make(chan struct{})
						h, ok := b.Share(name, one).TakeEntries(EntriesOfMember, true, stop, func() { close(over) })
						if !ok {
							return
						}
						h.Came(EntriesOfMember - 1)
						select {
						case <-over:
						case <-time.After(timing.RaftIO): // not complete within the time of an exchange
						case <-stop:
						}
						h.Give()
					}
				}()
			}
		}
		flood("a")
		flood("b")
		flood("c")
		for range 5 {
			synctest.Wait()
			began := time.Now()
			h, ok := b.Share("leader", one).TakeEntries(EntriesOfMember, true, stop, func() {})
			if took := time.Since(began); !ok || took >= timing.RaftIO {
				t.Errorf("a leader's frame has waited for %v", took)
			}
			h.Complete()
			h.Give()
		}
		close(stop)
	})
}

// A slow frame of a member at another address is not ended by one whose address would then have
// more, however fast others come and stall.
func TestASlowLeaderIsNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, stop := New(nil), make(chan struct{})
		far, third := netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.0.4")
		held := func(name string, ip netip.Addr, over *atomic.Bool) *Hold {
			var h *Hold
			var ok bool
			h, ok = b.Share(name, ip).TakeEntries(EntriesOfMember, true, stop, func() {
				over.Store(true)
				go h.Give()
			})
			if !ok {
				t.Fatal("no room")
			}
			h.Came(EntriesOfMember - 1)
			return h
		}
		var leader, a1, b1, b2 atomic.Bool
		held("a", one, &a1)
		held("a", two, &b1)
		held("b", two, &b2)
		slow := held("leader", far, &leader)
		wait := func(name string, ip netip.Addr) chan bool {
			done := make(chan bool, 1)
			go func() { _, ok := b.Share(name, ip).TakeEntries(EntriesOfMember, true, stop, func() {}); done <- ok }()
			return done
		}
		wait("b", one)
		time.Sleep(3 * timing.FrameYields)
		if leader.Load() || a1.Load() || b1.Load() == b2.Load() {
			t.Errorf("gave way: leader %v, %v, %v, %v; want one of the fullest address", leader.Load(), a1.Load(), b1.Load(), b2.Load())
		}
		if got := wait("c", third); !<-got {
			t.Error("an address with nothing gets nothing")
		}
		if leader.Load() {
			t.Error("the leader's frame gives way although addresses have more")
		}
		slow.Complete()
		slow.Give()
		close(stop)
	})
}

// A nil share has no bounds.
// What is kept beyond a bound is refused and not counted, so it takes no room from what fits.
func TestKeptBytesThatDoNotFitAreNotCounted(t *testing.T) {
	b := New(nil)
	s := b.Share("a", one)
	const most = RequestsLeast + RequestsPerMember/2
	for _, step := range []struct {
		before, now int
		ok          bool
	}{
		{0, most - 1, true}, {most - 1, most + 1, false}, {most - 1, most, true}, {most, most + 1, false}, {most, 100, true}, {100, most, true},
	} {
		held := b.Held()
		ok := s.Count(Kept, step.before, step.now)
		if got := b.Held() - held; ok != step.ok || !ok && got != 0 {
			t.Errorf("from %d to %d: %v, and %d more are held", step.before, step.now, ok, got)
		}
	}
	if got := b.Held(); got != RequestsPerMember/2 {
		t.Errorf("%d bytes are held", got)
	}
}

func TestNoShareHasNoBounds(t *testing.T) {
	var none *Share
	h, ok := none.Take(1, nil, nil)
	if !none.Count(Lasting, 0, 2*Requests) || !ok {
		t.Error("a nil share has bounds")
	}
	none.Count(Lasting, 2*Requests, 0)
	h.Came(1)
	h.Complete()
	h.Give()
	none.Refused("")
}

// Requests that wait fill their part of the budget, of an address or of a member. They leave
// room for requests that pass, and these for beats.
func TestWaitingRequestsLeaveRoom(t *testing.T) {
	for scope, of := range map[string]func(i int) (string, netip.Addr){
		"all": func(i int) (string, netip.Addr) {
			return fmt.Sprint("m", i), netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})
		},
		"address": func(i int) (string, netip.Addr) { return fmt.Sprint("m", i), one },
		"member":  func(int) (string, netip.Addr) { return "honest", one },
	} {
		b := New(nil)
		const waiting = 300 << 9
		honest := b.Share("honest", one)
		if !honest.Count(Lasting, 0, waiting) {
			t.Fatal("no room in an empty budget")
		}
		for i := range 8 {
			fill(b.Share(of(i)), Lasting)
		}
		if honest.Count(Lasting, waiting, waiting+largest) {
			t.Errorf("%s: requests that wait have no bound", scope)
		}
		honest.Count(Lasting, waiting+largest, waiting)
		if n := fill(honest, Passing); n < RequestsPerMember/4-largest {
			t.Errorf("%s: beside requests that wait, %d bytes of others found room", scope, n)
		}
		for i := range 8 {
			fill(b.Share(of(i)), Passing)
		}
		if !honest.Count(Beats, 0, largest) {
			t.Errorf("%s: a beat found no room", scope)
		}
	}
}

// The connection that ends for a full bound is that with the most, of the member with the most,
// of the address with the most, and not the largest of all.
func TestTheFullestConnectionEnds(t *testing.T) {
	b := New(nil)
	var ended []string
	queue := func(name string, ip netip.Addr, mib int) *Queue {
		q := b.Share(name, ip).Queue(func() { ended = append(ended, fmt.Sprint(name, mib)) })
		if !q.Set(mib << 20) {
			t.Fatalf("%d MiB of %s do not fit", mib, name)
		}
		return q
	}
	queue("b", one, 12)
	queue("a", one, 9)
	queue("a", one, 5)
	queue("c", two, 15)
	for i := range 3 {
		queue(fmt.Sprint("d", i), netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), 7)
	}
	few := queue("e", netip.AddrFrom4([4]byte{10, 0, 2, 0}), 1)
	if few.Crowded(4 << 20) {
		t.Error("a connection with little is to wait for the others")
	}
	if len(ended) != 0 || !few.Set(4<<20) || !slices.Equal(ended, []string{"a9"}) {
		t.Errorf("%v ended", ended)
	}
}

// What can wait does, while half of a bound is taken and this connection has the most, also if
// it counts as nothing more.
func TestTheFullestConnectionIsCrowded(t *testing.T) {
	b := New(nil)
	q := b.Share("m1", netip.MustParseAddr("10.0.0.1")).Queue(func() {})
	half := QueuedPerMember / 2
	if !q.Set(half) || q.Crowded(half) {
		t.Error("half of a bound is much")
	}
	if !q.Set(half+QueuedLeast) || !q.Crowded(half+QueuedLeast) {
		t.Error("more than half of a bound is not much")
	}
}

// A member that reads has large answers, although streams in its own name, or under other names
// at its address, have filled a bound and read nothing. These streams end first, also for
// more of their own.
func TestTheUnreadGiveWayToTheRead(t *testing.T) {
	for name, x := range map[string]struct {
		streams, names, kib int
	}{
		"half of a member's":       {63, 1, 130},
		"half of a member's, many": {256, 1, 64},
		"a member's":               {64, 1, 256},
		"half of an address's":     {256, 256, 64},
		"an address's":             {512, 256, 64},
		"an address's, few":        {16, 4, 2048},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(nil)
				ended := 0
				var posers []*Queue
				for i := range x.streams {
					name := "m1"
					if x.names > 1 {
						name = fmt.Sprint("mallory", i%x.names)
					}
					q := b.Share(name, one).Queue(func() { ended++ })
					if !q.Set(QueueBytes(x.kib << 10)) {
						t.Fatal("the bound is smaller")
					}
					posers = append(posers, q)
				}
				time.Sleep(timing.Unread)
				reads := b.Share("m1", one).Queue(func() { t.Error("the stream that is read has ended") })
				for _, kib := range []int{200, 1024, 4096} {
					n := QueueBytes(kib << 10)
					if reads.Crowded(n) {
						t.Errorf("an answer of %d KiB must wait", kib)
					}
					if !reads.Set(n) {
						t.Errorf("an answer of %d KiB does not fit", kib)
					}
					time.Sleep(timing.Unread / 2) // as long as a slow link takes
					for _, q := range posers {
						q.Set(b.queues[q] + QueuedLeast)
					}
					if left := len(posers) - ended; b.queued.addresses[one] > QueuedPerAddress || left == 0 {
						t.Errorf("%d streams are left", left)
					}
					reads.Set(0)
				}
			})
		})
	}
}
