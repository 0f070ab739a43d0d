package locks

import (
	"cmp"
	"encoding/binary"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
)

// ownIndex has the keys of a session's grants and waiters in order, so that a page of
// them costs nothing like the number of all. The first page makes the index, and a client
// that nobody asks for one never has it. From then on each grant and waiter that comes or
// goes changes the index. It is guarded by the session's mu. A nil index takes every
// change and keeps none.
type ownIndex struct {
	holds, waits machine.StringSet // of ownEntry
}

// ownEntry is a key with the seq of its request.
func ownEntry(key string, seq uint64) string {
	return string(binary.BigEndian.AppendUint64([]byte(key), seq))
}

// split returns the parts of an ownEntry.
func split(entry string) (key string, seq uint64) {
	at := len(entry) - 8
	return entry[:at], binary.BigEndian.Uint64([]byte(entry[at:]))
}

func (x *ownIndex) addGrant(g *grant) {
	if x != nil {
		for _, key := range g.keys() {
			x.holds.Add(ownEntry(key, g.seq))
		}
	}
}

func (x *ownIndex) removeGrant(g *grant) {
	if x != nil {
		for _, key := range g.keys() {
			x.holds.Remove(ownEntry(key, g.seq))
		}
	}
}

func (x *ownIndex) addWaiter(w *waiter) {
	if x != nil {
		for _, key := range w.allKeys() {
			x.waits.Add(ownEntry(key, w.seq))
		}
	}
}

func (x *ownIndex) removeWaiter(w *waiter) {
	if x != nil {
		for _, key := range w.allKeys() {
			x.waits.Remove(ownEntry(key, w.seq))
		}
	}
}

// indexLocked returns the index, and makes it if there is none. The caller holds s.mu.
func (s *session) indexLocked() *ownIndex {
	if s.own == nil {
		s.own = &ownIndex{}
		for _, g := range s.grants {
			s.own.addGrant(g)
		}
		for _, w := range s.waiters {
			s.own.addWaiter(w)
		}
	}
	return s.own
}

// entries yields the keys and seqs of a set, from a key on, of keys with prefix.
func entries(set *machine.StringSet, prefix, from string) iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for entry := range set.From(max(prefix, from), prefix) {
			// A seq's first byte is 0, so an entry is not far from the place of its key.
			if key, seq := split(entry); key >= from && strings.HasPrefix(key, prefix) && !yield(key, seq) {
				return
			}
		}
	}
}

// ownKeys is LocalKeys of a member without a copy of the table.
func (c *Client) ownKeys(prefix, from string, limit int) (list []Status, next string) {
	list = []Status{}
	s := c.currentSession()
	if s == nil {
		return list, ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	x := s.indexLocked()
	nextHold, endHolds := iter.Pull2(entries(&x.holds, prefix, from))
	defer endHolds()
	nextWait, endWaits := iter.Pull2(entries(&x.waits, prefix, from))
	defer endWaits()
	hold, holdSeq, holds := nextHold()
	wait, waitSeq, waits := nextWait()
	for holds || waits {
		key := hold
		if !holds || waits && wait < hold {
			key = wait
		}
		if len(list) == limit {
			return list, key
		}
		st := Status{Key: key}
		for ; holds && hold == key; hold, holdSeq, holds = nextHold() {
			s.describeGrant(&st, s.grants[holdSeq], now)
		}
		for ; waits && wait == key; wait, waitSeq, waits = nextWait() {
			s.describeWaiter(&st, s.waiters[waitSeq])
		}
		list = append(list, st)
	}
	return list, ""
}

// describeGrant adds a grant of this session to the state of a key. The caller holds s.mu.
func (s *session) describeGrant(st *Status, g *grant, now time.Time) {
	st.Holding++
	token := g.clusterToken()
	st.Token = max(st.Token, token)
	if len(st.Holders) == maxOwnEach {
		return
	}
	st.Holders = append(st.Holders, Holder{
		Client: s.c.name(), Node: s.c.rep.Member(), Self: true, Ref: s.id.Ref().String(), Token: token, Mode: Mode(g.mode), Keys: len(g.keys()),
		Acquired: g.since, Left: max(0, s.trust.ttl-now.Sub(s.trust.sent.at)), Asked: g.asked, Sticky: g.kept != nil,
	})
}

// describeWaiter adds a request of this session to the state of a key. The caller holds
// s.mu.
func (s *session) describeWaiter(st *Status, w *waiter) {
	st.Queue++
	if len(st.Waiters) == maxOwnEach {
		return
	}
	st.Waiters = append(st.Waiters, Waiter{
		Client: s.c.name(), Node: s.c.rep.Member(), Self: true, Ref: s.id.Ref().String(), Position: w.position, Mode: Mode(w.cmd.Mode),
		N: int(w.cmd.N), Of: int(w.cmd.Of), Tree: w.cmd.Tree, Keys: len(w.allKeys()), Upgrade: w.upgrades != nil,
		Priority: int(w.cmd.Priority), Since: w.began,
	})
}

// maxOwnEach bounds the holders and the waiters of a key in an own view.
const maxOwnEach = 16

// describe describes the session as Client.Sessions does.
func (s *session) describe(now time.Time) Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Session{
		Ref: s.id.Ref().String(), Client: s.c.name(), Node: s.c.rep.Member(), Self: true, TTL: s.ttl, Opened: s.opened,
		Left: max(0, s.trust.ttl-now.Sub(s.trust.sent.at)), Keys: len(s.grants), Waits: len(s.waiters), Meta: maps.Clone(s.c.opts.Meta),
	}
	return st
}

