package machine

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A group divides shards among callers. The table keeps, for each shard, the caller to
// which the shard is assigned. Assignment is an intent and never ownership: a caller
// owns shard i by an ordinary grant of the ordinary key "name/i", which it acquires
// and releases by ordinary commands. So no assignment, however wrong, gives a shard two
// owners; and a shard passes from one owner to the next in one entry, because the next
// owner waits in the queue of the key.
//
// The table decides nothing about the division: the leader's Assign does. The table
// keeps the callers, and passes the assignment of a caller on where no decision is
// needed: to the same client coming back, and to a successor.

// group is the state of a group. A group with an epoch older than the table's belongs
// to an image, and is cloned before a change: see State.editGroup.
type group struct {
	epoch    uint64
	version  uint64 // command count at the last change
	shards   uint32 // number of shards
	next     uint32 // the number after the Reshard; 0 unless the group is being resized
	ids      uint32 // the last ID given to a caller
	moves    uint32 // of the last Enlist, like drain and grace
	drain    uint64
	grace    uint64
	settled  bool     // an Assign was applied since the group had no callers
	resized  bool     // the number is that of a Resize, and only a Resize may change it
	node     string   // of the caller that enlisted last
	callers  []caller // by ID
	busy     uint32   // a shard that mayRenumber found held, to look at first: not part of an image
	assigned []uint32 // the ID of each shard's caller, 0 for an orphan; nil without callers and while the group is resized
}

// caller is a caller's part of a group.
type caller struct {
	requestID // of the Enlist; zero while absent
	id        uint32
	client    string
	node      string
	weight    uint32
	succeeds  string // the client of a caller that leads, for which this one stands by
	absent    uint64 // command count at which the caller left; 0: it is there
	part      uint64 // command count at which its part changed last; 0: it has none yet
	next      bool   // of the next number of shards
}

// groupSums counts groups. It is derived.
type groupSums struct {
	active int // groups with callers, or being resized
	shards int // of the active groups; the larger number while a group is resized
}

func (g *group) sums() groupSums {
	if g.isIdle() {
		return groupSums{}
	}
	return groupSums{1, int(max(g.shards, g.next))}
}

// isIdle reports whether the table only remembers the group's number.
func (g *group) isIdle() bool { return len(g.callers) == 0 && g.next == 0 }

// applyToGroup takes a step about a group.
func (s *State) applyToGroup(c Command) Outcome {
	switch c := c.(type) {
	case Enlist:
		return s.fromUsable(c.Session, c.Seen, func(o *session) Outcome { return s.enlist(o, &c) })
	case Delist:
		return s.fromSession(c.Session, c.Seen, func(o *session) Outcome { return s.delist(o, c) })
	case Decline:
		return s.fromUsable(c.Session, c.Seen, func(o *session) Outcome { return s.decline(o, c) })
	case Resize:
		return s.fromUsable(c.Session, c.Seen, func(o *session) Outcome { return s.resize(o, c) })
	case Assign:
		return s.inTerm(c.Term, func() Outcome { return s.assign(c) })
	case Dismiss:
		return s.inTerm(c.Term, func() Outcome { return s.dismiss(c) })
	case Reshard:
		return s.inTerm(c.Term, func() Outcome { return s.reshard(c) })
	}
	return bad("Command", 0)
}

// editGroup has f change a group, which it creates if the table does not know the name.
// The change counts as one of this command.
func (s *State) editGroup(name string, f func(g *group)) {
	g := s.groups.get(name)
	var before groupSums
	switch {
	case g == nil:
		g = &group{epoch: s.groups.epoch}
		s.groups.set(name, g)
		s.keys.working[name] = s.keys.countWork(name)
	default:
		before = g.sums()
		if g.epoch != s.groups.epoch {
			c := *g
			c.epoch = s.groups.epoch
			c.callers = slices.Clone(g.callers)
			c.assigned = slices.Clone(g.assigned)
			g = &c
			s.groups.set(name, g)
		}
	}
	g.version = s.commands
	f(g)
	if len(g.callers) == 0 {
		g.settled, g.callers, g.assigned = false, nil, nil
		if g.ids > math.MaxUint32/2 {
			g.ids = 0 // see checkEnlist
		}
	}
	after := g.sums()
	s.groupSums.active += after.active - before.active
	s.groupSums.shards += after.shards - before.shards
	s.step.groups = append(s.step.groups, name)
	for idle := s.groups.n - s.groupSums.active; idle > MaxIdleGroups && s.forgetOldestGroup(); idle-- {
	}
}

