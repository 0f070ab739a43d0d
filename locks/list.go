package locks

import (
	"cmp"
	"context"
	"iter"
	"maps"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// List yields, in ascending order, the state of each key that begins with
// prefix and has holders or waiters; an empty prefix stands for all keys. The
// keys come in pages of up to 256. Each page shows one moment during the call,
// and a later page a later moment. A key that is taken or freed meanwhile may
// or may not be yielded; a key that does not change is yielded once. To follow
// later changes, use WatchPrefix.
//
// The sequence ends after the last key, or when the loop breaks. If List cannot
// continue, the sequence ends with one last pair with a non-nil error: the
// cause of ctx, with cluster.ErrNoQuorum if no leader was found until then;
// ErrClosed; cluster.ErrStopped; cluster.ErrVersion while the cluster is being
// upgraded; or a *cluster.ConfigError.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return c.ListAfter(ctx, prefix, "")
}

// ListAfter is List of the keys that sort after the key after, for programs that show one
// page at a time. The key after need not exist.
func (c *Client) ListAfter(ctx context.Context, prefix, after string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := cmp.Or(checkContext(ctx), checkPrefix(prefix), checkPrefix(after)); err != nil {
			yield(Status{}, err)
			return
		}
		scan := func(q replica.Scan) (replica.Scanned, error) { return c.scan(ctx, q) }
		for a, err := range pages(prefix, after, scan) {
			if err != nil {
				yield(Status{}, callError("list", prefix, err))
				return
			}
			for _, st := range a.Keys {
				if !yield(c.newStatus(st), nil) {
					return
				}
			}
		}
	}
}

// pages yields the pages of the keys that begin with prefix and sort after after, as read
// by scan. An error is the last pair.
func pages(prefix, after string, scan func(replica.Scan) (replica.Scanned, error)) iter.Seq2[replica.Scanned, error] {
	return func(yield func(replica.Scanned, error) bool) {
		q := replica.Scan{Prefix: prefix, From: max(prefix, firstKey), Limit: replica.MaxScanned}
		if after != "" {
			q.From = max(q.From, after+"\x00")
		}
		for {
			a, err := scan(q)
			if len(a.Keys) > 0 {
				a.Last = a.Keys[len(a.Keys)-1].Key
			}
			if !yield(a, err) || err != nil || !a.More || a.Last == "" {
				return
			}
			q.From = a.Last + "\x00" // the least key that sorts after the last
		}
	}
}

// WatchPrefix yields the state of each key that begins with prefix and has
// holders or waiters, like List, and then the new state of each key that
// changes, also when the key becomes vacant. If states change faster than the
// loop's body runs, some are skipped, but never a key's latest, and a key's
// tokens never fall. WatchPrefix continues through leader changes and while no
// leader can be reached.
//
// WatchPrefix may skip a key that was taken and freed in between, and may yield
// a vacant key twice. If the loop falls so far behind that the cluster has
// forgotten the changes, or very many keys change at once, WatchPrefix lists
// the keys again: keys whose last yielded state is still current are skipped,
// and vacant keys are yielded if they were not vacant before. The memory used
// grows with the number of keys with holders or waiters.
//
// The sequence ends when the loop breaks, or with an error like List's, except
// that an unreachable cluster does not end the sequence.
func (c *Client) WatchPrefix(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := cmp.Or(checkContext(ctx), checkPrefix(prefix)); err != nil {
			yield(Status{}, err)
			return
		}
		w := &prefixWatch{c: c, ctx: ctx, prefix: prefix, yield: yield, yielded: make(map[string]uint64)}
		if err := w.run(); err != nil {
			yield(Status{}, callError("watch", prefix, err))
		}
	}
}

// prefixWatch is one loop of WatchPrefix.
type prefixWatch struct {
	c       *Client
	ctx     context.Context
	prefix  string
	yield   func(Status, error) bool
	yielded map[string]uint64 // versions of the last yielded states that were not vacant, by key
}

// run returns the final error of the sequence, or nil if the loop has broken.
func (w *prefixWatch) run() error {
	since, ok, err := w.list()
	for ok && err == nil {
		var a replica.Scanned
		a, err = w.scan(replica.Scan{Prefix: w.prefix, Limit: replica.MaxScanned, Since: since})
		switch {
		case err != nil:
		case a.Lost, a.More && a.Version <= since:
			since, ok, err = w.list()
		default:
			since = a.Version
			for i := 0; ok && i < len(a.Keys); i++ {
				ok = w.yieldIfNew(a.Keys[i])
			}
		}
	}
	return err
}

// list yields all changed keys, including keys that are gone. The result is the
// version of the last change seen, and false if the loop has broken.
func (w *prefixWatch) list() (since uint64, ok bool, err error) {
	gone := maps.Clone(w.yielded)
	for a, err := range pages(w.prefix, "", w.scan) {
		if err != nil {
			return 0, false, err
		}
		if since == 0 {
			// The version of the first page. With a later page's version,
			// changes of the first page's keys in between would be missed.
			since = a.Version
		}
		for _, st := range a.Keys {
			delete(gone, st.Key)
			if !w.yieldIfNew(st) {
				return 0, false, nil
			}
		}
	}
	// Read one by one, since only a read returns a vacant key's token. Few keys
	// are gone at a time, or speed does not matter.
	for key := range gone {
		q := replica.Query{Key: key, Waiters: replica.MaxScannedEach}
		a, err := retryRead(w.ctx, w.c, w.c.isFinal, func() (replica.Answer, error) { return w.c.read(w.ctx, q) })
		if err != nil {
			return 0, false, err
		}
		if !w.yieldIfNew(a.Status) {
			return 0, false, nil
		}
	}
	return since, true, nil
}

// scan reads from the cluster, again after each failure that may pass.
func (w *prefixWatch) scan(q replica.Scan) (replica.Scanned, error) {
	return retryRead(w.ctx, w.c, w.c.isFinal, func() (replica.Scanned, error) { return w.c.scan(w.ctx, q) })
}

// yieldIfNew yields a key's state unless the same version was yielded last. The
// result is false when the loop has broken.
func (w *prefixWatch) yieldIfNew(m machine.Status) bool {
	if reserved(m.Key) {
		return true
	}
	version, known := w.yielded[m.Key]
	if known && version >= m.Version && m.Version != 0 {
		return true
	}
	st := w.c.newStatus(m)
	if st.vacant() {
		delete(w.yielded, m.Key)
	} else {
		w.yielded[m.Key] = m.Version
	}
	return w.yield(st, nil)
}