// ownShards fills in the shards of a name that this client owns.
func (c *Client) ownShards(page *LocalShards, from, limit int) {
	v, ok := c.spreads.Load(page.Name)
	if !ok {
		return
	}
	call := v.(*spreadCall)
	page.Shards = call.shards
	mine := call.mine()
	self := Owner{Client: c.name(), Node: c.rep.Member(), Self: true, Meta: maps.Clone(c.opts.Meta)}
	if c.node != nil {
		self.Addr = c.node.Addr()
	}
	page.Callers = append(page.Callers, Caller{
		Client: self.Client, Node: self.Node, Addr: self.Addr, Self: true, Weight: int(call.options.weight), Shards: len(mine),
	})
	for _, o := range mine {
		switch {
		case o.shard < from:
		case o.shard >= from+limit:
			page.Next = from + limit
			return
		default:
			self.Token = o.token
			page.Owners = append(page.Owners, ShardOwner{o.shard, self})
		}
	}
}

// ownShard is a shard of this client with the token of its lock.
type ownShard struct {
	shard int
	token fence.Token
}

// mine lists the shards whose work runs, in ascending order.
func (call *spreadCall) mine() []ownShard {
	sp := call.now.Load()
	if sp == nil {
		return nil
	}
	var list []ownShard
	sp.mu.Lock()
	for shard, l := range sp.locks {
		list = append(list, ownShard{shard, l.Token()})
	}
	sp.mu.Unlock()
	slices.SortFunc(list, func(a, b ownShard) int { return cmp.Compare(a.shard, b.shard) })
	return list
}

// Report returns what this client and its node know by themselves. Report asks nobody,
// waits for no leader, no disk and no other member, and takes a fraction of a millisecond.
// It also answers after Close, and after the end of the node.
func (c *Client) Report() Report {
	r := Report{Client: c.name(), Holds: []OwnHold{}, Waits: []OwnWait{}, Spreads: []OwnSpread{}, Losses: []OwnLoss{}, Events: []OwnEvent{}}
	if c.node != nil {
		r.Node = c.node.Report()
	}
	c.trace.past.report(&r)
	r.Counts = c.counts()
	if s := c.currentSession(); s != nil {
		s.report(&r)
	}
	c.spreads.Range(func(name, call any) bool {
		sp := OwnSpread{Name: name.(string), Shards: call.(*spreadCall).shards, Mine: []int{}}
		for _, o := range call.(*spreadCall).mine() {
			sp.Mine = append(sp.Mine, o.shard)
		}
		r.Spreads = append(r.Spreads, sp)
		return true
	})
	slices.SortFunc(r.Spreads, func(a, b OwnSpread) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// maxReported bounds the holds and the waits in a report.
const maxReported = 100

// report fills in the session's part.
func (s *session) report(r *Report) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == 0 {
		r.Session = &OwnSession{
			Ref: s.id.Ref().String(), TTL: cluster.Duration(s.ttl), Opened: s.opened,
			Confirmed: s.trust.sent.at, Age: cluster.Duration(now.Sub(s.trust.sent.at)),
			Trust: cluster.Duration(max(0, s.trust.remaining(s.c.now()))), Pending: len(s.beats),
		}
	}
	r.HoldsTotal, r.WaitsTotal, r.Kept = len(s.grants), len(s.waiters), len(s.kept)
	x := s.indexLocked()
	for key, seq := range entries(&x.holds, "", "") {
		g := s.grants[seq]
		if key != g.key {
			continue // the grant stands under its first key
		}
		if len(r.Holds) == maxReported {
			break
		}
		h := OwnHold{
			Key: g.key, Token: g.token, Mode: Mode(g.mode), Since: g.since, Age: cluster.Duration(now.Sub(g.since)),
			Asked: g.asked, Contended: g.contended,
		}
		if n := len(g.keys()); n > 1 {
			h.Keys = n
		}
		r.Holds = append(r.Holds, h)
	}
	for key, seq := range entries(&x.waits, "", "") {
		w := s.waiters[seq]
		if key != w.key {
			continue
		}
		if len(r.Waits) == maxReported {
			break
		}
		q := OwnWait{
			Key: w.key, Mode: Mode(w.cmd.Mode), Since: w.began, Age: cluster.Duration(now.Sub(w.began)), Position: w.position,
			Holder: w.inTheWay.Client, Node: w.inTheWay.Node, Token: fence.Token(w.inTheWay.Token), Upgrade: w.upgrades != nil,
		}
		if n := len(w.allKeys()); n > 1 {
			q.Keys = n
		}
		r.Waits = append(r.Waits, q)
	}
}
