package machine

import (
	"iter"
	"slices"
	"sort"
	"strings"
)

// ordered is a set of strings in ascending order, in chunks of a few hundred so
// that a change moves few strings. Not a tree: a million keys are four thousand
// chunks, and a binary search among these takes twelve steps. The zero value is
// an empty set.
type ordered struct{ chunks [][]string } // none empty

const maxChunkLen = 512

// chunk returns the index of the chunk for k.
func (o *ordered) chunk(k string) int {
	i := sort.Search(len(o.chunks), func(i int) bool { return o.chunks[i][0] > k })
	return max(i-1, 0)
}

// move adds k to the set, or removes k from it.
func (o *ordered) move(k string, add bool) {
	if add {
		o.add(k)
	} else {
		o.remove(k)
	}
}

func (o *ordered) add(k string) {
	if len(o.chunks) == 0 {
		o.chunks = append(o.chunks, []string{k})
		return
	}
	i := len(o.chunks) - 1
	c := o.chunks[i]
	at := len(c)
	if k <= c[at-1] { // strings that come in order need no search
		i = o.chunk(k)
		c = o.chunks[i]
		var found bool
		if at, found = slices.BinarySearch(c, k); found {
			return
		}
	}
	if len(c) == maxChunkLen {
		if i == len(o.chunks)-1 && at == len(c) {
			// Full chunks for strings that come in order, and room for more of them at once.
			o.chunks = append(o.chunks, append(make([]string, 0, maxChunkLen), k))
			return
		}
		half := len(c) / 2
		o.chunks = slices.Insert(o.chunks, i+1, slices.Clone(c[half:]))
		c = slices.Clone(c[:half])
		o.chunks[i] = c
		if at > half {
			i, at, c = i+1, at-half, o.chunks[i+1]
		}
	}
	if len(c) == cap(c) {
		// Not by half or more, as append would: a million keys have a place each here.
		c = append(make([]string, 0, min(len(c)+len(c)/4+4, len(c)+64, maxChunkLen)), c...)
	}
	o.chunks[i] = slices.Insert(c, at, k)
}

func (o *ordered) remove(k string) {
	if len(o.chunks) == 0 {
		return
	}
	i := o.chunk(k)
	at, found := slices.BinarySearch(o.chunks[i], k)
	if !found {
		return
	}
	o.chunks[i] = slices.Delete(o.chunks[i], at, at+1)
	if len(o.chunks[i]) == 0 {
		o.chunks = slices.Delete(o.chunks, i, i+1)
	}
}

func (o *ordered) all() []string { return slices.Concat(o.chunks...) }

// from yields the strings from first on that begin with prefix. The set must
// not change meanwhile.
func (o *ordered) from(first, prefix string) iter.Seq[string] {
	first = max(first, prefix)
	return func(yield func(string) bool) {
		if len(o.chunks) == 0 {
			return
		}
		i := o.chunk(first)
		at, _ := slices.BinarySearch(o.chunks[i], first)
		for ; i < len(o.chunks); i, at = i+1, 0 {
			for _, k := range o.chunks[i][at:] {
				if look(1); !strings.HasPrefix(k, prefix) || !yield(k) {
					return
				}
			}
		}
	}
}

// under yields the strings below p: see isBelow. It is from without the memory of p and a
// slash, which a set of a thousand keys would take thousands of times.
func (o *ordered) under(p string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if len(o.chunks) == 0 {
			return
		}
		i := sort.Search(len(o.chunks), func(i int) bool { return compareBelow(o.chunks[i][0], p) > 0 })
		i = max(i-1, 0)
		at, _ := slices.BinarySearchFunc(o.chunks[i], p, compareBelow)
		for ; i < len(o.chunks); i, at = i+1, 0 {
			for _, k := range o.chunks[i][at:] {
				if look(1); !isBelow(k, p) || !yield(k) {
					return
				}
			}
		}
	}
}

// after returns the first string above k.
func (o *ordered) after(k string) (next string, ok bool) {
	if len(o.chunks) == 0 {
		return "", false
	}
	i := o.chunk(k)
	at, found := slices.BinarySearch(o.chunks[i], k)
	if found {
		at++
	}
	if at == len(o.chunks[i]) {
		i, at = i+1, 0
	}
	look(1)
	if i == len(o.chunks) {
		return "", false
	}
	return o.chunks[i][at], true
}

// StringSet is a set of strings in ascending order, for other packages. The zero value is
// an empty set.
type StringSet struct{ o ordered }

// Add adds k. A second Add of it does nothing.
func (s *StringSet) Add(k string) { s.o.add(k) }

// Remove removes k, if it is in the set.
func (s *StringSet) Remove(k string) { s.o.remove(k) }

// From yields the strings from first on that begin with prefix. The set must not change
// meanwhile.
func (s *StringSet) From(first, prefix string) iter.Seq[string] { return s.o.from(first, prefix) }
