package machine

import (
	"iter"
	"slices"
	"sort"
	"strings"
)

// ordered is a set of strings in ascending order: chunks of a few hundred, so
// that a change moves little. Not a tree: a million keys are four thousand
// chunks, which a search halves twelve times. The zero value is ready.
type ordered struct {
	chunks [][]string // none empty
	n      int
}

const maxChunkLen = 512

// chunk returns the index of the chunk in which k is or would be.
func (o *ordered) chunk(k string) int {
	i := sort.Search(len(o.chunks), func(i int) bool { return o.chunks[i][0] > k })
	return max(i-1, 0)
}

func (o *ordered) add(k string) {
	if len(o.chunks) == 0 {
		o.chunks = append(o.chunks, []string{k})
		o.n++
		return
	}
	i := o.chunk(k)
	c := o.chunks[i]
	at, found := slices.BinarySearch(c, k)
	if found {
		return
	}
	o.n++
	c = slices.Insert(c, at, k)
	o.chunks[i] = c
	if len(c) > maxChunkLen {
		half := slices.Clone(c[len(c)/2:])
		clear(c[len(c)/2:])
		o.chunks[i] = c[:len(c)/2]
		o.chunks = slices.Insert(o.chunks, i+1, half)
	}
}

// fill makes the set of strings that ascend.
func (o *ordered) fill(sorted []string) {
	*o = ordered{n: len(sorted)}
	for c := range slices.Chunk(sorted, maxChunkLen/2) {
		o.chunks = append(o.chunks, slices.Clone(c))
	}
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
	o.n--
	o.chunks[i] = slices.Delete(o.chunks[i], at, at+1)
	if len(o.chunks[i]) == 0 {
		o.chunks = slices.Delete(o.chunks, i, i+1)
	}
}

func (o *ordered) all() []string { return slices.Concat(o.chunks...) }

// from yields the strings from first on that begin with prefix. The set must
// not be changed meanwhile.
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
				if !strings.HasPrefix(k, prefix) || !yield(k) {
					return
				}
			}
		}
	}
}
