package locks

import (
	"slices"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// maxLocal is the largest number of elements of a local page, and the number for a limit
// of 0.
const maxLocal = replica.MaxScanned

func localLimit(limit int) int {
	if limit <= 0 {
		return maxLocal
	}
	return min(limit, maxLocal)
}

// view runs f on this member's copy of the lock table. If there is none, view returns
// false, and the source of an own view.
func (c *Client) view(f func(*machine.State)) (Source, replica.Times, bool) {
	now := time.Now()
	at, ok := c.rep.Local(f)
	if !ok {
		return Source{From: fromOwn, At: now}, nil, false
	}
	s := Source{From: fromTable, Index: at.Index, At: at.Current, Leads: at.Times != nil}
	if !at.Current.IsZero() {
		s.Age = cluster.Duration(max(0, now.Sub(at.Current)))
	}
	return s, at.Times, true
}

// The values of Source.From.
const (
	fromTable = "table"
	fromOwn   = "own"
)

// LocalKeys returns a page of the keys that begin with prefix and have a holder or a
// waiter, from the key from on, as far as this member knows by itself: it asks nobody, and
// answers without a quorum too. Source says what the page is made of, and how old it is. At
// most 256 keys are in a page; a limit of 0 stands for as many. The next page begins at
// Next; "" means that this page is the last. Each key has its first 16 holders and waiters.
//
// In a page of the table Left is 0, not known, unless this member leads. In a page of a
// thin member stand the keys that this very client holds or waits for, with itself alone.
func (c *Client) LocalKeys(prefix, from string, limit int) LocalKeys {
	limit = localLimit(limit)
	page := LocalKeys{Keys: []Status{}}
	var list []machine.Status
	source, times, ok := c.view(func(m *machine.State) {
		keys := m.Keys(prefix, max(prefix, from, firstKey), limit+1)
		if len(keys) > limit {
			page.Next, keys = keys[limit], keys[:limit]
		}
		for _, key := range keys {
			list = append(list, m.Status(key, replica.MaxScannedEach))
		}
	})
	page.Source = source
	if !ok {
		page.Keys, page.Next = c.ownKeys(prefix, from, limit)
		return page
	}
	for _, st := range list {
		if times != nil {
			times.Describe(st.Holders)
		}
		page.Keys = append(page.Keys, c.newStatus(st))
	}
	return page
}

// LocalSessions returns a page of the open sessions in the order of their Refs, from the
// Ref from on, like LocalKeys. An own view has this client's session alone.
func (c *Client) LocalSessions(from string, limit int) LocalSessions {
	limit = localLimit(limit)
	page := LocalSessions{Sessions: []Session{}}
	first, _ := machine.ParseSessionRef(from)
	var list []machine.SessionStatus
	source, times, ok := c.view(func(m *machine.State) { list = m.SessionsFrom(first, limit+1) })
	page.Source = source
	if !ok {
		if s := c.currentSession(); s != nil && !s.hasEnded() {
			page.Sessions = append(page.Sessions, s.describe(time.Now()))
		}
		return page
	}
	if len(list) > limit {
		page.Next, list = list[limit].ID.Ref().String(), list[:limit]
	}
	left := make([]uint64, len(list))
	if times != nil {
		left = times.TimesLeft(list)
	}
	for i, st := range list {
		page.Sessions = append(page.Sessions, c.newSessionStatus(replica.ListedSession{
			Ref: st.ID.Ref(), Client: st.Client, Node: st.Node, TTL: st.TTL, Opened: st.Opened, Left: left[i],
			Ending: st.Revoked || st.Ending, Keys: st.Keys, Waits: st.Waits, Meta: st.Meta,
		}))
	}
	return page
}

// LocalNames returns a page of the names of Spread that have callers, from the name from
// on, like LocalKeys. An own view has the names for which Spread runs in this client.
func (c *Client) LocalNames(from string, limit int) LocalNames {
	limit = localLimit(limit)
	var names []string
	source, _, ok := c.view(func(m *machine.State) { names = m.GroupNames() })
	if !ok {
		c.spreads.Range(func(name, _ any) bool {
			names = append(names, name.(string))
			return true
		})
	}
	slices.Sort(names)
	at, _ := slices.BinarySearch(names, from)
	page := LocalNames{Source: source, Names: append([]string{}, names[at:]...)}
	if len(page.Names) > limit {
		page.Next, page.Names = page.Names[limit], page.Names[:limit]
	}
	return page
}

// LocalShards returns a page of the shards of a name of Spread, from a shard on, like
// LocalKeys: up to limit shards, those without an owner included in the count and left out
// of Owners. Next is the first shard of the next page, 0 if there is none. An own view has
// the shards that this client owns.
func (c *Client) LocalShards(name string, from, limit int) LocalShards {
	limit = localLimit(limit)
	from = max(from, 0)
	page := LocalShards{Name: name, Callers: []Caller{}, Owners: []ShardOwner{}}
	var group machine.GroupStatus
	type held struct {
		shard int
		grant machine.Grant
	}
	var owners []held
	source, _, ok := c.view(func(m *machine.State) {
		group, _ = m.Group(name)
		for i := from; i < min(from+limit, int(group.Shards)); i++ {
			if st := m.Status(shardKey(name, i), 1); len(st.Holders) > 0 {
				owners = append(owners, held{i, st.Holders[0]})
			}
		}
	})
	page.Source = source
	if !ok {
		c.ownShards(&page, from, limit)
		return page
	}
	page.Shards, page.Resizing, page.Orphans = int(group.Shards), int(group.Next), int(group.Orphans)
	if from+limit < page.Shards {
		page.Next = from + limit
	}
	page.Options = GroupOptions{
		Drain: time.Duration(group.Drain) * time.Millisecond, Grace: time.Duration(group.Grace) * time.Millisecond,
		MaxMoves: int(group.MaxMoves),
	}
	addrs := c.addrs()
	for _, g := range group.Callers {
		page.Callers = append(page.Callers, Caller{
			Client: g.Client, Node: g.Node, Addr: addrs[g.Node], Self: c.isSelf(g.Session),
			Weight: int(g.Weight), Shards: int(g.Assigned), Succeeds: g.Succeeds, Absent: g.Absent != 0, Next: g.Next,
		})
	}
	for _, o := range owners {
		g := &o.grant
		page.Owners = append(page.Owners, ShardOwner{o.shard, Owner{
			Client: g.Client, Node: g.Node, Addr: addrs[g.Node], Self: c.isSelf(g.Session), Token: fence.Token(g.Token),
			Meta: decodeMeta(g.SessionMeta),
		}})
	}
	return page
}
