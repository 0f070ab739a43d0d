package machine

import (
	"cmp"
	"slices"
	"strings"
)

// endedBoot is the latest process of a node that has ended, by the word of Forget.
type endedBoot struct {
	node string
	boot uint64
}

// forget ends the sessions of one process, and remembers that the
// process and all earlier ones of the node have ended: an Open of theirs may still
// lie in a buffer of the network.
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
	var gone []*session
	finished := true
	for _, o := range s.sessions.all {
		switch {
		case o.node != c.Node || o.boot != c.Boot:
		case o.ending == 0:
			gone = append(gone, o)
		default:
			finished = false // by an earlier copy of the Forget, or by its client
		}
	}
	// In the order of the IDs, so that nothing depends on the order of a map.
	slices.SortFunc(gone, func(a, b *session) int { return compareSessions(a.id, b.id) })
	finished = s.endSessions(gone, Ended, workPerKey*s.slice) && finished
	s.noteEnded(endedBoot{c.Node, c.Boot})
	if !finished {
		return Outcome{Code: Unfinished}
	}
	return Outcome{Code: OK}
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
	if known && s.ended[i].boot >= e.boot {
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
