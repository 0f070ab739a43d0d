package machine

import (
	"math"
	"slices"
	"sort"
)

// MaxGaps bounds the gaps among a session's spent seqs: seqs that were never
// heard of below one that was. A client that sends or marks as seen what it
// numbers leaves a gap only while a request is under way.
const MaxGaps = 1 << 16

// spans is a set of seqs as sorted ranges that neither overlap nor touch. Seqs
// are spent nearly in order, so the set is nearly always one range.
//
// Not the seqs that were seen, which would leave a gap at each waiter of a
// client with a hundred thousand of them: also those whose outcome is still
// remembered are in the set, and the memory is asked first.
type spans []span

type span struct{ first, last uint64 }

// find returns the index of the first range that ends at or after seq, and
// whether it contains seq.
func (p spans) find(seq uint64) (int, bool) {
	n := len(p)
	if n == 0 || p[n-1].last < seq {
		return n, false
	}
	i := sort.Search(n, func(i int) bool { return p[i].last >= seq })
	return i, p[i].first <= seq
}

func (p spans) has(seq uint64) bool {
	_, ok := p.find(seq)
	return ok
}

// add puts seq, not 0, into the set. It changes nothing and returns false if
// that would leave more than MaxGaps gaps.
func (p *spans) add(seq uint64) bool {
	s := *p
	i, ok := s.find(seq)
	if ok {
		return true
	}
	left := i > 0 && s[i-1].last == seq-1
	right := i < len(s) && s[i].first-1 == seq
	switch {
	case left && right:
		s[i-1].last = s[i].last
		*p = slices.Delete(s, i, i+1)
	case left:
		s[i-1].last = seq
	case right:
		s[i].first = seq
	case len(s) > MaxGaps:
		return false
	default:
		*p = slices.Insert(s, i, span{seq, seq})
	}
	return true
}

// valid reports whether the set is as add leaves it.
func (p spans) valid() bool {
	if len(p) > MaxGaps+1 {
		return false
	}
	for i, r := range p {
		if r.first == 0 || r.first > r.last {
			return false
		}
		if i > 0 && (p[i-1].last == math.MaxUint64 || r.first <= p[i-1].last+1) {
			return false
		}
	}
	return true
}
