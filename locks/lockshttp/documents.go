package lockshttp

import (
	"context"
	"net/http"
	"time"

	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/locks"
)

// The views that a request can name.
const (
	viewAuto  = "auto"  // the leader's, or this member's if there is no answer in time
	viewLocal = "local" // this member's
)

const (
	listed = 16 // holders and waiters of a key in a list

	// readPatience bounds the time in which a graph of waits reads its own table.
	readPatience = 50 * time.Millisecond
)

func (h *handler) serveReport(w http.ResponseWriter, r *http.Request) error {
	if _, err := queryOf(r); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, h.c.Report())
}

func (h *handler) serveLocks(w http.ResponseWriter, r *http.Request) error {
	q, err := queryOf(r, "prefix", "after", "limit", "view")
	if err != nil {
		return err
	}
	prefix, err := prefixOf(q, "prefix")
	if err != nil {
		return err
	}
	after, err := prefixOf(q, "after")
	if err != nil {
		return err
	}
	limit, err := countOf(q, "limit", 1, maxPage, pageSize)
	if err != nil {
		return err
	}
	view, err := choiceOf(q, "view", viewAuto, viewLocal)
	if err != nil {
		return err
	}
	var page []locks.Status
	var source locks.Source
	asked := h.ask(r, view, func(ctx context.Context) (err error) {
		page, err = firstOf(h.c.ListAfter(ctx, prefix, after), limit+1)
		return err
	})
	if !asked {
		page, source = h.localKeys(prefix, after, limit+1)
	}
	doc := documents.Locks{Head: h.head(asked, source), Prefix: prefix, Keys: []documents.Key{}}
	if len(page) > limit {
		page, doc.More = page[:limit], true
		doc.After = page[limit-1].Key
	}
	for _, st := range page {
		doc.Keys = append(doc.Keys, keyDocument(st, listed, doc.At, asked || source.Leads))
	}
	if s := h.c.Node().Report().Summary; s != nil && prefix == "" {
		doc.Total = &s.Keys
	}
	return writeJSON(w, http.StatusOK, doc)
}

func (h *handler) serveSessions(w http.ResponseWriter, r *http.Request) error {
	q, err := queryOf(r, "after", "limit", "view")
	if err != nil {
		return err
	}
	after, err := textOf(q, "after", 32)
	if err != nil {
		return err
	}
	limit, err := countOf(q, "limit", 1, maxPage, pageSize)
	if err != nil {
		return err
	}
	view, err := choiceOf(q, "view", viewAuto, viewLocal)
	if err != nil {
		return err
	}
	var page []locks.Session
	var source locks.Source
	asked := h.ask(r, view, func(ctx context.Context) error {
		page = nil
		for s, err := range h.c.Sessions(ctx) {
			switch {
			case err != nil:
				return err
			case s.Ref > after:
				page = append(page, s)
			}
			if len(page) > limit {
				return nil
			}
		}
		return nil
	})
	if !asked {
		page, source = h.localSessions(after, limit+1)
	}
	doc := documents.Sessions{Head: h.head(asked, source), Sessions: []documents.Session{}}
	if len(page) > limit {
		page, doc.More = page[:limit], true
		doc.After = page[limit-1].Ref
	}
	for _, s := range page {
		doc.Sessions = append(doc.Sessions, sessionDocument(s, doc.At, asked || source.Leads))
	}
	return writeJSON(w, http.StatusOK, doc)
}

func (h *handler) serveWhy(w http.ResponseWriter, r *http.Request) error {
	q, err := queryOf(r, "key", "view")
	if err != nil {
		return err
	}
	key, err := keyOf(q, "key")
	if err != nil {
		return err
	}
	view, err := choiceOf(q, "view", viewAuto, viewLocal)
	if err != nil {
		return err
	}
	// The holders' own waits may be for any key, so all keys are read: from this member's
	// own table if it has one. The key itself is the leader's word, if there is one.
	t, source := h.localStates()
	if page := h.c.LocalKeys(key, key, 1); len(page.Keys) > 0 && page.Keys[0].Key == key {
		t.keys[key] = &page.Keys[0] // also if the table is too large to be read whole
	}
	asked := h.ask(r, view, func(ctx context.Context) error {
		st, err := h.c.Inspect(ctx, key)
		if err != nil {
			return err
		}
		if source.From == string(documents.SourceOwn) {
			all := newStates()
			for st, err := range h.c.List(ctx, "") {
				if err != nil {
					all.cut = true
					break
				}
				all.add(st)
			}
			t = all
		}
		t.keys[key] = &st
		return nil
	})
	doc := documents.Why{Head: h.head(asked, source)}
	st := locks.Status{Key: key}
	if found := t.keys[key]; found != nil {
		st = *found
	}
	doc.Key = keyDocument(st, maxHolders, doc.At, asked || source.Leads)
	explain(&doc, t, key, doc.At)
	if !asked && source.From == string(documents.SourceOwn) && t.keys[key] == nil {
		doc.Text = []string{"This member does not know the key: it has no copy of the table, and the leader was not asked or has not answered."}
	}
	if !doc.Quorum {
		doc.Text = append(doc.Text, "The cluster has no quorum as far as this member knows: nothing is granted, and nothing is known to be freed, until it is back.")
	}
	return writeJSON(w, http.StatusOK, doc)
}

// firstOf returns the first n values of a sequence, or its error.
func firstOf[V any](all func(yield func(V, error) bool), n int) (first []V, err error) {
	for v, err := range all {
		if err != nil {
			return nil, err
		}
		if first = append(first, v); len(first) == n {
			break
		}
	}
	return first, nil
}

// head returns the beginning of a document. asked says that the leader has answered;
// otherwise the data is of source.
func (h *handler) head(asked bool, source locks.Source) documents.Head {
	health := h.c.Node().Report().Health
	head := documents.Head{
		Node:   h.c.Node().Name(),
		At:     time.Now().UTC(),
		Source: documents.SourceCluster,
		Quorum: health.Quorum,
		Reason: health.Reason,
		Next:   health.Next,
	}
	if !asked {
		head.Source = documents.Source(source.From)
		head.Age = documents.Duration(source.Age)
		head.Index = documents.Number(source.Index)
	}
	return head
}
