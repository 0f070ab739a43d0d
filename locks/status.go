package locks

import (
	"context"
	"errors"
	"iter"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// Status is a key's state at one moment.
type Status struct {
	Key     string
	Holders []Holder // empty if nobody holds the key
	Waiters []Waiter // the first 1,024, in the order in which they will be served
	Queue   int      // how many wait in all
}

// Held reports whether anybody holds the key.
func (s Status) Held() bool { return len(s.Holders) > 0 }

// Holder is who holds a key.
type Holder struct {
	Client string // its Options.Name
	Node   string // the member it runs on
	Token  fence.Token
	Meta   map[string]string // attached with the option Meta
}

// Waiter is who waits for a key.
type Waiter struct {
	Client string // its Options.Name
	Node   string // the member it runs on
}

func newStatus(m machine.Status) Status {
	s := Status{Key: m.Key, Queue: m.Queue}
	for _, g := range m.Holders {
		s.Holders = append(s.Holders, Holder{
			Client: g.Client,
			Node:   g.Node,
			Token:  fence.Token(g.Token),
			Meta:   decodeMeta(g.Meta),
		})
	}
	for _, w := range m.Waiters {
		s.Waiters = append(s.Waiters, Waiter{Client: w.Client, Node: w.Node})
	}
	return s
}

// Inspect returns the key's state at some moment during the call. It changes
// nothing and needs no session. On failure the error says why: the end of ctx,
// with cluster.ErrNoQuorum if no leader was found until then; cluster.ErrStopped;
// ErrClosed.
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
// its holder or its queue, vacancy included. States that change faster than the
// loop's body runs are skipped, but never the latest, and the tokens it sees
// never fall. It goes on over leader changes and while no leader can be reached.
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
		q := replica.Query{Key: key, Waiters: replica.MaxListed}
		for {
			a, err := c.read(ctx, q)
			if err == nil {
				retry.reset()
				q.Version = a.Version
				if !yield(newStatus(a.Status), nil) {
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
	if err := c.enter(); err != nil {
		return replica.Answer{}, err
	}
	defer c.calls.Done()
	if ctx.Err() != nil {
		return replica.Answer{}, endOf(ctx)
	}
	rctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.closing, func() { cancel(ErrClosed) })
	defer stop()
	a, err := c.rep.Read(rctx, q)
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
	case errors.Is(err, ErrClosed), errors.Is(err, cluster.ErrStopped), errors.Is(err, ErrTooManyWaiters):
		return true
	}
	return errors.As(err, &config)
}
