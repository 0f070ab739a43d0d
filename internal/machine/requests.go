package machine

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"slices"
)

// requests is a session's requests, found by seq and, if granted, by token. Not two maps:
// a session may hold fifty thousand keys, and a million held keys would take 85 bytes each
// in maps, against 50 bytes here. The zero value is empty.
type requests struct {
	list    []request
	free    []uint32 // places in list without a request
	bySeq   places32
	byToken places32
	pending int // requests that pend
}

// smallRequests is the number of requests whose memory is used again once there are none.
const smallRequests = 64

// request is an element of requests. The grant's token, below MaxToken, leaves room for the
// rest of the location.
type request struct {
	seq   uint64
	token uint64 // see packLocation
	key   string
}

const (
	setBit    = 1 << 63
	phaseAt   = 61
	phaseMask = 3
	pendsBit  = 1 << 60 // there is something to tell the client: see State.Pending
	tokenMask = pendsBit - 1
)

func (r *request) location() location {
	return location{
		key:   r.key,
		token: Token(r.token & tokenMask),
		set:   r.token&setBit != 0,
		phase: phase(r.token >> phaseAt & phaseMask),
	}
}

func pack(at location) uint64 {
	return uint64(at.token) | uint64(at.phase)<<phaseAt | bit(at.set, setBit)
}

// hasGrant reports whether the request is in byToken.
func (r *request) hasGrant() bool { return r.token&tokenMask != 0 }

func (r *requests) len() int    { return r.bySeq.n }
func (r *requests) grants() int { return r.byToken.n }

// get returns the location of the request of seq, and whether there is one.
func (r *requests) get(seq uint64) (location, bool) {
	if i := r.find(seq); i >= 0 {
		return r.list[i].location(), true
	}
	return location{}, false
}

// at is get of a request that there is.
func (r *requests) at(seq uint64) location {
	at, _ := r.get(seq)
	return at
}

// granted returns the seq of the request that was granted under token.
func (r *requests) granted(token Token) (seq uint64, ok bool) {
	i := r.byToken.find(mix(uint64(token)), func(i uint32) bool { return r.list[i].token&tokenMask == uint64(token) })
	if i < 0 || token == 0 {
		return 0, false
	}
	return r.list[i].seq, true
}

func (r *requests) find(seq uint64) int64 {
	return r.bySeq.find(mix(seq), func(i uint32) bool { return r.list[i].seq == seq })
}

// set puts the request of seq at a location, or moves the request there. The result is its
// place in the list.
func (r *requests) set(seq uint64, at location) int {
	if i := r.find(seq); i >= 0 {
		e := &r.list[i]
		pends := e.token & pendsBit
		if Token(e.token&tokenMask) != at.token {
			r.forgetToken(uint32(i))
			e.token = pack(at)
			r.noteToken(uint32(i))
		}
		e.token, e.key = pack(at)|pends, at.key
		return int(i)
	}
	var i uint32
	if n := len(r.free); n > 0 {
		i, r.free = r.free[n-1], r.free[:n-1]
	} else {
		i = uint32(len(r.list))
		r.list = append(r.list, request{})
	}
	r.list[i] = request{seq: seq, token: pack(at), key: at.key}
	r.bySeq.add(i, mix(seq), r.seqHash)
	r.noteToken(i)
	return int(i)
}

// pend notes whether there is something to tell the client about the request of seq.
func (r *requests) pend(seq uint64, pends bool) {
	if i := r.find(seq); i >= 0 {
		r.pendAt(int(i), pends)
	}
}

// pendLast is pend of the request appended last.
func (r *requests) pendLast() { r.pendAt(len(r.list)-1, true) }

func (r *requests) pendAt(i int, pends bool) {
	switch e := &r.list[i]; {
	case pends == e.pends():
	case pends:
		e.token |= pendsBit
		r.pending++
	default:
		e.token &^= pendsBit
		r.pending--
	}
}

func (r *request) pends() bool { return r.token&pendsBit != 0 }

// pendingSeqs returns the seqs of the requests that pend, in order.
func (r *requests) pendingSeqs() []uint64 {
	if r.pending == 0 {
		return nil
	}
	seqs := make([]uint64, 0, r.pending)
	for i := range r.list {
		if r.list[i].pends() {
			seqs = append(seqs, r.list[i].seq)
		}
	}
	slices.Sort(seqs)
	return seqs
}

// append adds a request, to be found after the next call of build: a restored table has a
// million requests, of all sessions by turns, and builds the tables of one session at a time.
func (r *requests) append(seq uint64, at location) {
	r.list = append(r.list, request{seq: seq, token: pack(at), key: at.key})
}

// build makes the appended requests known. If two of them have one seq, they are returned.
func (r *requests) build() (one, other *request) {
	grants := 0
	for i := range r.list {
		if r.list[i].hasGrant() {
			grants++
		}
	}
	r.bySeq.reserve(len(r.list))
	r.byToken.reserve(grants)
	for i := range r.list {
		e := &r.list[i]
		if j := r.find(e.seq); j >= 0 {
			return &r.list[j], e
		}
		r.bySeq.add(uint32(i), mix(e.seq), r.seqHash)
		r.noteToken(uint32(i))
	}
	return nil, nil
}

