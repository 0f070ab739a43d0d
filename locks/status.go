package locks

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
)

// Status is a key's state at one moment.
type Status struct {
	Key     string   `json:"key"`
	Holders []Holder `json:"holders"` // in the order of their tokens
	Holding int      `json:"holding"` // the number of holders; Holders has the first 1,024, or 16 in List and WatchPrefix
	Waiters []Waiter `json:"waiters"` // in the order in which they will be served
	Queue   int      `json:"queue"`   // the number of waiters; Waiters has as many as Holders may have

	// Token is the token of the last grant, for the option IfToken: the key was
	// not granted after Token. If the last grant was so long ago that the
	// cluster has forgotten its token, Token is larger. If there was no grant,
	// Token is not 0, since an earlier cluster of the same name may have
	// granted the key.
	Token fence.Token `json:"token"`

	// Clean says that the last exclusive holder released the key by itself, or
	// that there was none. The present holder does not count. See Lock.Value.
	Clean bool `json:"clean"`

	// Permits is the number of permits held. Capacity is the number of permits
	// of the key, 0 if it has none; CapacitySet says that SetCapacity has set it. After
	// the capacity was lowered Permits can exceed Capacity for a while.
	Permits     int  `json:"permits,omitempty"`
	Capacity    int  `json:"capacity,omitempty"`
	CapacitySet bool `json:"capacitySet,omitempty"`
}

// Held reports whether the key has a holder, or is kept taken by a delay.
func (s Status) Held() bool { return s.Holding > 0 }

// vacant reports whether the key has neither holders nor waiters.
func (s Status) vacant() bool { return s.Holding == 0 && s.Queue == 0 }

// Mode is how a key is held, or is to be held.
type Mode uint8

// The modes.
const (
	ModeExclusive Mode = Mode(machine.Exclusive) // alone
	ModeShared    Mode = Mode(machine.Shared)    // together with other shared holders
	ModePermit    Mode = Mode(machine.Permit)    // with a number of the permits of the key
)

// String returns the mode as text for logs.
func (m Mode) String() string { return cmp.Or(modeTexts[m], "mode "+strconv.Itoa(int(m))) }

var modeTexts = map[Mode]string{ModeExclusive: "exclusive", ModeShared: "shared", ModePermit: "permit"}

// Holder describes a holder of a key.
type Holder struct {
	Client string      `json:"client"`            // its Options.Name
	Node   string      `json:"node"`              // the member on which the client runs
	Self   bool        `json:"self,omitempty"`    // this very client holds the key, in its present session
	Ref    string      `json:"session,omitempty"` // of the holder's session, as Session.Ref; clients may share a name, but no Ref
	Token  fence.Token `json:"token"`
	Mode   Mode        `json:"mode"`
	N      int         `json:"permits,omitempty"` // ModePermit: the number of permits held
	Of     int         `json:"of,omitempty"`      // ModePermit: the capacity that the request named, 0 if none
	Tree   bool        `json:"tree,omitempty"`    // everything below the key is held too
	Keys   int         `json:"keys"`              // the number of keys under the token: more than 1 for a Set

	// Acquired is the time of the grant by the clock of the leader of that
	// time. It is for people to read: clocks are set, and two leaders' clocks
	// differ.
	Acquired time.Time `json:"acquired,omitzero"`

	// Left is how long the cluster will keep the grant if no further beat
	// arrives; for a Delayed holder, the time until the delay ends. Renewals is
	// the number of the client's beats that the present leader has
	// acknowledged; it rises while the client is alive. Both change all the
	// time, so Watch yields nothing if only these two have changed.
	Left     time.Duration `json:"left"`
	Renewals uint64        `json:"renewals,string,omitempty"`

	Asked   bool `json:"asked,omitempty"`   // asked by Ask to release the key
	Broken  bool `json:"broken,omitempty"`  // taken away by Break; the key is free once the holder's client has ended the lock
	Delayed bool `json:"delayed,omitempty"` // the session has expired, and the delay of the grant has not passed
	Sticky  bool `json:"sticky,omitempty"`  // of the option Sticky: the client keeps the key between its locks, whose tokens are Token and up
	Ending  bool `json:"ending,omitempty"`  // the session has ended with thousands of keys, and the key is about to be free

	// Meta was attached with the option Meta, ClientMeta with Options.Meta. If
	// there are many large ones, some are left out.
	Meta       map[string]string `json:"meta,omitempty"`
	ClientMeta map[string]string `json:"clientMeta,omitempty"`
}

