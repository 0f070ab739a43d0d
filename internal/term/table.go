package term

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/machine"
)

// A Table is this voter's copy of the lock table. Beside the table stand a few
// times of this host's clock: such times belong to this copy and must not
// be in the table itself, because the table is equal on every voter.
//
// Methods may be called from any goroutine. Apply, Configured and Restore are
// called by raft's goroutine, in log order.
type Table struct {
	mu      sync.RWMutex
	m       *machine.State
	config  uint64                          // log index of the last committed raft configuration
	marks   map[machine.SessionID]time.Time // when Silence was applied here
	founded time.Time                       // when Found was applied here
	started time.Time                       // when the last LeaderStart was applied here
	flaps   time.Time                       // when the first of the leaders began of which each led for less than a TTL
	watch   func(applied)                   // the term's; called in log order, without mu
	beyond  bool                            // raised to a format unknown to this version
	rose    time.Time                       // when LastToken rose last

	// Clock is this host's clock, for all times of the table and of a Term on it. It is set
	// before the first use. nil: package time.
	Clock *host.Clock

	groups groupsRead // has a mutex of its own, which is locked after mu

	// The table's sizes after the last entry, to be read without mu: an answer to a beat
	// has the sizes, and must not wait while an entry is applied.
	latest atomic.Pointer[sizes]

	expecting sync.Mutex
	expected  entry         // of the term's proposer
	took      time.Duration // to apply the last entry
}

// sizes are facts of the table after an entry. They never change.
type sizes struct {
	machine.Summary
	lifted bool   // the founding wait is over
	bound  uint64 // of sessions' TTLs, in milliseconds
}

// applied is the effect of a log entry.
type applied struct {
	commands []machine.Command
	outcomes []machine.Outcome
	events   []machine.Event
}

// entry is an encoded log entry and the commands in the entry.
type entry struct {
	bytes    []byte
	commands []machine.Command
}

// NewTable returns the table of a cluster before founding.
func NewTable() *Table {
	t := &Table{m: machine.New(), marks: make(map[machine.SessionID]time.Time)}
	t.publishLocked()
	return t
}

// publishLocked makes the present sizes the latest.
func (t *Table) publishLocked() {
	t.latest.Store(&sizes{Summary: t.m.Summary(), lifted: t.m.Lifted(), bound: t.m.Bound()})
}

// Apply applies a log entry and returns the outcomes of the commands as
// []machine.Outcome. An entry in a foreign format changes nothing, on every voter
// alike, and has no outcomes.
//
// at is the time when the leader put the entry in the log, by the leader's wall
// clock. The time is part of the entry, in every store and on the way to every
// voter, so the tables stay equal. Nothing keeps a wall clock from running
// backward or from being wrong, so the table only keeps the time for people to
// read.
func (t *Table) Apply(data []byte, at time.Time) any {
	commands, err := t.decode(data)
	if err != nil {
		return []machine.Outcome(nil)
	}
	a := applied{commands: commands, outcomes: make([]machine.Outcome, len(commands))}
	a.events = make([]machine.Event, 0, len(commands)) // mostly enough: a change of one key each
	now := t.Clock.Now()
	t.mu.Lock()
	if ms := at.UnixMilli(); ms > 0 { // else the time was never set
		t.m.Clock(uint64(ms))
	}
	last := t.m.LastToken()
	for i, c := range commands {
		before := len(a.events)
		a.outcomes[i], a.events = t.m.AppendApply(a.events, c)
		t.noteLocked(c, a.outcomes[i].Code, a.events[before:], now)
	}
	if t.m.LastToken() > last {
		t.rose = now
	}
	watch := t.watch
	t.publishLocked() // before the watch hears of the entry
	t.took = t.Clock.Now().Sub(now)
	t.mu.Unlock()
	if watch != nil {
		watch(a)
	}
	return a.outcomes
}

// noteLocked keeps the times of an applied command.
func (t *Table) noteLocked(c machine.Command, code machine.Code, events []machine.Event, now time.Time) {
	for _, e := range events {
		switch e.Kind {
		case machine.EventEnding, machine.EventEnded:
			delete(t.marks, e.Session)
		case machine.EventRevoked: // a mark for good
			if _, marked := t.marks[e.Session]; !marked {
				t.marks[e.Session] = now
			}
		}
	}
	if code != machine.OK {
		if r, ok := c.(machine.Raise); ok && code == machine.BadCommand && r.Format > machine.MaxFormat {
			t.beyond = true
		}
		return
	}
	switch c := c.(type) {
	case machine.LeaderStart:
		if now.Sub(t.started) >= time.Duration(t.m.Bound())*time.Millisecond {
			t.flaps = now
		}
		t.started = now
	case machine.Found:
		t.founded = now
	case machine.Silence:
		if _, marked := t.marks[c.Session]; !marked {
			t.marks[c.Session] = now
		}
	case machine.Hear:
		delete(t.marks, c.Session)
	}
}