// forgetOldestGroup forgets the group that has been idle for longest, of those without a
// key held: while a work of the group's number goes on, no work of another number may
// begin, and the number must be known for that. So there may be more idle groups than
// MaxIdleGroups, but each of the others has a key of a session. It looks at every group, a
// few thousand at most, but at no key. It returns false if there is no such group.
func (s *State) forgetOldestGroup() bool {
	var oldest string
	version := uint64(math.MaxUint64)
	for name, g := range s.groups.all {
		if g.isIdle() && (g.version < version || g.version == version && name < oldest) && s.keys.working[name] == 0 {
			oldest, version = name, g.version
		}
	}
	if oldest == "" {
		return false
	}
	s.groups.del(oldest)
	delete(s.keys.working, oldest)
	s.step.groups = append(s.step.groups, oldest)
	return true
}

// countWork counts the keys that a name's shards can have, and that are held.
func (t *keyTable) countWork(name string) (n int) {
	below, looked := name+"/", 0
	for key := range t.inUse.from(below+"0", below) {
		if len(key) > len(below) && key[len(below)] > '9' {
			break
		}
		if looked++; looked > MaxShards { // others' keys: a look at each shard's key is shorter
			n = 0
			for i := range uint32(MaxShards) {
				if t.isHeld(ShardKey(name, i)) {
					n++
				}
			}
			return n
		}
		if group, _, ok := ShardOf(key); ok && group == name && t.isHeld(key) {
			n++
		}
	}
	return n
}

// noteWork counts a key that is held from now on, or not any more, if it is the key of a
// shard that a known group can have.
func (t *keyTable) noteWork(key string, isHeld bool) {
	if len(t.working) == 0 {
		return
	}
	name, _, ok := ShardOf(key)
	if !ok {
		return
	}
	n, ok := t.working[name]
	switch {
	case !ok:
	case isHeld:
		t.working[name] = n + 1
	default:
		t.working[name] = n - 1
	}
}

func (t *keyTable) isHeld(key string) bool {
	look(1)
	return len(t.get(key).holders) > 0
}

// ShardKey returns the key of a group's shard.
func ShardKey(group string, shard uint32) string {
	return group + "/" + strconv.FormatUint(uint64(shard), 10)
}

// ShardOf splits a key into a group's name and the number of the shard; false if no
// group can have such a shard.
func ShardOf(key string) (group string, shard uint32, ok bool) {
	i := strings.LastIndexByte(key, '/')
	if i <= 0 || i+1 == len(key) || len(key)-i > len("/16383") || key[i+1] == '0' && i+2 < len(key) {
		return "", 0, false
	}
	for _, digit := range []byte(key[i+1:]) {
		if digit < '0' || digit > '9' {
			return "", 0, false
		}
		shard = 10*shard + uint32(digit-'0')
	}
	return key[:i], shard, shard < MaxShards
}

// maxInUse is how many keys in use heldShard looks at, before it looks for each shard.
const maxInUse = 1024

// heldShard returns one of a group's shards with a holder; false if all keys are free. A
// group has few keys in use when this is asked, unless other requests use keys below its
// name: then each shard's key is looked at, five milliseconds for the largest group.
func (s *State) heldShard(name string, shards uint32) (uint32, bool) {
	below, looked := name+"/", 0
	for key := range s.keys.inUse.from(below, below) {
		if looked++; looked > maxInUse {
			return s.heldShardOf(name, shards)
		}
		if _, shard, ok := ShardOf(key); ok && shard < shards && key == ShardKey(name, shard) && s.keys.isHeld(key) {
			return shard, true
		}
	}
	return 0, false
}

// heldShardOf is heldShard by a look at each shard's key.
func (s *State) heldShardOf(name string, shards uint32) (uint32, bool) {
	for i := range shards {
		if s.keys.isHeld(ShardKey(name, i)) {
			return i, true
		}
	}
	return 0, false
}

// caller returns the index of the caller of that ID, -1 if there is none.
func (g *group) caller(id uint32) int {
	i, ok := slices.BinarySearchFunc(g.callers, id, func(c caller, id uint32) int { return cmp.Compare(c.id, id) })
	if !ok {
		return -1
	}
	return i
}

// callerOf returns the index of the caller that a request enlisted, -1 if there is none.
func (g *group) callerOf(q requestID) int {
	return slices.IndexFunc(g.callers, func(c caller) bool { return c.requestID == q })
}

// find returns the index of the first caller of the client of that name for which is
// returns true; -1 if there is none.
func (g *group) find(client string, is func(*caller) bool) int {
	for i := range g.callers {
		if c := &g.callers[i]; c.client == client && is(c) {
			return i
		}
	}
	return -1
}