// Waiter describes a waiter of a key.
type Waiter struct {
	Client   string            `json:"client"`            // its Options.Name
	Node     string            `json:"node"`              // the member on which the client runs
	Self     bool              `json:"self,omitempty"`    // this very client waits, in its present session
	Ref      string            `json:"session,omitempty"` // of the waiter's session, as Session.Ref
	Position int               `json:"position"`          // the number of holders and waiters before the request, at this key
	Mode     Mode              `json:"mode"`
	N        int               `json:"permits,omitempty"` // ModePermit: the number of permits wanted
	Of       int               `json:"of,omitempty"`      // ModePermit: the capacity that the request named, 0 if none
	Tree     bool              `json:"tree,omitempty"`    // everything below the key is wanted too
	Keys     int               `json:"keys"`              // the number of keys wanted at once: more than 1 for a Set
	Upgrade  bool              `json:"upgrade,omitempty"` // a shared holder that waits for the other holders to leave
	Priority int               `json:"priority,omitempty"`
	Passed   int               `json:"passed,omitempty"` // the number of later requests that were granted before
	Since    time.Time         `json:"since,omitzero"`   // when the request came; like Holder.Acquired
	Meta     map[string]string `json:"meta,omitempty"`   // like Holder.Meta
}

// newStatus returns m for users. Nothing in it is shared with another Status.
func (c *Client) newStatus(m machine.Status) Status {
	s := Status{
		Key:     m.Key,
		Holding: m.Held,
		Queue:   m.Queue,
		Token:   fence.Token(m.Last),
		Clean:   !m.Unclean,

		Permits:     m.Permits,
		Capacity:    m.Of,
		CapacitySet: m.Fixed,
	}
	for _, g := range m.Holders {
		s.Holders = append(s.Holders, Holder{
			Client:     g.Client,
			Node:       g.Node,
			Self:       c.isSelf(g.Session),
			Ref:        g.Session.Ref().String(),
			Token:      fence.Token(g.Token),
			Mode:       Mode(g.Mode),
			N:          int(g.N),
			Of:         int(g.Of),
			Tree:       g.Tree,
			Keys:       g.Keys,
			Acquired:   timeOf(g.At),
			Left:       time.Duration(g.Left) * time.Millisecond,
			Renewals:   g.Beats,
			Asked:      g.Asked,
			Broken:     g.Broken,
			Delayed:    g.Delayed,
			Sticky:     g.Block > 0,
			Ending:     g.Ending,
			Meta:       decodeMeta(g.Meta),
			ClientMeta: decodeMeta(g.SessionMeta),
		})
	}
	for _, w := range m.Waiters {
		s.Waiters = append(s.Waiters, Waiter{
			Client:   w.Client,
			Node:     w.Node,
			Self:     c.isSelf(w.Session),
			Ref:      w.Session.Ref().String(),
			Position: int(w.Behind),
			Mode:     Mode(w.Mode),
			N:        int(w.N),
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

// isSelf reports whether id is the client's present session.
func (c *Client) isSelf(id machine.SessionID) bool {
	s := c.currentSession()
	return s != nil && s.id == id
}

// timeOf converts ms, the milliseconds of a Unix time. 0 is the zero time.
func timeOf(ms uint64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}

// same reports whether s and o are equal, except for Left and Renewals.
func (s Status) same(o Status) bool {
	return reflect.DeepEqual(s.withoutBeats(), o.withoutBeats())
}

func (s Status) withoutBeats() Status {
	s.Holders = slices.Clone(s.Holders)
	for i := range s.Holders {
		s.Holders[i].Left, s.Holders[i].Renewals = 0, 0
	}
	return s
}