// expect tells the table the commands of an entry before this process commits
// the entry, so that Apply does not decode bytes already decoded by the
// proposer. commands must be equal to the result of DecodeEntry: the tables of
// the other voters apply exactly the decoded commands. A later call replaces the
// expected entry. Without bytes nothing is expected: if an entry with an unknown
// fate is applied later, Apply decodes the entry.
func (t *Table) expect(bytes []byte, commands []machine.Command) {
	t.expecting.Lock()
	t.expected = entry{bytes, commands}
	t.expecting.Unlock()
}

// decode returns the commands of an entry. Raft hands the proposed slice to
// the table of the leader, so the expected entry is known by the address: no other
// entry can stand there, because the expectation keeps the bytes in memory.
func (t *Table) decode(data []byte) ([]machine.Command, error) {
	t.expecting.Lock()
	e := t.expected
	if len(data) > 0 && len(data) == len(e.bytes) && &data[0] == &e.bytes[0] {
		t.expected = entry{}
		t.expecting.Unlock()
		return e.commands, nil
	}
	t.expecting.Unlock()
	return machine.DecodeEntry(data)
}

// lastApply returns how long this copy took to apply the last entry.
func (t *Table) lastApply() time.Duration {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.took
}

// Bound returns the bound of sessions' TTLs, or 0 before the founding.
func (t *Table) Bound() time.Duration {
	return time.Duration(t.latest.Load().bound) * time.Millisecond
}

// ErrBeyond means: this table has parted from the tables of the other voters:
// this member was put back to an earlier version of the program after all voters
// had read a later format.
var ErrBeyond = errors.New("cluster: the table's format is of a later version of this program")

// Parted returns ErrBeyond if this table is no longer equal to the tables of the
// other voters, and nil otherwise. A parted table stays parted.
func (t *Table) Parted() error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.beyond {
		return ErrBeyond
	}
	return nil
}

// setWatch calls f after each entry applied from now on.
func (t *Table) setWatch(f func(applied)) {
	t.mu.Lock()
	t.watch = f
	t.mu.Unlock()
}

// Configured notes the commit of a raft configuration at index.
func (t *Table) Configured(index uint64) {
	t.mu.Lock()
	t.config = max(t.config, index)
	t.mu.Unlock()
}

// ConfigIndex returns the log index of the last committed raft configuration.
func (t *Table) ConfigIndex() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.config
}

// View runs f on the lock table. The table does not change while f runs. f must be
// short and must not keep the table: entries wait for f.
func (t *Table) View(f func(*machine.State)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	f(t.m)
}

// view returns f of the lock table.
func view[A any](t *Table, f func(*machine.State) A) A {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return f(t.m)
}

// LastToken returns the table's highest token, and when this copy saw the token
// first: at an entry or with a snapshot.
func (t *Table) LastToken() (machine.Token, time.Time) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.m.LastToken(), t.rose
}

// Format returns the table's format of log entries.
func (t *Table) Format() int { return view(t, (*machine.State).Format) }

// Snapshot takes an image of the table as of now, together with ConfigIndex. The
// returned function writes the image; the table may change meanwhile.
func (t *Table) Snapshot() func(w io.Writer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	config, image := t.config, t.m.Snapshot()
	return func(w io.Writer) error {
		var head [8]byte
		binary.BigEndian.PutUint64(head[:], config)
		if _, err := w.Write(head[:]); err != nil {
			return err
		}
		_, err := image.WriteTo(w)
		return err
	}
}

// Check returns why Restore would refuse a snapshot, or nil. It needs as much memory
// as the snapshot's table for as long as it runs.
func (t *Table) Check(r io.Reader) error {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("cluster: snapshot: %w", err)
	}
	_, err := machine.Restore(r)
	return err
}

// Restore replaces the table by a written snapshot. After an error the table is
// as before.
func (t *Table) Restore(r io.Reader) error {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("cluster: snapshot: %w", err)
	}
	m, err := machine.Restore(r)
	if err != nil {
		return err
	}
	// The marks and the founding of a snapshot count from now. Both
	// happened earlier, so the count is too long rather than too short: safe.
	now := t.Clock.Now()
	marks := make(map[machine.SessionID]time.Time)
	m.Sessions(func(s machine.SessionStatus) bool {
		if s.Silent {
			marks[s.ID] = now
		}
		return true
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.m, t.marks, t.founded, t.rose = m, marks, now, now
	t.config = max(t.config, binary.BigEndian.Uint64(head[:]))
	t.publishLocked()
	return nil
}
