package lockshttp

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/locks"
)

// Bounds of events.
const (
	maxStreams = 64     // open at a time
	kept       = 1024   // events for slow readers
	backlog    = 64     // events that a new stream begins with
	mostKeys   = 20_000 // keys that are compared one by one
	mostNews   = 256    // events about keys from one look; the others are counted

	lookEvery = 500 * time.Millisecond
	keepKeys  = 30 * time.Second // for a reader whose connection breaks, and who comes back
)

// hub turns what the member knows by itself into events. It has no goroutine: the streams
// take turns in looking, and nobody looks while no stream is open: what the member's
// reports do not tell afterwards is a gap then, and an event of its own. All streams read the
// same bounded list, each at its own place; a stream that falls behind the list's
// beginning skips the events that are gone, and is told how many.
//
// Not taken: a subscription to the node's and the client's events. They tell what
// happened on this member, and a person wants to see what happened to the keys.
type hub struct {
	c *locks.Client

	mu      sync.Mutex
	streams int
	looked  time.Time
	events  []documents.Event // the latest, in ascending order of Seq
	last    uint64            // Seq of the latest event

	node   cluster.EventReport // the latest one seen
	client locks.OwnEvent
	loss   locks.OwnLoss
	keys   map[string]keyNews // as of index; nil: not known
	index  uint64
	blind  bool // there are too many keys to compare

	left   time.Time   // when the last stream has left
	forget *time.Timer // forgets the keys when nobody comes back; nil while streams are open
	unseen time.Time   // since then the keys were not compared; zero: they are
}

// keyNews is the part of a key's state that events tell about.
type keyNews struct {
	tokens []uint64 // of its holders
	names  []string // of their clients, and members
	queue  int
}

func newHub(c *locks.Client) *hub { return &hub{c: c} }

// enter registers a stream, which must leave. The result is false if there are too many.
func (b *hub) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams == maxStreams {
		return false
	}
	b.streams++
	if b.forget != nil {
		b.forget.Stop()
		b.forget = nil
	}
	return true
}

func (b *hub) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams--; b.streams == 0 {
		b.left = time.Now()
		b.forget = time.AfterFunc(keepKeys, b.forgetKeys)
	}
}

// forgetKeys gives the memory of the keys back when no stream is open.
func (b *hub) forgetKeys() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams > 0 || b.keys == nil {
		return
	}
	b.keys, b.index, b.unseen = nil, 0, b.left
}

// since returns the events after a Seq, the number of further events that are gone, and
// the Seq to go on from. For a Seq that is none of this hub's, since returns the latest
// events. It looks for news first, unless another stream has just done so.
func (b *hub) since(seq uint64, known bool) (events []documents.Event, dropped, next uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); now.Sub(b.looked) >= lookEvery {
		b.looked = now
		b.look(now)
	}
	if !known || seq > b.last {
		return slices.Clone(b.events[max(0, len(b.events)-backlog):]), 0, b.last
	}
	first := b.last - uint64(len(b.events)) + 1
	if seq+1 < first {
		dropped = first - seq - 1
		seq = first - 1
	}
	return slices.Clone(b.events[seq+1-first:]), dropped, b.last
}

func (b *hub) tell(e documents.Event) {
	b.last++
	e.Seq = documents.Number(b.last)
	e.At = e.At.UTC()
	if len(b.events) == kept {
		b.events = append(b.events[:0:0], b.events[kept/4:]...)
	}
	b.events = append(b.events, e)
}

// look compares what the member knows with what it knew at the last look.
func (b *hub) look(now time.Time) {
	r := b.c.Report()
	if !b.unseen.IsZero() {
		b.tell(documents.Event{At: now, Kind: "Gap", Detail: fmt.Sprintf("nobody followed the events since %s: changes of keys until now are not told", b.unseen.UTC().Format(time.RFC3339))})
		b.unseen = time.Time{}
	}
	for _, e := range news(b, r.Node.Events, &b.node, "of the member", now) {
		b.tell(documents.Event{At: e.At, Kind: e.Kind, Node: e.Member, Detail: e.Detail, Next: e.Next})
	}
	for _, e := range news(b, r.Events, &b.client, "of the client", now) {
		b.tell(documents.Event{At: e.At, Kind: e.Kind, Key: e.Key, Token: documents.Number(e.Token), Client: r.Client, Detail: e.Detail})
	}
	for _, e := range news(b, r.Losses, &b.loss, "of lost locks", now) {
		b.tell(documents.Event{At: e.At, Kind: "Lost", Key: e.Key, Token: documents.Number(e.Token), Client: r.Client, Detail: e.Reason.String()})
	}
	b.lookAtKeys(now)
}

