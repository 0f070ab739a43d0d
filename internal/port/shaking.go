package port

import (
	"container/heap"
	"container/list"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/auth"
	"github.com/wardmote/wardmote/internal/timing"
)

// maxHandshaking bounds the handshakes under way: a place costs a file, a goroutine
// and, under TLS, some 20 KiB, with maxShaken bytes of the peer's beside: less than
// 64 MiB for all places, whatever their peers send.
const maxHandshaking = 512

// maxShaken is how many bytes of the other side one handshake reads, TLS and preamble
// together. Package tls would keep a message of up to 256 KiB, of a peer that has proved
// nothing, and take apart all of it. A chain of four certificates with keys of 8,192 bits
// has 12 KiB, and the names of the authorities of a large pool at most as much.
const maxShaken = 32 << 10

// errShaken ends a handshake of more bytes.
var errShaken = &auth.RefusedError{Reason: fmt.Sprintf("sends more than %d KiB before its handshake is over", maxShaken>>10)}

// shakeRead reads bytes of a handshake, of which left may still come.
func shakeRead(c net.Conn, b []byte, left *int) (int, error) {
	if *left <= 0 {
		return 0, errShaken
	}
	n, err := c.Read(b[:min(len(b), *left)])
	*left -= n
	return n, err
}

// maxLine is the number of handshakes of one address in line for a turn: some 200 ms
// of work. A member that is sent away dials again.
const maxLine = 256

// maxTurns is the number of TLS handshakes that compute at the same time: half of
// the threads, so that strangers leave the other half to raft and to the locks. A
// handshake computes for about 1 ms, so even one turn serves some 1,000 honest
// members a second, and a cluster has fewer.
func maxTurns() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// handshakes holds the accepted connections that are not admitted yet. The rules
// make a flood pay for itself:
//
//   - A handshake that waits for its peer has a place and no turn, so it costs no
//     CPU. A handshake computes only during a turn. Addresses take turns in
//     rotation, so the handshakes of one address delay those of another by one turn.
//   - When all places are taken, a newcomer replaces a handshake of the address with
//     the most handshakes: the one whose peer has kept it waiting longest in all. An
//     honest peer answers within a round trip, and the wait for a turn is not
//     counted, so the silent and the slow go first. The last in line for a turn
//     goes before a peer that has had no round trip's time yet: otherwise peers that
//     begin fast and stall would push out each peer that thinks before it begins.
//   - The line of an address is short. A longer line serves no more handshakes, and
//     each served one would have waited for longer.
type handshakes struct {
	mu        sync.Mutex
	closed    bool
	size      int
	begun     uint64 // so far
	addresses map[netip.Addr]*address
	turns     int       // free
	rotation  list.List // of *address: the addresses with handshakes in line for a turn
}

// address is the part of an address in handshakes.
type address struct {
	ip      netip.Addr
	all     map[*shaking]struct{}
	waiting waitingHeap // for their peers, the longest waiting first
	line    list.List   // of *shaking: waiting for a turn
	rotates *list.Element
}

// shaking is an accepted connection during its handshake.
type shaking struct {
	raw  net.Conn
	from *address
	gone chan struct{} // closed when the place is lost
	rank uint64        // in order of arrival

	// Guarded by handshakes.mu.
	began  time.Time // of the peer's waits, had they been one wait that still lasts
	paused time.Time // the peer is not waited for since then
	place  int       // in from.waiting, or -1
	inLine *list.Element
	turn   chan struct{} // receives the turn for which the handshake waits in line
	holds  bool          // a turn
}

func newHandshakes() *handshakes {
	return &handshakes{addresses: make(map[netip.Addr]*address), turns: maxTurns()}
}

// begin adds the handshake of raw. The victim, if any, has lost its place to raw,
// and the caller closes it. s is nil after close.
func (h *handshakes) begin(raw net.Conn, ip netip.Addr) (s, victim *shaking) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil
	}
	a := h.addresses[ip]
	if a == nil {
		a = &address{ip: ip, all: make(map[*shaking]struct{})}
		h.addresses[ip] = a
	}
	now := time.Now()
	h.begun++
	s = &shaking{raw: raw, from: a, rank: h.begun, gone: make(chan struct{}), turn: make(chan struct{}, 1), began: now, paused: now, place: -1}
	a.all[s] = struct{}{}
	if h.size++; h.size > maxHandshaking {
		victim = h.busiest().worst(now)
		h.drop(victim)
	}
	return s, victim
}

