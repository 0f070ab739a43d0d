package machine

import (
	"slices"
	"sort"
)

// owners finds the session of a grant by the grant's lineage token, for grants that the
// session holds and no ghosts. A lineage may name any number of grants of other sessions,
// and of ended grants: a look at each session for each of these tokens would take seconds.
//
// The list is in the order of the tokens, in chunks of a few hundred. Not a map: tokens
// rise, so a new grant is last, and a list takes a third of a map's memory. The zero value
// is empty.
type owners struct{ chunks [][]owned } // none empty

// owned is a grant and the index of its session.
type owned struct {
	token Token // the lineage token
	by    *index
}

const (
	maxOwned = 512          // grants of a chunk
	fewOwned = maxOwned / 4 // grants of a chunk that joins a neighbour
)

// chunk returns the index of the chunk for a token.
func (o *owners) chunk(t Token) int {
	i := sort.Search(len(o.chunks), func(i int) bool { return o.chunks[i][0].token > t })
	return max(i-1, 0)
}

// find returns where the grant of t is, or would be; there must be a chunk.
func (o *owners) find(t Token) (i, at int, found bool) {
	i = o.chunk(t)
	c := o.chunks[i]
	at = sort.Search(len(c), func(j int) bool { return c[j].token >= t })
	return i, at, at < len(c) && c[at].token == t
}

// get returns the index of the session with the grant of t, nil if no session has the grant.
func (o *owners) get(t Token) *index {
	if len(o.chunks) == 0 {
		return nil
	}
	if i, at, found := o.find(t); found {
		return o.chunks[i][at].by
	}
	return nil
}

// add adds a grant that the list does not have.
func (o *owners) add(t Token, by *index) {
	e := owned{t, by}
	last := len(o.chunks) - 1
	if last < 0 {
		o.chunks = append(o.chunks, []owned{e})
		return
	}
	i, c := last, o.chunks[last]
	at := len(c)
	if t < c[at-1].token {
		i, at, _ = o.find(t)
		c = o.chunks[i]
	}
	if len(c) == maxOwned {
		if i == last && at == len(c) {
			// Full chunks for grants that come in order, and room for more of them at once.
			o.chunks = append(o.chunks, append(make([]owned, 0, maxOwned), e))
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
	o.chunks[i] = slices.Insert(c, at, e)
}

// remove removes the grant of t. A chunk with few grants left joins a neighbour: a few
// lasting grants among millions keep no memory of the others.
func (o *owners) remove(t Token) {
	if len(o.chunks) == 0 {
		return
	}
	i, at, found := o.find(t)
	if !found {
		return
	}
	c := slices.Delete(o.chunks[i], at, at+1)
	o.chunks[i] = c
	switch {
	case len(c) == 0:
		o.chunks = slices.Delete(o.chunks, i, i+1)
	case len(c) >= fewOwned:
	case i > 0 && len(o.chunks[i-1]) <= maxOwned/2:
		o.join(i - 1)
	case i+1 < len(o.chunks) && len(o.chunks[i+1]) <= maxOwned/2:
		o.join(i)
	}
}

// join makes one chunk of the chunk at i and the next one.
func (o *owners) join(i int) {
	o.chunks[i] = slices.Concat(o.chunks[i], o.chunks[i+1])
	o.chunks = slices.Delete(o.chunks, i+1, i+2)
}

// all returns the grants in the order of their tokens.
func (o *owners) all() []owned { return slices.Concat(o.chunks...) }
