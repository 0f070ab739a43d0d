package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// table is this voter's copy of the lock table, with the little that belongs to
// it here but must not be in it: times of this host's clock.
type table struct {
	mu      sync.RWMutex
	m       *machine.State
	config  uint64                          // log index of the last committed raft configuration
	marks   map[machine.SessionID]time.Time // when Silence was applied here
	founded time.Time                       // when Found was applied here
	watch   func(applied)                   // the leader's; called in log order, without mu
	beyond  bool                            // raised to a format that this version does not read
}

// applied is what one log entry did.
type applied struct {
	commands []machine.Command
	outcomes []machine.Outcome
	events   []machine.Event
}

func newTable() *table {
	return &table{m: machine.New(), marks: make(map[machine.SessionID]time.Time)}
}

// apply applies one log entry and returns its outcomes, one for each command.
// An entry that cannot be decoded does nothing, on every voter alike.
//
// at is when the leader put the entry in its log, by its wall clock. It is part
// of the entry, in every store and on the way to every voter, so the tables stay
// equal; but nothing keeps it from running backward or from being wrong, so the
// table only writes it down for people to read.
func (t *table) apply(data []byte, at time.Time) []machine.Outcome {
	commands, err := machine.DecodeEntry(data)
	if err != nil {
		return nil
	}
	a := applied{commands: commands, outcomes: make([]machine.Outcome, len(commands))}
	now := time.Now()
	t.mu.Lock()
	if ms := at.UnixMilli(); ms > 0 { // else it was never set
		t.m.Clock(uint64(ms))
	}
	for i, c := range commands {
		var events []machine.Event
		a.outcomes[i], events = t.m.Apply(c)
		a.events = append(a.events, events...)
		for _, e := range events {
			if e.Kind == machine.EventEnded {
				delete(t.marks, e.Session)
			}
		}
		if a.outcomes[i].Code != machine.OK {
			if r, ok := c.(machine.Raise); ok && a.outcomes[i].Code == machine.BadCommand && r.Format > machine.MaxFormat {
				t.beyond = true
			}
			continue
		}
		switch c := c.(type) {
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
	watch := t.watch
	t.mu.Unlock()
	if watch != nil {
		watch(a)
	}
	return a.outcomes
}

// errBeyond ends a voter's voting when its table has parted from the others': the
// member was put back to an earlier version after all of them had read a later.
var errBeyond = errors.New("cluster: the table's format is of a later version of this program")

// parted returns errBeyond if from here on this table is not that of the others.
func (t *table) parted() error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.beyond {
		return errBeyond
	}
	return nil
}

// setWatch has f told of every entry applied from now on.
func (t *table) setWatch(f func(applied)) {
	t.mu.Lock()
	t.watch = f
	t.mu.Unlock()
}

// configured notes that a raft configuration was committed at index.
func (t *table) configured(index uint64) {
	t.mu.Lock()
	t.config = max(t.config, index)
	t.mu.Unlock()
}

// view runs f on the table, which nobody changes meanwhile.
func (t *table) view(f func(m *machine.State)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	f(t.m)
}

func (t *table) configIndex() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.config
}

// tableImage is a snapshot: the table's image behind the configuration's index.
type tableImage struct {
	config uint64
	image  *machine.Image
}

func (t *table) snapshot() tableImage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return tableImage{config: t.config, image: t.m.Snapshot()}
}

func (i tableImage) writeTo(w io.Writer) error {
	var head [8]byte
	binary.BigEndian.PutUint64(head[:], i.config)
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := i.image.WriteTo(w)
	return err
}

// restore replaces the table by a snapshot, or leaves it as it was and fails.
func (t *table) restore(r io.Reader) error {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("cluster: snapshot: %w", err)
	}
	m, err := machine.Restore(r)
	if err != nil {
		return err
	}
	// A mark or founding that came in a snapshot counts from now: later than
	// it was, hence safe.
	now := time.Now()
	marks := make(map[machine.SessionID]time.Time)
	m.Sessions(func(s machine.SessionStatus) bool {
		if s.Silent {
			marks[s.ID] = now
		}
		return true
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.m, t.marks, t.founded = m, marks, now
	t.config = max(t.config, binary.BigEndian.Uint64(head[:]))
	return nil
}