func (c *caller) isAbsent() bool { return c.absent != 0 }

// leads reports whether the caller is there and stands by for nobody.
func (c *caller) leads() bool { return c.absent == 0 && c.succeeds == "" }

// findHeir returns the index of the first caller that stands by for c's client; -1 if
// there is none.
func (g *group) findHeir(c *caller) int {
	return slices.IndexFunc(g.callers, func(h caller) bool { return h.succeeds == c.client && h.next == c.next })
}

// hasShards reports whether a shard is assigned to the caller of that ID. No shard is,
// while the group is resized.
func (g *group) hasShards(id uint32) bool { return slices.Contains(g.assigned, id) }

// reassign assigns all shards of one caller to another, or to nobody if that is 0.
func (g *group) reassign(from, to uint32) {
	for i, id := range g.assigned {
		if id == from {
			g.assigned[i] = to
		}
	}
}

// drop removes the caller at an index, whose shards become orphans.
func (g *group) drop(i int) {
	g.reassign(g.callers[i].id, 0)
	g.callers = slices.Delete(g.callers, i, i+1)
}

// leaveGroup takes the caller of an Enlist out of its group:
//
//  1. Its successor gets the assignment, and the other callers that stand by for its
//     client stand by for the successor's. A second caller of the client that leads, if
//     there is one, puts that off.
//  2. With Grace, that second caller gets the assignment. Without one, a caller with
//     shards becomes absent, and keeps them.
//  3. The shards of any other caller become orphans.
func (s *State) leaveGroup(q requestID, name string) {
	s.editGroup(name, func(g *group) {
		i := g.callerOf(q)
		c := g.callers[i]
		second, heir := g.find(c.client, func(o *caller) bool { return o.next == c.next && o.leads() && o.id != c.id }), -1
		if second < 0 && c.succeeds == "" {
			heir = g.findHeir(&c)
		}
		switch keeps := g.grace > 0 && g.hasShards(c.id); {
		case heir >= 0:
			g.inherit(heir, &c, s.commands)
			g.drop(i)
		case keeps && second >= 0:
			g.reassign(c.id, g.callers[second].id)
			g.callers[second].part = s.commands
			g.drop(i)
		case keeps:
			g.callers[i].requestID, g.callers[i].absent, g.callers[i].succeeds = requestID{}, s.commands, ""
		default:
			g.drop(i)
		}
	})
}

// inherit makes the caller at an index the successor of c. now is the command count.
func (g *group) inherit(heir int, c *caller, now uint64) {
	h := &g.callers[heir]
	g.reassign(c.id, h.id)
	h.succeeds = ""
	if !h.next {
		h.part = now
	}
	for j := range g.callers {
		if o := &g.callers[j]; o.succeeds == c.client && o.next == c.next {
			o.succeeds = h.client
		}
	}
}

// groupEvents appends the events of the groups that this command has changed.
func (s *State) groupEvents(events []Event) []Event {
	p := &s.step
	if len(p.groups) > 1 {
		slices.Sort(p.groups)
		p.groups = slices.Compact(p.groups)
	}
	for _, name := range p.groups {
		if g := s.groups.get(name); g != nil {
			events = g.partEvents(events, name, func(c *caller) bool { return c.part == s.commands })
		}
		events = append(events, Event{Kind: EventGroup, Key: name})
	}
	if cap(p.groups) > maxScratch {
		p.groups = nil
	}
	clear(p.groups)
	p.groups = p.groups[:0]
	return events
}

// partEvents appends an EventPart for each chosen caller that is there and has a part,
// in the order of the IDs. One pass over the shards serves all callers.
func (g *group) partEvents(events []Event, name string, chosen func(*caller) bool) []Event {
	var told []*caller
	for i := range g.callers {
		if c := &g.callers[i]; c.absent == 0 && c.part != 0 && chosen(c) {
			told = append(told, c)
		}
	}
	if len(told) == 0 {
		return events
	}
	ids := make([]uint32, len(told))
	for i, c := range told {
		ids[i] = c.id
	}
	mine := g.shardsOf(ids)
	var b []byte
	for i, c := range told {
		b = AppendPart(b[:0], Part{Version: c.part, Shards: g.shards, Resized: g.next != 0, Drain: g.drain, Mine: mine[i]})
		events = append(events, Event{Kind: EventPart, Session: c.session, Seq: c.seq, Key: name, Value: string(b)})
	}
	return events
}

func validGroup(name string) bool {
	return name != "" && len(name) <= MaxGroupName && utf8.ValidString(name)
}
