package budget

import (
	"container/list"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// leastRate is the rate, in bytes a second, below which a frame gives way: a frame of the
// largest size does not end within timing.FrameWithin at a lower one.
const leastRate = 128 << 10

// pool is the budget of the frames of one class of sizes. Budget.mu guards every field.
//
// A peer can claim a large frame, send the first bytes, and let the rest drip: a whole
// budget of such frames would keep every other frame waiting, and the beats behind the
// frame, until the time of the slow frames is up. Hence two rules for a full budget:
//
//   - A frame that comes more slowly than leastRate gives way to a waiting frame, if the
//     slow frame has had timing.FrameYields and holds bytes of a bound that is full for the
//     waiting one. A frame is slow by its own peer or link alone; many frames that share a
//     fast link are above the rate.
//   - The frames of the address with the fewest bytes under way go first, and of equals the
//     first to come. So however many frames of a few addresses wait, the frame of another
//     address gets the next bytes given back.
type pool struct {
	all, address, member int // bounds
	taken                sums
	arriving             map[*Hold]struct{} // holds whose frames are not complete
	waiting              list.List          // of *Hold, in the order of arrival
}

func newPool(all, address, member int) pool {
	return pool{all: all, address: address, member: member, taken: newSums(), arriving: make(map[*Hold]struct{})}
}

// Hold is the part of the budget that a frame has taken. A nil Hold is none.
type Hold struct {
	share   *Share
	pool    *pool
	n       int
	yield   func()
	granted chan struct{} // closed with the grant
	since   time.Time     // of the grant
	come    atomic.Int64  // bytes of the frame since then
	over    atomic.Bool   // yield was called, or is about to be
}

// Take waits until n bytes of a frame fit the budget, and takes them; n is at most
// FramesPerMember. Take returns false, and takes nothing, if stop is closed before.
//
// Yield is called, once and with the budget locked, if the frame must give way. Yield must
// not block nor call the budget, and must end the frame's arrival, so that the caller gives
// the bytes back. After Complete, Yield is not called.
func (s *Share) Take(n int, stop <-chan struct{}, yield func()) (*Hold, bool) {
	if s == nil {
		return nil, true
	}
	b := s.budget
	h := &Hold{share: s, pool: &b.large, n: n, yield: yield, granted: make(chan struct{})}
	if n <= SmallFrame {
		h.pool = &b.small
	}
	b.mu.Lock()
	e := h.pool.waiting.PushBack(h)
	h.pool.grant()
	h.pool.press(h)
	b.mu.Unlock()
	for {
		again := time.NewTimer(timing.FrameYields)
		select {
		case <-h.granted:
			again.Stop()
			return h, true
		case <-again.C:
			b.mu.Lock()
			h.pool.press(h)
			b.mu.Unlock()
			continue
		case <-stop:
			again.Stop()
		}
		break
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-h.granted: // at the same time
		h.give()
	default:
		h.pool.waiting.Remove(e)
		h.pool.grant()
	}
	return nil, false
}

// Came counts n bytes of the frame that have come.
func (h *Hold) Came(n int) {
	if h != nil {
		h.come.Add(int64(n))
	}
}

// Over reports whether the frame must give way. A reader that may have undone the effect of
// yield asks Over afterwards.
func (h *Hold) Over() bool { return h != nil && h.over.Load() }

// Complete notes the end of the frame's arrival: the frame gives way no more.
func (h *Hold) Complete() {
	if h == nil {
		return
	}
	h.share.budget.mu.Lock()
	defer h.share.budget.mu.Unlock()
	delete(h.pool.arriving, h)
}

// Give returns the bytes of the frame, once.
func (h *Hold) Give() {
	if h == nil {
		return
	}
	h.share.budget.mu.Lock()
	defer h.share.budget.mu.Unlock()
	h.give()
}

func (h *Hold) give() {
	delete(h.pool.arriving, h)
	h.pool.taken.add(h.share.payer, -h.n)
	h.pool.grant()
}

// grant gives all waiting frames their bytes, as far as the bytes fit. If the next frame
// waits for the whole budget, no other frame is granted before, so that smaller frames
// cannot starve a larger one.
func (p *pool) grant() {
	for {
		var next *list.Element
		least := 0
		for e := p.waiting.Front(); e != nil; e = e.Next() {
			h := e.Value.(*Hold)
			of := p.taken.addresses[h.share.payer.ip]
			if (next == nil || of < least) && of+h.n <= p.address && p.taken.members[h.share.payer]+h.n <= p.member {
				next, least = e, of
			}
		}
		if next == nil {
			return
		}
		h := next.Value.(*Hold)
		if p.taken.all+h.n > p.all {
			return
		}
		p.taken.add(h.share.payer, h.n)
		p.waiting.Remove(next)
		p.arriving[h] = struct{}{}
		h.since = time.Now()
		close(h.granted)
	}
}

// press has slow frames give way if h waits for their bytes.
func (p *pool) press(h *Hold) {
	select {
	case <-h.granted:
		return
	default:
	}
	at := h.share.payer
	full := p.taken.all+h.n > p.all
	host := p.taken.addresses[at.ip]+h.n > p.address
	own := p.taken.members[at]+h.n > p.member
	now := time.Now()
	for o := range p.arriving {
		bars := full || host && o.share.payer.ip == at.ip || own && o.share.payer == at
		if bars && o.slow(now) {
			delete(p.arriving, o)
			o.over.Store(true)
			o.yield()
		}
	}
}

// slow reports whether the frame comes below leastRate, after its first moment.
func (h *Hold) slow(now time.Time) bool {
	held := now.Sub(h.since)
	return held >= timing.FrameYields && float64(h.come.Load()) < held.Seconds()*leastRate
}