// remove forgets the request of seq, if there is one.
func (r *requests) remove(seq uint64) {
	i := r.find(seq)
	if i < 0 {
		return
	}
	r.pendAt(int(i), false)
	r.forgetToken(uint32(i))
	r.bySeq.remove(uint32(i), mix(seq), r.seqHash)
	r.list[i] = request{}
	switch {
	case r.bySeq.n > 0:
		r.free = append(r.free, uint32(i))
	case len(r.list) > smallRequests:
		*r = requests{}
	default:
		r.list, r.free = r.list[:0], r.free[:0]
	}
}

func (r *requests) noteToken(i uint32) {
	if r.list[i].hasGrant() {
		r.byToken.add(i, r.tokenHash(i), r.tokenHash)
	}
}

func (r *requests) forgetToken(i uint32) {
	if r.list[i].hasGrant() {
		r.byToken.remove(i, r.tokenHash(i), r.tokenHash)
	}
}

func (r *requests) seqHash(i uint32) uint64   { return mix(r.list[i].seq) }
func (r *requests) tokenHash(i uint32) uint64 { return mix(r.list[i].token & tokenMask) }

// all yields the requests, in no order. They must not change meanwhile.
func (r *requests) all() iter.Seq2[uint64, location] {
	return func(yield func(uint64, location) bool) {
		for i := range r.list {
			if e := &r.list[i]; e.seq != 0 && !yield(e.seq, e.location()) {
				return
			}
		}
	}
}

// found reports whether each request is found by its seq and by its token, and nothing else
// is: for Check.
func (r *requests) found() bool {
	n, granted, pending := 0, 0, 0
	for i := range r.list {
		e := &r.list[i]
		if e.seq == 0 {
			continue
		}
		n++
		if e.pends() {
			pending++
		}
		if r.find(e.seq) != int64(i) {
			return false
		}
		if e.hasGrant() {
			granted++
			if seq, ok := r.granted(Token(e.token & tokenMask)); !ok || seq != e.seq {
				return false
			}
		}
	}
	return n == r.bySeq.n && granted == r.byToken.n && pending == r.pending && n+len(r.free) == len(r.list)
}

// places32 is a hash table of numbers, each stored as one above itself; 0 is an empty place.
// Collisions are resolved by the next place. The table is nowhere in an image, and its order
// decides nothing.
type places32 struct {
	n     int
	table []uint32
}

// A table is full at fullNum of fullDen places, and then grows by a half.
const (
	fullNum = 7
	fullDen = 8
)

func (p *places32) home(hash uint64) int {
	i, _ := bits.Mul64(hash, uint64(len(p.table)))
	return int(i)
}

func (p *places32) next(at int) int {
	if at++; at == len(p.table) {
		return 0
	}
	return at
}

// find returns the number of the given hash for which is is true, -1 if there is none.
func (p *places32) find(hash uint64, is func(uint32) bool) int64 {
	if p.n == 0 {
		return -1
	}
	for at := p.home(hash); p.table[at] != 0; at = p.next(at) {
		if i := p.table[at] - 1; is(i) {
			return int64(i)
		}
	}
	return -1
}

// add adds i of the given hash, which is not in the table. hashOf is the hash of a number in
// the table.
func (p *places32) add(i uint32, hash uint64, hashOf func(uint32) uint64) {
	if fullDen*(p.n+1) > fullNum*len(p.table) {
		p.resize(max(4, len(p.table)+len(p.table)/2), hashOf)
	}
	p.put(i, hash)
	p.n++
}

// reserve makes an empty table large enough for n numbers.
func (p *places32) reserve(n int) { p.table = make([]uint32, n+n/4+1) }

func (p *places32) put(i uint32, hash uint64) {
	at := p.home(hash)
	for p.table[at] != 0 {
		at = p.next(at)
	}
	p.table[at] = i + 1
}

func (p *places32) resize(n int, hashOf func(uint32) uint64) {
	old := p.table
	p.table = make([]uint32, n)
	for _, i := range old {
		if i != 0 {
			p.put(i-1, hashOf(i-1))
		}
	}
}

// remove removes i of the given hash, which is in the table.
func (p *places32) remove(i uint32, hash uint64, hashOf func(uint32) uint64) {
	at := p.home(hash)
	for p.table[at] != i+1 {
		at = p.next(at)
	}
	p.n--
	// The numbers behind move up, as far as their homes allow: no empty place stands
	// between a number and its home.
	hole := at
	for at = p.next(at); p.table[at] != 0; at = p.next(at) {
		if !within(hole, p.home(hashOf(p.table[at]-1)), at) {
			p.table[hole] = p.table[at]
			hole = at
		}
	}
	p.table[hole] = 0
}

// seeds differ from process to process, so that no client can choose seqs or keys that
// collide. Nothing that voters must agree on depends on them.
var (
	seed  = maphash.MakeSeed()
	seeds = [2]uint64{maphash.String(seed, "a") | 1, maphash.String(seed, "b") | 1}
)

// mix is a hash of a number.
func mix(n uint64) uint64 {
	high, low := bits.Mul64(n^seeds[0], seeds[1])
	high, low = bits.Mul64(high^low, seeds[0])
	return high ^ low
}
