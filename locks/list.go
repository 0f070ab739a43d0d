package locks

import (
	"context"
	"iter"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// List yields, in ascending order, the state of each key that begins with prefix
// and is held or waited for; with an empty prefix, of all. Each page of up to 256
// keys is of one moment during the call, and a later page of a later one: a key
// that is taken or freed meanwhile is yielded or not, while one that stays as it
// is is yielded once. See WatchPrefix for what goes on from there.
//
// The sequence ends after the last key, or when the body breaks off. If it cannot
// go on it ends with one last pair whose error is not nil: the end of ctx, with
// cluster.ErrNoQuorum if no leader was found until then, ErrClosed,
// cluster.ErrStopped, cluster.ErrVersion while the cluster is being upgraded, or
// a *cluster.ConfigError.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := checkPrefix(prefix); err != nil {
			yield(Status{}, err)
			return
		}
		q := replica.Scan{Prefix: prefix, From: max(prefix, firstKey), Limit: replica.MaxScanned}
		for {
			a, err := c.scan(ctx, q)
			if err != nil {
				yield(Status{}, callError("list", prefix, err))
				return
			}
			for _, st := range a.Keys {
				if !yield(newStatus(st), nil) {
					return
				}
			}
			if !a.More || len(a.Keys) == 0 {
				return
			}
			q.From = keyAfter(a.Keys)
		}
	}
}

// WatchPrefix yields the state of each key that begins with prefix and is held or
// waited for, as List does, and then, for each key that changes, its state after
// that, vacancy included. States that change faster than the loop's body runs are
// skipped, but never a key's latest, and the tokens seen of a key never fall. It
// goes on over leader changes and while no leader can be reached.
//
// It need not yield every key that was taken and freed in between, and may yield
// a vacant one twice. If the loop falls so far behind that the cluster no longer
// knows what has changed, or very much changed at once, the keys are listed anew:
// those that are as they were last yielded are passed over, and those that are
// gone are yielded as vacant. It costs memory for each key that is held or waited
// for.
//
// The sequence ends when the body breaks off, or like that of List; a cluster
// that cannot be reached does not end it.
func (c *Client) WatchPrefix(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := checkPrefix(prefix); err != nil {
			yield(Status{}, err)
			return
		}
		w := &prefixWatch{c: c, prefix: prefix, yield: yield, yielded: make(map[string]uint64)}
		if err := w.run(ctx); err != nil {
			yield(Status{}, callError("watch", prefix, err))
		}
	}
}

// prefixWatch is one loop of WatchPrefix.
type prefixWatch struct {
	c       *Client
	prefix  string
	yield   func(Status, error) bool
	yielded map[string]uint64 // the keys that were not vacant when last told of, and their versions then
}

// run returns why it cannot go on; nil if the body has broken off.
func (w *prefixWatch) run(ctx context.Context) error {
	since, ok, err := w.list(ctx)
	for ok && err == nil {
		var a replica.Scanned
		a, err = retryRead(ctx, w.c, func() (replica.Scanned, error) {
			return w.c.scan(ctx, replica.Scan{Prefix: w.prefix, Limit: replica.MaxScanned, Since: since})
		})
		switch {
		case err != nil:
		case a.Lost, a.More && a.Version <= since:
			since, ok, err = w.list(ctx)
		default:
			since = a.Version
			for i := 0; ok && i < len(a.Keys); i++ {
				ok = w.yieldIfNew(a.Keys[i])
			}
		}
	}
	return err
}

// list tells all keys, those too that are not there any more. It returns the
// version from which on changes have not been seen, and false if the body broke
// off.
func (w *prefixWatch) list(ctx context.Context) (since uint64, ok bool, err error) {
	gone := make(map[string]bool, len(w.yielded))
	for key := range w.yielded {
		gone[key] = true
	}
	q := replica.Scan{Prefix: w.prefix, From: max(w.prefix, firstKey), Limit: replica.MaxScanned}
	for {
		a, err := retryRead(ctx, w.c, func() (replica.Scanned, error) { return w.c.scan(ctx, q) })
		if err != nil {
			return 0, false, err
		}
		if since == 0 {
			// The first page's: the others are of later moments, and what
			// changed before them was not seen on this one.
			since = a.Version
		}
		for _, st := range a.Keys {
			delete(gone, st.Key)
			if !w.yieldIfNew(st) {
				return 0, false, nil
			}
		}
		if !a.More || len(a.Keys) == 0 {
			break
		}
		q.From = keyAfter(a.Keys)
	}
	// One by one, since only so their tokens are known; few are gone at a time,
	// or it does not matter how long it takes.
	for key := range gone {
		a, err := retryRead(ctx, w.c, func() (replica.Answer, error) {
			return w.c.read(ctx, replica.Query{Key: key, Waiters: replica.MaxScannedEach})
		})
		if err != nil {
			return 0, false, err
		}
		if !w.yieldIfNew(a.Status) {
			return 0, false, nil
		}
	}
	return since, true, nil
}

// tell yields a key's state unless it was just that when it was last told. It
// returns false when the body breaks off.
func (w *prefixWatch) yieldIfNew(m machine.Status) bool {
	if reserved(m.Key) {
		return true
	}
	version, known := w.yielded[m.Key]
	if known && version >= m.Version && m.Version != 0 {
		return true
	}
	st := newStatus(m)
	if st.vacant() {
		delete(w.yielded, m.Key)
	} else {
		w.yielded[m.Key] = m.Version
	}
	return w.yield(st, nil)
}
