package locks

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
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
			Meta:       decodeMeta([]byte(g.Meta)),
			ClientMeta: decodeMeta([]byte(g.SessionMeta)),
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
			Meta:     decodeMeta([]byte(w.Meta)),
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

// Inspect returns the key's state at some moment during the call. It changes
// nothing and needs no session. On failure the error says why: the end of ctx,
// with cluster.ErrNoQuorum if no leader was found until then; a
// *cluster.ConfigError for what can be no key; cluster.ErrStopped; ErrClosed.
func (c *Client) Inspect(ctx context.Context, key string) (Status, error) {
	if err := checkKey(key); err != nil {
		return Status{}, err
	}
	a, err := c.read(ctx, replica.Query{Key: key, Waiters: replica.MaxListed})
	if err != nil {
		return Status{}, callError("inspect", key, err)
	}
	return newStatus(a.Status), nil
}

// Watch yields the key's present state, and then its state after each change of
// its holders or its queue, vacancy included. States that change faster than the
// loop's body runs are skipped, but never the latest; no state is yielded twice in
// a row, and the tokens it sees never fall. It goes on over leader changes and
// while no leader can be reached.
//
// The sequence ends when the body breaks off. Otherwise it ends with one last
// pair whose error is not nil: the end of ctx, ErrClosed, cluster.ErrStopped, or
// a *cluster.ConfigError.
func (c *Client) Watch(ctx context.Context, key string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := checkKey(key); err != nil {
			yield(Status{}, err)
			return
		}
		var retry backoff
		var last Status
		q := replica.Query{Key: key, Waiters: replica.MaxListed}
		for {
			a, err := c.read(ctx, q)
			if err == nil {
				retry.reset()
				first := q.Version == 0
				q.Version = a.Version
				st := newStatus(a.Status)
				if !first && st.same(last) {
					continue // its value has changed, say
				}
				last = st
				if !yield(st, nil) {
					return
				}
				continue
			}
			if !c.final(ctx, err) {
				if err = retry.wait(ctx, c.closing); err == nil {
					continue
				}
			}
			yield(Status{}, callError("watch", key, err))
			return
		}
	}
}

// read asks the cluster, until ctx ends or the client is closed.
func (c *Client) read(ctx context.Context, q replica.Query) (replica.Answer, error) {
	return reading(ctx, c, func(ctx context.Context) (replica.Answer, error) { return c.rep.Read(ctx, q) })
}

// scan is read for many keys.
func (c *Client) scan(ctx context.Context, q replica.Scan) (replica.Scanned, error) {
	return reading(ctx, c, func(ctx context.Context) (replica.Scanned, error) { return c.rep.Scan(ctx, q) })
}

func reading[T any](ctx context.Context, c *Client, read func(context.Context) (T, error)) (T, error) {
	var none T
	if err := c.enter(); err != nil {
		return none, err
	}
	defer c.calls.Done()
	if ctx.Err() != nil {
		return none, endOf(ctx)
	}
	rctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.closing, func() { cancel(ErrClosed) })
	defer stop()
	a, err := read(rctx)
	if err != nil && rctx.Err() != nil {
		return a, whyEnded(rctx, err)
	}
	return a, err
}

// final reports whether an error of a call will not pass by itself.
func (c *Client) final(ctx context.Context, err error) bool {
	var config *cluster.ConfigError
	switch {
	case ctx.Err() != nil, c.closing.Err() != nil:
		return true
	case errors.Is(err, ErrClosed), errors.Is(err, cluster.ErrStopped), errors.Is(err, ErrTooManyWaiters),
		errors.Is(err, cluster.ErrVersion):
		return true
	}
	return errors.As(err, &config)
}
