package term

import (
	"sync"
	"sync/atomic"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// endings proposes the slices in which large sessions end, and in which the waiters are granted
// that a step has put off: see machine.EndSlice and machine.AdmitSlice.
//
// One slice is in flight at a time, of all sessions together. Members take turns, and so do the
// ending sessions of each: a member may end thousands, and another one's Close must not wait for them. Every
// second slice is for waiters that were put off, for the same reason. So an entry has one slice at most beside the commands of clients, and beats never
// wait for more than that: they do not wait for the table at all, once their session is
// routed.
//
// For the clients a session is over with the entry that marks it as ending. Only three
// callers wait for the last slice: the client that has closed the session, and a later
// process of a member that forgets the sessions of an earlier one, which both may say that
// the keys are free; and an operator who waits for the end (see Term.Sessions).
//
// A new leader finds the unfinished sessions in its table and goes on. Two leaders do no
// harm: each slice takes what is left.
type endings struct {
	t *Term

	mu    sync.Mutex
	turns []string                           // members with unfinished sessions, the next one first
	of    map[string][]machine.SessionID     // the sessions of each, in turn
	known map[machine.SessionID][]func(bool) // the same; and who waits for the end
	pasts map[machine.Forget][]func(bool)    // who waits for all sessions of a past, beside those of a walk
	late  bool                               // waiters are put off
	last  machine.Command                    // the slice in flight, or the last one
	busy  bool                               // a slice is in flight
	ended bool
}

func newEndings(t *Term) *endings {
	return &endings{
		t: t, of: make(map[string][]machine.SessionID), known: make(map[machine.SessionID][]func(bool)),
		pasts: make(map[machine.Forget][]func(bool)),
	}
}

// begin takes what is unfinished in the table.
func (e *endings) begin() {
	var list []machine.SessionStatus
	late := false
	e.t.table.View(func(m *machine.State) {
		late = m.HasPutOff()
		for _, id := range m.Unfinished() {
			st, _ := m.Session(id)
			list = append(list, st)
		}
	})
	e.mu.Lock()
	e.late = e.late || late
	for _, st := range list {
		e.addLocked(st.ID, st.Node)
	}
	e.mu.Unlock()
}

// add notes that a session is unfinished. Raft's goroutine calls add, with the table at
// the entry.
func (e *endings) add(id machine.SessionID) {
	unfinished, node := false, ""
	e.t.table.View(func(m *machine.State) {
		if unfinished = m.IsUnfinished(id); unfinished {
			st, _ := m.Session(id)
			node = st.Node
		}
	})
	if !unfinished {
		return // a revoked session without waiters, or gone with the same entry
	}
	e.mu.Lock()
	e.addLocked(id, node)
	e.mu.Unlock()
	e.next() // queues a command, no more
}

// putOff notes that waiters are put off, as add notes a session.
func (e *endings) putOff() {
	e.mu.Lock()
	e.late = true
	e.mu.Unlock()
	e.next()
}

func (e *endings) addLocked(id machine.SessionID, node string) {
	if _, known := e.known[id]; known || e.ended {
		return
	}
	e.known[id] = nil
	if len(e.of[node]) == 0 {
		e.turns = append(e.turns, node)
	}
	e.of[node] = append(e.of[node], id)
}

func (e *endings) isUnfinished(id machine.SessionID) bool {
	return view(e.t.table, func(m *machine.State) bool { return m.IsUnfinished(id) })
}

// next proposes the next slice, unless one is in flight. The tick calls next too, for a
// slice that found no room.
func (e *endings) next() {
	e.mu.Lock()
	slice := e.nextLocked()
	if slice == nil {
		e.mu.Unlock()
		return
	}
	e.last, e.busy = slice, true
	e.mu.Unlock()
	e.t.Decide(slice, func(o machine.Outcome, c wire.Code) { e.decided(slice, o, c) })
}

// nextLocked returns the slice whose turn it is; nil: none.
func (e *endings) nextLocked() machine.Command {
	_, wasLate := e.last.(machine.AdmitSlice)
	switch {
	case e.busy || e.ended:
		return nil
	case e.late && !(wasLate && len(e.turns) > 0):
		return machine.AdmitSlice{}
	case len(e.turns) > 0:
		return machine.EndSlice{Session: e.of[e.turns[0]][0]}
	}
	return nil
}

// decided takes the verdict on a slice. What the table has left is looked up with mu, so that no
// call of add or putOff falls between.
func (e *endings) decided(slice machine.Command, o machine.Outcome, c wire.Code) {
	e.mu.Lock()
	e.busy = false
	var waiting []func(bool)
	if c == wire.CodeOK && !e.ended {
		if end, ok := slice.(machine.EndSlice); !ok {
			e.late = view(e.t.table, (*machine.State).HasPutOff)
		} else {
			// A revoked session without waiters may have begun to end in the same entry.
			waiting = e.passLocked(o.Code == machine.Unfinished || e.isUnfinished(end.Session))
		}
	}
	e.mu.Unlock()
	for _, done := range waiting {
		done(true)
	}
	if c == wire.CodeOK {
		e.next()
	}
}

// passLocked ends the turn of the next session, and of its member. Unless the session is
// unfinished, it is forgotten, and passLocked returns who waits for its end.
func (e *endings) passLocked(unfinished bool) (waiting []func(bool)) {
	node := e.turns[0]
	id, rest := e.of[node][0], e.of[node][1:]
	if unfinished {
		rest = append(rest, id)
	} else {
		waiting = e.known[id]
		delete(e.known, id)
	}
	e.turns = e.turns[1:]
	if len(rest) == 0 {
		delete(e.of, node)
		return waiting
	}
	e.of[node] = rest
	e.turns = append(e.turns, node)
	return waiting
}

// closed returns done for a Close. The answer waits until the last key of the session is
// free. So does the answer to a Close that comes again, to this leader or the next.
func (e *endings) closed(id machine.SessionID, done func(machine.Outcome, wire.Code)) func(machine.Outcome, wire.Code) {
	return func(o machine.Outcome, c wire.Code) {
		if c != wire.CodeOK || o.Code != machine.Unfinished && o.Code != machine.NoSession {
			done(o, c)
			return
		}
		if o.Code == machine.Unfinished {
			o.Code = machine.OK
		}
		e.await(id, func(ended bool) {
			if ended {
				done(o, wire.CodeOK)
			} else {
				done(machine.Outcome{}, wire.CodeUnknown) // the session is over, and its keys are not free yet
			}
		})
	}
}

// forgotten returns done for a Forget. As with a Close, the answer waits until the last key
// of the process is free: the caller says then that they are.
func (e *endings) forgotten(c machine.Forget, done func(machine.Outcome, wire.Code)) func(machine.Outcome, wire.Code) {
	return func(o machine.Outcome, code wire.Code) {
		if code != wire.CodeOK || o.Code != machine.Unfinished {
			done(o, code)
			return
		}
		if view(e.t.table, func(m *machine.State) bool { return m.IsLeft(c) }) {
			e.t.Decide(c, e.forgotten(c, func(o machine.Outcome, code wire.Code) {
				if code != wire.CodeOK {
					code = wire.CodeUnknown // the first Forget is in the log
				}
				done(o, code)
			}))
			return
		}
		e.awaitPast(c, func(ended bool) {
			if ended {
				done(machine.Outcome{Code: machine.OK}, wire.CodeOK)
			} else {
				done(machine.Outcome{}, wire.CodeUnknown)
			}
		})
	}
}

// awaitPast calls done when the sessions that c names are gone: with false if the term ends
// before. However many ask for the same, the sessions are waited for once.
func (e *endings) awaitPast(c machine.Forget, done func(ended bool)) {
	e.mu.Lock()
	waiting, walking := e.pasts[c]
	if !e.ended {
		e.pasts[c] = append(waiting, done)
	}
	ended := e.ended
	e.mu.Unlock()
	switch {
	case ended:
		done(false)
	case !walking:
		e.walkPast(c)
	}
}

// walkPast waits for the sessions that c names, and answers those who asked before. Who asks
// meanwhile may have marked further sessions, and is answered by the next walk.
func (e *endings) walkPast(c machine.Forget) {
	e.mu.Lock()
	asked := e.pasts[c]
	if len(asked) == 0 {
		delete(e.pasts, c)
		e.mu.Unlock()
		return
	}
	e.pasts[c] = nil
	e.mu.Unlock()
	left := view(e.t.table, func(m *machine.State) []machine.SessionID { return m.UnfinishedOf(c) })
	var waits atomic.Int64
	var failed atomic.Bool
	waits.Store(int64(len(left)) + 1)
	one := func(ended bool) {
		if !ended {
			failed.Store(true)
		}
		if waits.Add(-1) > 0 {
			return
		}
		for _, done := range asked {
			done(!failed.Load())
		}
		e.walkPast(c)
	}
	for _, id := range left {
		e.await(id, one)
	}
	one(true)
}

// await calls done when the session is gone: with false if the term ends before. A session
// that is not ending is gone; one that ends without being known here came behind the end of
// the term.
func (e *endings) await(id machine.SessionID, done func(ended bool)) {
	e.mu.Lock()
	waiting, known := e.known[id]
	if known {
		e.known[id] = append(waiting, done)
	}
	ended := e.ended
	e.mu.Unlock()
	if !known {
		done(!ended && !e.isUnfinished(id))
	}
}

// stop ends every wait.
func (e *endings) stop() {
	e.mu.Lock()
	e.ended = true
	known := e.known
	e.known, e.of, e.turns = nil, nil, nil
	e.mu.Unlock()
	for _, waiting := range known {
		for _, done := range waiting {
			done(false) // a walk goes on, and its last one finds every session unknown
		}
	}
}
