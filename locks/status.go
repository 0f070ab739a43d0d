package locks

import (
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
)

// Status is a key's state at one moment.
type Status struct {
	Key     string
	Holders []Holder // in the order of their tokens
	Holding int      // how many hold in all: Holders are the first 1,024, or 16 in List and WatchPrefix
	Waiters []Waiter // in the order in which they will be served
	Queue   int      // how many wait in all: Waiters are as many as Holders may be

	// Token is the last grant's: nobody was granted the key after it, which is
	// what the option IfToken wants to know. It is larger than the last grant's
	// if that was so long ago that it is forgotten, and not 0 if there was none:
	// an earlier cluster of that name may have granted the key.
	Token fence.Token

	// Clean tells that the last exclusive holder that is gone released the key
	// by itself, or that there was none. See Lock.Value.
	Clean bool
}

// Held reports whether anybody holds the key, or a delay keeps it taken.
func (s Status) Held() bool { return s.Holding > 0 }

// vacant reports whether nobody holds the key or waits for it.
func (s Status) vacant() bool { return s.Holding == 0 && s.Queue == 0 }

// Mode says how a key is held or waited for.
type Mode uint8

// The modes.
const (
	ModeExclusive Mode = Mode(machine.Exclusive) // alone
	ModeShared    Mode = Mode(machine.Shared)    // together with all who share
	ModePermit    Mode = Mode(machine.Permit)    // as one of the Of who may
)

// String is the mode as it stands in logs.
func (m Mode) String() string {
	switch m {
	case ModeExclusive:
		return "exclusive"
	case ModeShared:
		return "shared"
	case ModePermit:
		return "permit"
	}
	return "mode " + strconv.Itoa(int(m))
}

// Holder is who holds a key.
type Holder struct {
	Client string // its Options.Name
	Node   string // the member it runs on
	Token  fence.Token
	Mode   Mode
	Of     int  // ModePermit: how many permits there are
	Tree   bool // everything below the key is held, too
	Keys   int  // how many keys are held under the token: more than 1 is a Set

	// Acquired is when the key was granted, by the clock of whoever led then,
	// for people to read: clocks are set, and those of two leaders differ.
	Acquired time.Time

	// Left is for how long the cluster will keep the grant if it does not hear
	// of the holder's client any more; of a Delayed one, until its delay is
	// over. Renewals is how many of the client's beats the present leader has
	// acknowledged: while it rises the client is alive. Both change all the
	// time, so that a change of them alone is not yielded by Watch.
	Left     time.Duration
	Renewals uint64

	Asked   bool // to let go, by Ask
	Broken  bool // taken away by Break; the key is free once the holder has let go
	Delayed bool // its session has expired, and the delay runs that it was acquired with

	// What was attached with the option Meta, and Options.Meta. Of many large
	// ones some are left out.
	Meta       map[string]string
	ClientMeta map[string]string
}

// Waiter is who waits for a key.
type Waiter struct {
	Client   string // its Options.Name
	Node     string // the member it runs on
	Mode     Mode
	Of       int  // ModePermit: how many permits there are
	Tree     bool // it waits for everything below the key, too
	Keys     int  // for how many keys it waits at once: more than 1 is a Set
	Upgrade  bool // it holds the key already, and waits for the others who share it
	Priority int
	Passed   int               // by how many who came later
	Since    time.Time         // like Holder.Acquired: when it came
	Meta     map[string]string // like Holder.Meta
}

func newStatus(m machine.Status) Status {
	s := Status{
		Key:     m.Key,
		Holding: m.Held,
		Queue:   m.Queue,
		Token:   fence.Token(m.Last),
		Clean:   !m.Unclean,
	}
	for _, g := range m.Holders {
		s.Holders = append(s.Holders, Holder{
			Client:     g.Client,
			Node:       g.Node,
			Token:      fence.Token(g.Token),
			Mode:       Mode(g.Mode),
			Of:         int(g.Of),
			Tree:       g.Tree,
			Keys:       g.Keys,
			Acquired:   timeOf(g.At),
			Left:       time.Duration(g.Left) * time.Millisecond,
			Renewals:   g.Beats,
			Asked:      g.Asked,
			Broken:     g.Broken,
			Delayed:    g.Delayed,
			Meta:       decodeMeta(g.Meta),
			ClientMeta: decodeMeta(g.SessionMeta),
		})
	}
	for _, w := range m.Waiters {
		s.Waiters = append(s.Waiters, Waiter{
			Client:   w.Client,
			Node:     w.Node,
			Mode:     Mode(w.Mode),
			Of:       int(w.Of),
			Tree:     w.Tree,
			Keys:     w.Keys,
			Upgrade:  w.Upgrade,
			Priority: int(w.Priority),
			Passed:   int(w.Passed),
			Since:    timeOf(w.At),
			Meta:     decodeMeta(w.Meta),
		})
	}
	return s
}

// timeOf is the zero time if the cluster told none.
func timeOf(ms uint64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}

// same reports whether s and o are equal, save for what changes all the time.
func (s Status) same(o Status) bool {
	return s.Key == o.Key && s.Holding == o.Holding && s.Queue == o.Queue && s.Token == o.Token && s.Clean == o.Clean &&
		slices.EqualFunc(s.Holders, o.Holders, func(a, b Holder) bool {
			a.Left, a.Renewals = b.Left, b.Renewals
			return reflect.DeepEqual(a, b)
		}) &&
		slices.EqualFunc(s.Waiters, o.Waiters, func(a, b Waiter) bool { return reflect.DeepEqual(a, b) })
}