// news returns the elements of list that follow the last one seen, and notes the latest.
// If the last one is not in the list, all are new, and older ones are gone: news tells so.
func news[E comparable](b *hub, list []E, last *E, what string, now time.Time) []E {
	seen := len(list) - 1
	for seen >= 0 && list[seen] != *last {
		seen--
	}
	if first := *last == *new(E); seen < 0 && !first && len(list) > 0 {
		b.tell(documents.Event{At: now, Kind: "Gap", Detail: fmt.Sprintf("there were more events %s than the %d that are kept", what, len(list))})
	}
	list = list[seen+1:]
	if len(list) > 0 {
		*last = list[len(list)-1]
	}
	return list
}

// lookAtKeys tells the changes of keys since the last look, if there was one.
func (b *hub) lookAtKeys(now time.Time) {
	page := b.c.LocalKeys("", "", 0)
	if page.Source.Index != 0 && page.Source.Index == b.index {
		return
	}
	keys := make(map[string]keyNews)
	for {
		for _, st := range page.Keys {
			keys[st.Key] = newsOf(st)
		}
		if page.Next == "" {
			break
		}
		if len(keys) >= mostKeys {
			if !b.blind {
				b.tell(documents.Event{At: now, Kind: "TooManyKeys", Detail: fmt.Sprintf("with more than %d keys, changes of keys are not told", mostKeys)})
			}
			b.blind, b.keys = true, nil
			return
		}
		page = b.c.LocalKeys("", page.Next, 0)
	}
	if b.keys != nil {
		b.tellKeys(keys, now)
	}
	b.blind, b.keys, b.index = false, keys, page.Source.Index
}

func newsOf(st locks.Status) keyNews {
	n := keyNews{queue: st.Queue}
	for _, h := range st.Holders {
		n.tokens = append(n.tokens, uint64(h.Token))
		n.names = append(n.names, h.Client, h.Node)
	}
	return n
}

// tellKeys tells the difference between b.keys and keys.
func (b *hub) tellKeys(keys map[string]keyNews, now time.Time) {
	var changed []string
	for key, n := range keys {
		if o, ok := b.keys[key]; !ok || o.queue != n.queue || !slices.Equal(o.tokens, n.tokens) {
			changed = append(changed, key)
		}
	}
	for key := range b.keys {
		if _, ok := keys[key]; !ok {
			changed = append(changed, key)
		}
	}
	slices.Sort(changed)
	for i, key := range changed {
		if i == mostNews {
			b.tell(documents.Event{At: now, Kind: "KeysChanged", Detail: fmt.Sprintf("%d more keys have changed", len(changed)-i)})
			return
		}
		b.tellKey(key, b.keys[key], keys[key], now)
	}
}

func (b *hub) tellKey(key string, o, n keyNews, now time.Time) {
	freed := true
	for i, token := range n.tokens {
		if slices.Contains(o.tokens, token) {
			freed = false
			continue
		}
		freed = false
		b.tell(documents.Event{At: now, Kind: "Granted", Key: key, Token: documents.Number(token), Client: n.names[2*i], Node: n.names[2*i+1]})
	}
	if freed && len(o.tokens) > 0 {
		b.tell(documents.Event{At: now, Kind: "Freed", Key: key, Token: documents.Number(o.tokens[0]), Client: o.names[0], Node: o.names[1]})
	}
	if n.queue != o.queue {
		b.tell(documents.Event{At: now, Kind: "Queue", Key: key, Detail: fmt.Sprintf("%d wait", n.queue)})
	}
}
