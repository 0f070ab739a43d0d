package machine

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// endedBoot is the latest process of a node that has ended, by the word of Forget.
type endedBoot struct {
	node string
	boot uint64
	left bool // sessions of it are open: the next Forget goes on
}

// forget ends the sessions of one process, and remembers that the
// process and all earlier ones of the node have ended: an Open of theirs may still
// lie in a buffer of the network.
//
// A process may have thousands of sessions, so one Forget ends MaxSlice of them, the first
// by ID. The outcome is Unfinished while any are left, and the leader proposes the same
// Forget again. If the leader changes meanwhile, the client does so; otherwise these
// sessions expire, like those of every process that has ended.
//
// Memory stays bounded, because forgetting a process too early is harmless: the
// Open of a dead process then opens a session for nobody, and the session expires
// like any unheard one. So of more than MaxEnded nodes, the one whose process
// started first is dropped.
func (s *State) forget(c Forget) Outcome {
	switch {
	case c.Node == "" || !validName(c.Node):
		return bad("Node", MaxName)
	case c.Boot == 0:
		return bad("Boot", 0)
	}
	finished := true
	open := func(yield func(*session) bool) {
		for _, o := range s.sessions.all {
			switch {
			case o.node != c.Node || o.boot != c.Boot:
			case o.ending != 0:
				finished = false // by an earlier Forget, or by its client
			case !yield(o):
				return
			}
		}
	}
	// In the order of the IDs, so that nothing depends on the order of a map.
	gone, more := least(open, s.slice, func(a, b *session) int { return compareSessions(a.id, b.id) })
	finished = s.endSessions(gone, Ended, workPerKey*s.slice) && finished && !more
	s.noteEnded(endedBoot{c.Node, c.Boot, more})
	if !finished {
		return Outcome{Code: Unfinished}
	}
	return Outcome{Code: OK}
}

// least returns the n least elements of all, in ascending order, and whether there are
// more. The time is in proportion to the number of elements, for the most part.
func least[E any](all iter.Seq[E], n int, compare func(a, b E) int) (list []E, more bool) {
	cut := func() {
		slices.SortFunc(list, compare)
		if len(list) > n {
			list, more = list[:n], true
		}
	}
	for e := range all {
		if more && compare(e, list[n-1]) > 0 {
			continue
		}
		if list = append(list, e); len(list) == 2*n {
			cut()
		}
	}
	cut()
	return list, more
}

// IsLeft reports whether sessions of a process are open, for another Forget to end.
func (s *State) IsLeft(node string, boot uint64) bool {
	for _, o := range s.sessions.all {
		if o.node == node && o.boot == boot && o.ending == 0 {
			return true
		}
	}
	return false
}

// UnfinishedOf returns, in ascending order, the sessions of one process that are ending.
func (s *State) UnfinishedOf(node string, boot uint64) (list []SessionID) {
	for id, o := range s.sessions.all {
		if o.node == node && o.boot == boot && o.ending != 0 {
			list = append(list, id)
		}
	}
	slices.SortFunc(list, compareSessions)
	return list
}

// noteEnded makes a new list: the present one may belong to an image.
func (s *State) noteEnded(e endedBoot) {
	i, known := slices.BinarySearchFunc(s.ended, e.node, func(o endedBoot, node string) int { return strings.Compare(o.node, node) })
	if known && (s.ended[i].boot > e.boot || s.ended[i] == e) {
		return
	}
	list := slices.Clone(s.ended)
	if known {
		list[i] = e
	} else {
		list = slices.Insert(list, i, e)
	}
	if len(list) > MaxEnded {
		first := slices.MinFunc(list, func(a, b endedBoot) int {
			return cmp.Or(cmp.Compare(a.boot, b.boot), strings.Compare(a.node, b.node))
		})
		list = slices.DeleteFunc(list, func(o endedBoot) bool { return o == first })
	}
	s.ended = list
}

// hasEnded reports whether a node's process is known to have ended.
func (s *State) hasEnded(node string, boot uint64) bool {
	i, known := slices.BinarySearchFunc(s.ended, node, func(o endedBoot, node string) int { return strings.Compare(o.node, node) })
	return known && boot <= s.ended[i].boot
}
