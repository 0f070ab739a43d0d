package machine

import (
	"math"
	"slices"
	"sort"
)

// spans is a set of seqs as sorted ranges that neither overlap nor touch. Seqs
// are spent nearly in order, so the set is nearly always one range.
//
// Not only the seqs with seen outcomes: a client with a hundred thousand waiters
// would leave a gap at each. A seq with a remembered outcome is in the set too, and
// answerCopy looks for the outcome first.
type spans []span

type span struct{ first, last uint64 }

// find returns the index of the first range that ends at or after seq, and whether
// the range contains seq.
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

// add puts seq, not 0, into the set. If the set would have more than MaxGaps gaps,
// add changes nothing and returns false.
func (p *spans) add(seq uint64) bool {
	s := *p
	i, ok := s.find(seq)
	if ok {
		return true
	}
	before := i > 0 && s[i-1].last == seq-1
	after := i < len(s) && s[i].first-1 == seq
	switch {
	case before && after:
		s[i-1].last = s[i].last
		*p = slices.Delete(s, i, i+1)
	case before:
		s[i-1].last = seq
	case after:
		s[i].first = seq
	case len(s) > MaxGaps:
		return false
	default:
		*p = slices.Insert(s, i, span{seq, seq})
	}
	return true
}

// addAll adds seqs in one pass: a client may list thousands, each of which would move
// half a set of a million bytes. If the set would have more than MaxGaps gaps, addAll
// leaves the set as it is and returns false. addAll changes the list seqs.
func (p *spans) addAll(seqs []uint64) bool {
	old := *p
	seqs = slices.DeleteFunc(seqs, old.has)
	if len(seqs) <= 1 {
		return len(seqs) == 0 || p.add(seqs[0])
	}
	slices.Sort(seqs)
	all := make(spans, 0, len(old)+len(seqs))
	for i := 0; i < len(old) || len(seqs) > 0; {
		var next span
		if i == len(old) || len(seqs) > 0 && seqs[0] < old[i].first {
			next, seqs = span{seqs[0], seqs[0]}, seqs[1:]
		} else {
			next, i = old[i], i+1
		}
		if n := len(all) - 1; n >= 0 && next.first-1 <= all[n].last {
			all[n].last = max(all[n].last, next.last)
		} else {
			all = append(all, next)
		}
	}
	if len(all) > MaxGaps+1 {
		return false
	}
	*p = all
	return true
}

// valid reports whether the set is in the form that add leaves.
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