// busiest returns the address with the most handshakes.
func (h *handshakes) busiest() (most *address) {
	for _, a := range h.addresses {
		if most == nil || len(a.all) > len(most.all) {
			most = a
		}
	}
	return most
}

// worst returns the handshake that gives way: the one whose peer has kept it waiting
// longest, unless that is no round trip's time and others are in line for a turn.
func (a *address) worst(now time.Time) *shaking {
	last := a.line.Back()
	if len(a.waiting) > 0 && (last == nil || now.Sub(a.waiting[0].began) > timing.RoundTrip) {
		return a.waiting[0]
	}
	if last != nil {
		return last.Value.(*shaking)
	}
	for s := range a.all { // each begins or computes: any one gives way
		return s
	}
	panic("port: the busiest address has no handshake")
}

// drop takes s out of the set, in whichever state it is. Without a place s gets no
// further turn, and returns the turn that it holds at its next step.
func (h *handshakes) drop(s *shaking) {
	a := s.from
	if _, ok := a.all[s]; !ok {
		return
	}
	close(s.gone)
	delete(a.all, s)
	h.size--
	if s.place >= 0 {
		heap.Remove(&a.waiting, s.place)
	}
	if s.inLine != nil {
		a.line.Remove(s.inLine)
		s.inLine = nil
	}
	if len(a.all) == 0 {
		delete(h.addresses, a.ip) // giveTurn takes the address out of rotation
	}
}

// end takes s out of the set after its handshake.
func (h *handshakes) end(s *shaking) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.giveTurn(s)
	h.drop(s)
}

// await marks s as waiting for its peer, without a turn.
func (h *handshakes) await(s *shaking) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.giveTurn(s)
	if _, ok := s.from.all[s]; !ok {
		return
	}
	s.began = s.began.Add(time.Since(s.paused))
	heap.Push(&s.from.waiting, s)
}

// resume ends the wait for the peer, and waits for a turn. It reports false if s has
// lost its place.
func (h *handshakes) resume(s *shaking) bool {
	h.mu.Lock()
	if s.place >= 0 {
		heap.Remove(&s.from.waiting, s.place)
	}
	s.paused = time.Now()
	if _, ok := s.from.all[s]; !ok {
		h.mu.Unlock()
		return false
	}
	if h.turns > 0 {
		h.turns--
		s.holds = true
		h.mu.Unlock()
		return true
	}
	if s.from.line.Len() >= maxLine {
		h.drop(s)
		h.mu.Unlock()
		return false
	}
	s.inLine = s.from.line.PushBack(s)
	if s.from.rotates == nil {
		s.from.rotates = h.rotation.PushBack(s.from)
	}
	h.mu.Unlock()
	select {
	case <-s.turn:
		return true
	case <-s.gone:
		return false // a turn that came at the same time is given back by end
	}
}

// giveTurn passes the turn of s, if s holds one, to the next handshake in line.
func (h *handshakes) giveTurn(s *shaking) {
	if !s.holds {
		return
	}
	s.holds = false
	for e := h.rotation.Front(); e != nil; e = h.rotation.Front() {
		a := e.Value.(*address)
		h.rotation.MoveToBack(e)
		first := a.line.Front()
		if first == nil {
			h.rotation.Remove(e)
			a.rotates = nil
			continue
		}
		next := a.line.Remove(first).(*shaking)
		next.inLine, next.holds = nil, true
		next.turn <- struct{}{}
		return
	}
	h.turns++
}

// close refuses further handshakes and returns the connections of those under way.
func (h *handshakes) close() (open []net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, a := range h.addresses {
		for s := range a.all {
			open = append(open, s.raw)
		}
	}
	return open
}

// waitingHeap orders handshakes for package container/heap, the longest waiting
// first.
type waitingHeap []*shaking

func (w waitingHeap) Len() int { return len(w) }

func (w waitingHeap) Less(i, j int) bool {
	if w[i].began.Equal(w[j].began) {
		return w[i].rank < w[j].rank
	}
	return w[i].began.Before(w[j].began)
}

func (w waitingHeap) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].place, w[j].place = i, j
}

func (w *waitingHeap) Push(x any) {
	s := x.(*shaking)
	s.place = len(*w)
	*w = append(*w, s)
}

func (w *waitingHeap) Pop() any {
	n := len(*w) - 1
	s := (*w)[n]
	(*w)[n] = nil
	*w = (*w)[:n]
	s.place = -1
	return s
}
