package lockshttp

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/locks"
)

// Bounds of a waits-for graph. A person reads no larger one.
const (
	maxNodes   = 64
	maxFanOut  = 8  // holders or waits of one node that are followed
	maxHolders = 64 // holders and waiters of the key itself that are listed
)

// states is what a graph of waits is made from: the states of all keys with holders or
// waiters, as far as they could be read.
type states struct {
	keys  map[string]*locks.Status
	waits map[string][]string // by Ref of a session: the keys that it waits for, ascending
	trees map[string]bool     // the keys with a holder of a tree
	cut   bool                // there are more keys
}

func newStates() *states {
	return &states{keys: make(map[string]*locks.Status), waits: make(map[string][]string), trees: make(map[string]bool)}
}

// add notes the state of a key. Keys come in ascending order.
func (t *states) add(st locks.Status) {
	t.keys[st.Key] = &st
	for _, w := range st.Waiters {
		if all := t.waits[w.Ref]; len(all) == 0 || all[len(all)-1] != st.Key {
			t.waits[w.Ref] = append(all, st.Key)
		}
	}
	for _, h := range st.Holders {
		if h.Tree {
			t.trees[st.Key] = true
		}
	}
}

// graph is a waits-for graph that grows.
type graph struct {
	t     *states
	now   time.Time
	doc   *documents.Why
	known map[string]bool // IDs of nodes
	next  []string        // IDs of nodes to be followed
}

// explain fills doc with the graph of waits from key on, and with sentences about it.
func explain(doc *documents.Why, t *states, key string, now time.Time) {
	g := &graph{t: t, now: now, doc: doc, known: make(map[string]bool)}
	doc.Nodes, doc.Edges, doc.Text = []documents.Node{}, []documents.Edge{}, []string{}
	doc.Cut = t.cut
	st := t.keys[key]
	if st == nil {
		st = &locks.Status{Key: key}
	}
	g.node(keyID(key), documents.Node{Kind: "key", Name: key, Queue: st.Queue}, true)
	for i, w := range st.Waiters {
		if i == maxFanOut {
			doc.Cut = true
			break
		}
		if id, ok := g.session(w.Ref, w.Client, w.Node, false); ok {
			g.edge(id, keyID(key), "waits-for", 0, w.Since)
		}
	}
	for len(g.next) > 0 {
		id := g.next[0]
		g.next = g.next[1:]
		kind, name, _ := strings.Cut(id, ":")
		if kind == "key" {
			g.followKey(name)
		} else {
			g.followSession(name)
		}
	}
	doc.Cycle = cyclic(doc.Nodes, doc.Edges)
	doc.Text = append(doc.Text, sentences(t, st, now)...)
	if doc.Cycle {
		doc.Text = append(doc.Text, "The waits form a circle. A client may wait with one goroutine and hold with another, so the circle is no proof of a deadlock; if nothing moves, Break one of its grants.")
	}
}

func keyID(key string) string     { return "key:" + key }
func sessionID(ref string) string { return "session:" + ref }

// node adds a node, once. follow says that its own waits are of interest. The result is
// false if there is no room.
func (g *graph) node(id string, n documents.Node, follow bool) bool {
	if !g.known[id] {
		if len(g.doc.Nodes) == maxNodes {
			g.doc.Cut = true
			return false
		}
		g.known[id] = true
		n.ID = id
		g.doc.Nodes = append(g.doc.Nodes, n)
	}
	if follow && !g.known["followed "+id] {
		g.known["followed "+id] = true
		g.next = append(g.next, id)
	}
	return true
}

func (g *graph) session(ref, client, member string, follow bool) (id string, ok bool) {
	id = sessionID(ref)
	return id, g.node(id, documents.Node{Kind: "session", Name: client, Node: member}, follow)
}

func (g *graph) edge(from, to, kind string, token documents.Number, since time.Time) {
	_, age := moment(since, g.now)
	e := documents.Edge{From: from, To: to, Kind: kind, Token: token, For: age}
	for _, o := range g.doc.Edges {
		if o.From == e.From && o.To == e.To && o.Kind == e.Kind && o.Token == e.Token {
			return
		}
	}
	g.doc.Edges = append(g.doc.Edges, e)
}

// followKey adds the holders of a key, and the keys above and below it in its way.
func (g *graph) followKey(key string) {
	st := g.t.keys[key]
	if st == nil {
		return
	}
	for i, h := range st.Holders {
		if i == maxFanOut {
			g.doc.Cut = true
			break
		}
		if id, ok := g.session(h.Ref, h.Client, h.Node, true); ok {
			g.edge(keyID(key), id, "held-by", documents.Number(h.Token), h.Acquired)
		}
	}
	for _, other := range g.t.related(st) {
		if g.node(keyID(other), documents.Node{Kind: "key", Name: other, Queue: g.t.keys[other].Queue}, true) {
			g.edge(keyID(key), keyID(other), "blocked-by", 0, time.Time{})
		}
	}
}

