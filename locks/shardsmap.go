package locks

import (
	"cmp"
	"context"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// shardsUpdate keeps a Shards current. followGroup follows the group: its number of
// shards and its callers. followOwners follows the holders of the keys below the
// name.
type shardsUpdate struct {
	m     *Shards
	ctx   context.Context
	group uint64               // version of the last answer about the group
	state *machine.GroupStatus // of that answer, with all callers; nil: there is no group
	since uint64               // version of the last scan
	metas map[machine.SessionID]map[string]string
}

// follow reads the whole map once, and then follows its changes until ctx or the client
// ends.
func (m *Shards) follow(ctx context.Context) error {
	u := &shardsUpdate{m: m, ctx: ctx}
	a, err := retryRead(u.ctx, u.m.c, u.m.c.isFinal, func() (replica.Answer, error) {
		return u.m.c.read(u.ctx, replica.Query{Group: u.m.name})
	})
	if err != nil {
		return err
	}
	u.applyGroup(a)
	if err := u.listOwners(); err != nil {
		return err
	}
	m.c.goTask(u.followGroup)
	m.c.goTask(u.followOwners)
	return nil
}

// followGroup applies each change of the group until ctx or the client ends.
func (u *shardsUpdate) followGroup() {
	for {
		q := replica.Query{Group: u.m.name, Version: u.group}
		if u.state != nil {
			q.Since = u.state.Version
		}
		a, err := retryRead(u.ctx, u.m.c, u.m.c.isFinal, func() (replica.Answer, error) { return u.m.c.read(u.ctx, q) })
		if err != nil {
			u.m.end(err)
			return
		}
		u.applyGroup(a)
	}
}

// applyGroup makes the group's state the map's.
func (u *shardsUpdate) applyGroup(a replica.Answer) {
	a.Complete(u.state)
	u.state = a.Group
	g := cmp.Or(a.Group, &machine.GroupStatus{})
	addrs := u.m.c.addrs()
	self := u.m.c.currentSession()
	callers := make([]Caller, 0, len(g.Callers))
	for _, c := range g.Callers {
		callers = append(callers, Caller{
			Client: c.Client, Node: c.Node, Addr: addrs[c.Node], Self: self != nil && c.Session == self.id,
			Weight: int(c.Weight), Shards: int(c.Assigned), Succeeds: c.Succeeds, Absent: c.Absent != 0, Next: c.Next,
		})
	}
	u.group = a.Version
	u.m.change(func() {
		u.m.shards, u.m.resizing, u.m.callers = int(g.Shards), int(g.Next), callers
		u.m.options = GroupOptions{
			Drain:    time.Duration(g.Drain) * time.Millisecond,
			Grace:    time.Duration(g.Grace) * time.Millisecond,
			MaxMoves: int(g.MaxMoves),
		}
	})
}

// followOwners applies each change of an owner until ctx or the client ends.
func (u *shardsUpdate) followOwners() {
	for {
		a, err := u.scan(replica.Scan{Prefix: u.m.name + "/", Limit: replica.MaxScanned, Since: u.since})
		switch {
		case err != nil:
		case a.Lost, a.More && a.Version <= u.since:
			err = u.listOwners()
		default:
			u.since = a.Version
			u.applyOwners([]replica.Scanned{a}, a.Version, false)
		}
		if err != nil {
			u.m.end(err)
			return
		}
	}
}

// listOwners reads the owners of all shards.
func (u *shardsUpdate) listOwners() error {
	var list []replica.Scanned
	u.since = 0
	for a, err := range pages(u.m.name+"/", "", u.scan) {
		if err != nil {
			return err
		}
		if u.since == 0 {
			u.since = a.Version // changes of the first page's keys since then follow
		}
		list = append(list, a)
	}
	u.applyOwners(list, u.since, true)
	return nil
}

// scan reads from the cluster, again after each failure that may pass.
func (u *shardsUpdate) scan(q replica.Scan) (replica.Scanned, error) {
	q.Shards = true
	return retryRead(u.ctx, u.m.c, u.m.c.isFinal, func() (replica.Scanned, error) { return u.m.c.scan(u.ctx, q) })
}

// applyOwners sets the owners of the shards in the answers. If these have all shards in
// use, all other shards have no owner.
func (u *shardsUpdate) applyOwners(list []replica.Scanned, version uint64, all bool) {
	addrs := u.m.c.addrs()
	self := u.m.c.currentSession()
	owners := make(map[int]Owner)
	most := 0
	for i := range list {
		for o := range list[i].Unpacked() {
			shard := int(o.Shard)
			most = max(most, shard+1)
			if o.Token == 0 {
				owners[shard] = Owner{}
				continue
			}
			by := o.Owner
			owners[shard] = Owner{
				Client: by.Client, Node: by.Node, Addr: addrs[by.Node], Self: self != nil && by.Session == self.id,
				Token: fence.Token(o.Token), Meta: u.meta(by),
			}
		}
	}
	u.m.change(func() {
		if all {
			clear(u.m.owners)
		}
		if n := most - len(u.m.owners); n > 0 {
			u.m.owners = append(u.m.owners, make([]Owner, n)...)
		}
		for shard, owner := range owners {
			u.m.owners[shard] = owner
		}
		u.m.version = max(u.m.version, version)
	})
	if len(u.metas) > 2*machine.MaxCallers {
		clear(u.metas) // of sessions that have ended, most of them
	}
}

// meta returns the meta of the holder's session. An answer with many large metas lacks
// some of them; a session's meta never changes.
func (u *shardsUpdate) meta(h *replica.ShardOwner) map[string]string {
	if h.SessionMeta == "" {
		return u.metas[h.Session]
	}
	if meta, known := u.metas[h.Session]; known {
		return meta
	}
	if u.metas == nil {
		u.metas = make(map[machine.SessionID]map[string]string)
	}
	meta := decodeMeta(h.SessionMeta)
	u.metas[h.Session] = meta
	return meta
}

// change applies f to the map, and wakes the callers of Changed.
func (m *Shards) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	close(m.changed)
	m.changed = make(chan struct{})
}

// end says that the map is not kept current any more.
func (m *Shards) end(err error) {
	m.change(func() {
		if m.err == nil {
			m.err = callError("follow the shards of", m.name, err)
		}
	})
}

// addrs returns the addresses of the members that this member sees, by name.
func (c *Client) addrs() map[string]string {
	addrs := make(map[string]string)
	if c.members != nil {
		for _, m := range c.members() {
			addrs[m.Name] = m.Addr
		}
	}
	return addrs
}
