package locks

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// ErrUncertain says that nobody knows whether something was done: the cluster may
// have heard, and its answer did not come.
var ErrUncertain = errors.New("locks: it is not known whether this was done")

// Cell is a small value that the cluster keeps, such as a configuration, a
// counter or who does what. It is the value that Lock.SetValue leaves with a key,
// up to 64 KiB, and the key is like any other: who holds it keeps all others from
// changing the value, for as long as it holds it.
type Cell struct {
	c   *Client
	key string
}

// Cell returns the cell of key. It does nothing yet; a key that cannot be used
// makes its methods fail with a *cluster.ConfigError.
func (c *Client) Cell(key string) *Cell { return &Cell{c: c, key: key} }

// Get returns the cell's value at some moment during the call; nil if it has none.
// It needs no session and waits for nobody. Its errors are those of
// Client.Inspect.
func (x *Cell) Get(ctx context.Context) ([]byte, error) {
	if err := checkKey(x.key); err != nil {
		return nil, err
	}
	a, err := x.c.read(ctx, replica.Query{Key: x.key, Value: true})
	if err != nil {
		return nil, callError("get the value of", x.key, err)
	}
	return bytesOf(a.Status.Value), nil
}

// Update replaces the cell's value by what change makes of it. It holds the key
// meanwhile, so that of many updates each sees the one before, in the order in
// which they were asked for, and change runs once; only if the lock is lost before
// the new value is on its way, change runs again, in a new turn. Make change quick
// and free of effects elsewhere. An empty result leaves no value, and a result
// that equals the old value changes nothing. If change panics, the key is freed
// and the value stays as it is.
//
// When Update returns nil the new value is safe. Otherwise the value is as it was,
// unless the error matches ErrUncertain: then it is not known whether it was
// replaced, and Update has not tried again. The errors are Acquire's and
// SetValue's, ErrValuesFull among them; the end of ctx; and a *cluster.ConfigError
// for a nil change and for a result of more than 64 KiB.
//
// Not by IfToken and a second try if the value has changed: under contention all
// but one would try in vain, again and again, where the queue serves one after the
// other.
func (x *Cell) Update(ctx context.Context, change func(old []byte) []byte) error {
	if err := checkKey(x.key); err != nil {
		return err
	}
	if change == nil {
		return configError("change", "nil")
	}
	var retry backoff
	for {
		// What came of the turn says verdict, once it has begun to write: that
		// the lock is lost later, or not released, is not the value's affair.
		var verdict error
		written := false
		err := x.c.Do(ctx, x.key, func(ctx context.Context, l *Lock) error {
			old, _ := l.Value()
			value := change(bytes.Clone(old))
			if len(value) > machine.MaxValue {
				return configError("value", "%d bytes exceed %d", len(value), machine.MaxValue)
			}
			if err := l.Err(); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return callError("update", x.key, endOf(ctx))
			}
			if written = true; !bytes.Equal(value, old) {
				verdict = certain(l.SetValue(ctx, value))
			}
			return nil
		})
		switch {
		case written:
			return verdict
		case !errors.Is(err, ErrLost), ctx.Err() != nil, errors.Is(err, ErrClosed), errors.Is(err, cluster.ErrStopped):
			return err
		}
		if err := retry.wait(ctx, x.c.closing); err != nil {
			return callError("update", x.key, err)
		}
	}
}

// certain adds to an error of SetValue's that it is not known whether the value
// was set, unless it surely was not.
func certain(err error) error {
	var unheard *replica.Error
	var config *cluster.ConfigError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unheard):
		if !unheard.Unknown {
			return err
		}
	case errors.Is(err, ErrValuesFull), errors.Is(err, ErrWrongMode), errors.As(err, &config):
		return err
	}
	return fmt.Errorf("%w: %w", ErrUncertain, err)
}

func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}
