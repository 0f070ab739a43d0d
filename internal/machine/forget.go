package machine

import (
	"cmp"
	"encoding/binary"
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
	finished, more := true, false
	var gone []*session
	for o := range s.sessionsOf(c.Node, c.Boot) { // in the order of the IDs
		switch {
		case o.ending != 0:
			finished = false // by an earlier Forget, or by its client
		case len(gone) == s.slice:
			more = true
		default:
			gone = append(gone, o)
		}
		if more {
			break
		}
	}
	finished = s.endSessions(gone, Ended, workPerKey*s.slice) && finished && !more
	s.noteEnded(endedBoot{c.Node, c.Boot, more})
	if !finished {
		return Outcome{Code: Unfinished}
	}
	return Outcome{Code: OK}
}

// processEntry is the place of a session in State.processes: the process, then the ID.
func processEntry(node string, boot uint64, id []byte) string {
	b := append(make([]byte, 0, 1+len(node)+8+len(id)), byte(len(node)))
	b = append(b, node...)
	b = binary.BigEndian.AppendUint64(b, boot)
	return string(append(b, id...))
}

// sessionsOf yields the sessions of a process, open or ending, in the order of their IDs.
// The set of sessions must not change meanwhile.
func (s *State) sessionsOf(node string, boot uint64) iter.Seq[*session] {
	prefix := processEntry(node, boot, nil)
	return func(yield func(*session) bool) {
		for entry := range s.processes.from("", prefix) {
			if !yield(s.sessions.get(SessionID([]byte(entry[len(prefix):])))) {
				return
			}
		}
	}
}

// IsLeft reports whether sessions of a process are open, for another Forget to end.
func (s *State) IsLeft(node string, boot uint64) bool {
	for o := range s.sessionsOf(node, boot) {
		if o.ending == 0 {
			return true
		}
	}
	return false
}

// UnfinishedOf returns, in ascending order, the sessions of one process that are ending.
func (s *State) UnfinishedOf(node string, boot uint64) (list []SessionID) {
	for o := range s.sessionsOf(node, boot) {
		if o.ending != 0 {
			list = append(list, o.id)
		}
	}
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
