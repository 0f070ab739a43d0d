package machine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"slices"
	"strings"
)

// endedBoot is the latest process of a node with a directory that has ended, by the word of
// Forget.
type endedBoot struct {
	node string
	dir  DirID
	boot uint64
	left bool // sessions of it are open: the next Forget goes on
}

// compare orders the list of ended processes.
func (e endedBoot) compare(node string, dir DirID) int {
	return cmp.Or(strings.Compare(e.node, node), bytes.Compare(e.dir[:], dir[:]))
}

// forget ends the sessions of one process, and remembers that the
// process and all earlier ones of the node with the same directory have ended: an Open of
// theirs may still lie in a buffer of the network. Sessions of other directories under the
// same name and boot stay: a Forget says nothing of them, since its sender has the key
// of one directory.
//
// A process may have thousands of sessions, so one Forget ends MaxSlice of them, the first
// by ID. The outcome is Unfinished while any are left, and the leader proposes the same
// Forget again. If the leader changes meanwhile, the client does so; otherwise these
// sessions expire, like those of every process that has ended.
//
// Memory stays bounded, because forgetting a process too early is harmless: the
// Open of a dead process then opens a session for nobody, and the session expires
// like any unheard one. So of more than MaxEnded processes, the one that
// started first is dropped.
func (s *State) forget(c Forget) Outcome {
	switch {
	case c.Node == "" || !validName(c.Node):
		return bad("Node", MaxName)
	case c.Boot == 0:
		return bad("Boot", 0)
	case c.Dir == (DirID{}):
		return bad("Dir", 0)
	}
	finished, more := true, false
	var gone []*session
	for o := range s.sessionsOf(c.Node, c.Dir, c.Boot) { // in the order of the IDs
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
	s.noteEnded(endedBoot{c.Node, c.Dir, c.Boot, more})
	if !finished {
		return Outcome{Code: Unfinished}
	}
	return Outcome{Code: OK}
}

// processEntry is the place of a session in State.processes: the process, then the ID. A
// session of a process without a directory has no place there: no Forget names it.
func (o *session) processEntry() string { return processEntry(o.node, o.dir, o.boot, o.id[:]) }

func processEntry(node string, dir DirID, boot uint64, id []byte) string {
	b := append(make([]byte, 0, 1+len(node)+len(dir)+8+len(id)), byte(len(node)))
	b = append(append(b, node...), dir[:]...)
	b = binary.BigEndian.AppendUint64(b, boot)
	return string(append(b, id...))
}

// sessionsOf yields the sessions of a process, open or ending, in the order of their IDs.
// The set of sessions must not change meanwhile.
func (s *State) sessionsOf(node string, dir DirID, boot uint64) iter.Seq[*session] {
	prefix := processEntry(node, dir, boot, nil)
	return func(yield func(*session) bool) {
		for entry := range s.processes.from("", prefix) {
			if !yield(s.sessions.get(SessionID([]byte(entry[len(prefix):])))) {
				return
			}
		}
	}
}

// IsLeft reports whether sessions are open that c names, for another Forget to end.
func (s *State) IsLeft(c Forget) bool {
	for o := range s.sessionsOf(c.Node, c.Dir, c.Boot) {
		if o.ending == 0 {
			return true
		}
	}
	return false
}

// UnfinishedOf returns, in ascending order, the sessions that c names and that are ending.
func (s *State) UnfinishedOf(c Forget) (list []SessionID) {
	for o := range s.sessionsOf(c.Node, c.Dir, c.Boot) {
		if o.ending != 0 {
			list = append(list, o.id)
		}
	}
	return list
}

// noteEnded makes a new list: the present one may belong to an image.
func (s *State) noteEnded(e endedBoot) {
	i, known := s.endedOf(e.node, e.dir)
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
			return cmp.Or(cmp.Compare(a.boot, b.boot), a.compare(b.node, b.dir))
		})
		list = slices.DeleteFunc(list, func(o endedBoot) bool { return o == first })
	}
	s.ended = list
}

// endedOf returns the place of a node and directory in the list of ended processes, and
// whether they are in the list.
func (s *State) endedOf(node string, dir DirID) (i int, known bool) {
	return slices.BinarySearchFunc(s.ended, dir, func(o endedBoot, dir DirID) int { return o.compare(node, dir) })
}

// hasEnded reports whether a node's process is known to have ended.
func (s *State) hasEnded(node string, dir DirID, boot uint64) bool {
	i, known := s.endedOf(node, dir)
	return known && boot <= s.ended[i].boot
}