// followSession adds the keys that a session waits for.
func (g *graph) followSession(ref string) {
	for i, key := range g.t.waits[ref] {
		if i == maxFanOut {
			g.doc.Cut = true
			return
		}
		st := g.t.keys[key]
		if g.node(keyID(key), documents.Node{Kind: "key", Name: key, Queue: st.Queue}, true) {
			since := time.Time{}
			for _, w := range st.Waiters {
				if w.Ref == ref {
					since = w.Since
					break
				}
			}
			g.edge(sessionID(ref), keyID(key), "waits-for", 0, since)
		}
	}
}

// related returns the keys above st that are held as trees, and, if the first waiter
// wants a tree, some held keys below: they may be in the way of the waiters.
func (t *states) related(st *locks.Status) (keys []string) {
	if st.Queue == 0 {
		return nil
	}
	for i := range len(st.Key) {
		if st.Key[i] == '/' && t.trees[st.Key[:i]] {
			keys = append(keys, st.Key[:i])
		}
	}
	if len(st.Waiters) > 0 && st.Waiters[0].Tree {
		var below []string
		for key, other := range t.keys {
			if other.Holding > 0 && strings.HasPrefix(key, st.Key+"/") {
				below = append(below, key)
			}
		}
		slices.Sort(below)
		keys = append(keys, below...)
	}
	return keys[:min(len(keys), maxFanOut)]
}

// cyclic reports whether the edges lead from a node back to itself.
func cyclic(nodes []documents.Node, edges []documents.Edge) bool {
	// Nodes to which no edge leads are in no cycle; without them, others are found.
	in := make(map[string]int)
	out := make(map[string][]string)
	for _, e := range edges {
		in[e.To]++
		out[e.From] = append(out[e.From], e.To)
	}
	var free []string
	for _, n := range nodes {
		if in[n.ID] == 0 {
			free = append(free, n.ID)
		}
	}
	left := len(nodes)
	for len(free) > 0 {
		id := free[len(free)-1]
		free = free[:len(free)-1]
		left--
		for _, to := range out[id] {
			if in[to]--; in[to] == 0 {
				free = append(free, to)
			}
		}
	}
	return left > 0
}

// sentences explains the state of a key.
func sentences(t *states, st *locks.Status, now time.Time) (text []string) {
	say := func(format string, args ...any) { text = append(text, fmt.Sprintf(format, args...)) }
	switch {
	case st.Holding == 0 && st.Queue == 0:
		say("Nobody holds the key, and nobody waits for it.")
		return text
	case st.Holding == 0:
		say("Nobody holds the key itself.")
	}
	for i, h := range st.Holders {
		if i == maxFanOut {
			say("%d more hold the key.", st.Holding-i)
			break
		}
		say("%s on %s holds the key%s, %s, under token %d.", name(h.Client), h.Node, since(h.Acquired, now), h.Mode, h.Token)
		switch {
		case h.Delayed:
			say("The session of %s has expired; the delay of its grant keeps the key taken.", name(h.Client))
		case h.Broken:
			say("An operator has broken this grant: the key is free once the client of %s has ended the lock, or once its session has expired.", name(h.Client))
		case h.Asked:
			say("%s has been asked to release the key.", name(h.Client))
		}
		for j, key := range t.waits[h.Ref] {
			if j == maxFanOut {
				say("%s waits for more keys.", name(h.Client))
				break
			}
			if other := t.keys[key]; len(other.Holders) > 0 {
				say("%s itself waits for %s, which %s on %s holds%s.", name(h.Client), name(key), name(other.Holders[0].Client), other.Holders[0].Node, since(other.Holders[0].Acquired, now))
			} else {
				say("%s itself waits for %s.", name(h.Client), name(key))
			}
		}
	}
	if st.CapacitySet || st.Capacity > 0 {
		say("%d of %d permits are held.", st.Permits, st.Capacity)
	}
	for _, key := range t.related(st) {
		say("The lock of %s may be in the way: one of the two includes the other.", name(key))
	}
	switch first := st.Waiters; {
	case st.Queue == 0:
		say("Nobody waits.")
	case len(first) == 0:
		say("%d requests wait.", st.Queue)
	case st.Queue == 1:
		say("One request waits: %s on %s%s.", name(first[0].Client), first[0].Node, since(first[0].Since, now))
	default:
		say("%d requests wait; the first is of %s on %s%s.", st.Queue, name(first[0].Client), first[0].Node, since(first[0].Since, now))
	}
	return text
}

// name returns a name that a client has chosen, as it stands in a sentence.
func name(s string) string { return `"` + visible(s) + `"` }

// since returns " for 5s".
func since(t, now time.Time) string {
	_, age := moment(t, now)
	if age == nil {
		return ""
	}
	return " for " + time.Duration(*age).Round(time.Second).String()
}
