package machine

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// groupNames are the groups of the small worlds. The keys of one are neighbours of the
// worlds' other keys.
var groupNames = []string{"t", "key"}

// drawGroupCommand draws a command about a group: mostly one that fits the table. seq is
// the seq of a request.
func drawGroupCommand(r *rand.Rand, s *State, sessions []string, seq uint64) Command {
	name := groupNames[r.IntN(len(groupNames))]
	id := session16(sessions[r.IntN(len(sessions))])
	st, _ := s.Group(name)
	number := uint32(3 + r.IntN(2))
	if st.Shards > 0 && r.IntN(4) > 0 {
		number = st.Shards
	}
	version := st.Version
	if r.IntN(10) == 0 {
		version -= uint64(r.IntN(3))
	}
	var by Caller
	if len(st.Callers) > 0 {
		by = st.Callers[r.IntN(len(st.Callers))]
	}
	term := s.Term()
	if r.IntN(20) == 0 {
		term++
	}
	switch n := r.IntN(100); {
	case n < 30:
		c := Enlist{
			Session: id, Seq: seq, Group: name, Shards: number, Weight: uint32(r.IntN(3)), Drain: uint64(r.IntN(2)),
			Grace: uint64(r.IntN(2)) * 1000, MaxMoves: uint32(r.IntN(3)),
		}
		if st.Next > 0 && r.IntN(3) > 0 {
			c.Shards = st.Next
		}
		if r.IntN(3) == 0 {
			c.Succeeds = []string{"one", "two", "three"}[r.IntN(3)]
		}
		return c
	case n < 42:
		if by.Seq > 0 {
			return Delist{Session: by.Session, Seq: by.Seq}
		}
		return Delist{Session: id, Seq: seq}
	case n < 52:
		c := Decline{Session: by.Session, Seq: by.Seq, Shard: uint32(r.IntN(4))}
		for _, e := range s.Pending(by.Session) {
			if e.Kind == EventPart && e.Seq == by.Seq {
				p := must(DecodePart([]byte(e.Value)))
				if c.Version = p.Version; len(p.Mine) > 0 {
					c.Shard = p.Mine[r.IntN(len(p.Mine))]
				}
			}
		}
		return c
	case n < 75:
		c := Assign{Term: term, Group: name, Version: version}
		for shard := range st.Shards {
			if r.IntN(3) > 0 && len(st.Callers) > 0 {
				c.Moves = append(c.Moves, Move{shard, st.Callers[r.IntN(len(st.Callers))].ID})
			}
		}
		return c
	case n < 85:
		return Dismiss{Term: term, Group: name, Caller: by.ID, Since: by.Absent}
	case n < 90:
		return Resize{Session: id, Seq: seq, Group: name, From: number, To: uint32(3 + r.IntN(3))}
	default:
		return Reshard{Term: term, Group: name, Version: version}
	}
}

// groupWitness knows groups from commands, outcomes and events alone: the latest part of
// each caller, as its client knows it.
type groupWitness struct {
	parts map[requestID]Part    // of the callers that are there; a zero Part: none yet
	in    map[requestID]string  // their groups
	gone  map[requestID]bool    // refused or delisted in the session's present life
	last  map[string]uint64     // the largest version told in a group
	held  func(key string) bool // whether a key is held
}

func newGroupWitness(held func(string) bool) *groupWitness {
	return &groupWitness{
		parts: make(map[requestID]Part), in: make(map[requestID]string), gone: make(map[requestID]bool),
		last: make(map[string]uint64), held: held,
	}
}

// see judges one step, and the table after the step. before is the status of the
// command's group before the step.
func (w *groupWitness) see(s *State, c Command, before GroupStatus, out Outcome, events []Event) error {
	switch c := c.(type) {
	case Enlist:
		q := requestID{c.Session, c.Seq}
		_, in := w.in[q]
		switch {
		case out.Code == OK && w.gone[q]:
			return fmt.Errorf("%v came back", q)
		case out.Code == OK && !in:
			w.parts[q], w.in[q] = Part{}, c.Group
		case out.Code == WrongShards && in || out.Code == Withdrawn && in:
			return fmt.Errorf("%v is in the group, and refused", q)
		case out.Code == WrongShards || out.Code == TooManyCallers || out.Code == TooManyGroups:
			w.gone[q] = true
		}
	case Delist:
		if out.Code == OK {
			w.leave(requestID{c.Session, c.Seq})
		}
	case Reshard:
		if out.Code != OK {
			break
		}
		for i := range before.Shards {
			if key := ShardKey(c.Group, i); w.held(key) {
				return fmt.Errorf("%s is held, and the group has another number", key)
			}
		}
		for _, by := range before.Callers {
			if !by.Next {
				return fmt.Errorf("caller %+v is of the old number", by)
			}
		}
	}
	for _, e := range events {
		q := requestID{e.Session, e.Seq}
		switch e.Kind {
		case EventEnded:
			for q := range w.in {
				if q.session == e.Session {
					w.leave(q)
				}
			}
			for q := range w.gone {
				if q.session == e.Session {
					delete(w.gone, q)
				}
			}
		case EventPart:
			p, err := DecodePart([]byte(e.Value))
			switch {
			case err != nil:
				return err
			case w.in[q] != e.Key:
				return fmt.Errorf("part %+v for %v, which is in group %q", p, q, w.in[q])
			case p.Version <= w.parts[q].Version || p.Version < w.last[e.Key] || p.Version != s.GroupVersion(e.Key):
				return fmt.Errorf("part %+v for %v after %+v", p, q, w.parts[q])
			}
			w.parts[q], w.last[e.Key] = p, p.Version
		}
	}
	return w.compare(s)
}

func (w *groupWitness) leave(q requestID) {
	delete(w.parts, q)
	delete(w.in, q)
	w.gone[q] = true
}

// compare compares the parts, as the clients know them, with the table: everybody was
// told everything, and no shard is in two parts.
func (w *groupWitness) compare(s *State) error {
	there := 0
	for _, name := range groupNames {
		st, _ := s.Group(name)
		assigned := s.Assignment(name, nil)
		owner := make(map[uint32]uint32)
		for _, c := range st.Callers {
			q := requestID{c.Session, c.Seq}
			if c.Absent != 0 {
				continue
			}
			there++
			p, ok := w.parts[q]
			if !ok || w.in[q] != name {
				return fmt.Errorf("%v is in the table's group %q only", q, name)
			}
			if c.Next != (p.Version == 0) || !c.Next && (p.Shards != st.Shards || p.Resized != (st.Next != 0)) {
				return fmt.Errorf("%v was told %+v of %+v", q, p, st)
			}
			for _, shard := range p.Mine {
				if owner[shard] != 0 {
					return fmt.Errorf("shard %d of %q is in two parts", shard, name)
				}
				owner[shard] = c.ID
			}
			var mine []uint32
			for shard, id := range assigned {
				if id == c.ID {
					mine = append(mine, uint32(shard))
				}
			}
			if !slices.Equal(mine, p.Mine) || int(c.Assigned) != len(mine) {
				return fmt.Errorf("%v was told %v, and %v are assigned", q, p.Mine, mine)
			}
			told := slices.ContainsFunc(s.Pending(c.Session), func(e Event) bool {
				again, _ := DecodePart([]byte(e.Value))
				again.Drain = p.Drain // that of the latest Enlist
				return e.Kind == EventPart && e.Seq == c.Seq && reflect.DeepEqual(again, p)
			})
			if told == c.Next {
				return fmt.Errorf("%v on a new connection: told %t", q, told)
			}
		}
	}
	if there != len(w.in) {
		return fmt.Errorf("%d callers are there, %d should be", there, len(w.in))
	}
	return nil
}

// groupClient names five sessions' clients by three names.
func groupClient(session string) string {
	return map[string]string{"a": "one", "b": "one", "c": "two", "d": "two", "e": "three"}[session]
}

// TestEveryCallerKnowsItsPart feeds random lives of two groups to three tables, like
// TestAnyCommandsKeepTheInvariants: callers of clients come, leave, expire, succeed each
// other and come back, the leader assigns, and the groups are resized, with late copies
// of all commands. After each step every caller was told exactly the shards that are
// assigned to it, and no shard is in two parts.
func TestEveryCallerKnowsItsPart(t *testing.T) {
	sessions := []string{"a", "b", "c", "d", "e"}
	for round := range uint64(testrounds.Rounds(40, 10_000)) {
		r := rand.New(rand.NewPCG(round, 10))
		plain, logged, copied := founded(), founded(), founded()
		w := newGroupWitness(func(key string) bool { _, token := plain.Owner(key); return token != 0 })
		var past []Command
		var seqs uint64
		do := func(c Command) {
			var before GroupStatus
			if c, ok := c.(Reshard); ok {
				before, _ = plain.Group(c.Group)
			}
			again := r.IntN(8) == 0
			for i := range 2 {
				digest := [32]byte{}
				if i == 1 {
					if _, ok := c.(Resize); ok || !again {
						break // a copy is refused as Withdrawn, and changes nothing either
					}
					digest = content(plain)
				}
				out, events := plain.Apply(c)
				if i == 1 && (content(plain) != digest || len(events) > 0) {
					t.Fatalf("round %d: a second copy of %#v: %+v, %+v", round, c, out, events)
				}
				if r.IntN(4) == 0 { // the witness below looks at every step
					if err := plain.Check(); err != nil {
						t.Fatalf("round %d: after %#v, %+v: %v", round, c, out, err)
					}
				}
				if err := w.see(plain, c, before, out, events); err != nil {
					t.Fatalf("round %d: after %#v, %+v: %v", round, c, out, err)
				}
				cmds := must(DecodeEntry(EncodeCommands([]Command{c})))
				for _, other := range []struct {
					s *State
					c Command
				}{{logged, cmds[0]}, {copied, c}} {
					if out2, events2 := other.s.Apply(other.c); !reflect.DeepEqual(out, out2) || !reflect.DeepEqual(events, events2) {
						t.Fatalf("round %d: %#v: %+v %+v, and\n%+v %+v", round, c, out, events, out2, events2)
					}
				}
			}
		}
		for range 40 + r.IntN(40) {
			id := sessions[r.IntN(len(sessions))]
			var c Command
			switch n := r.IntN(100); {
			case n < 12:
				c = Open{Session: session16(id), Client: groupClient(id), Node: "node", Boot: 1, Dir: DirID{1}, TTL: 1000}
			case n < 15:
				c = Close{Session: session16(id)}
			case n < 18:
				c = Expire{Session: session16(id), Term: 1}
			case n < 19:
				c = Forget{Node: "node", Boot: 1, Dir: DirID{1}}
			case n < 28:
				seqs++
				c = Acquire{Session: session16(id), Seq: seqs, Key: ShardKey(groupNames[r.IntN(2)], uint32(r.IntN(4)))}
			case n < 38:
				key := ShardKey(groupNames[r.IntN(2)], uint32(r.IntN(4)))
				owner, token := plain.Owner(key)
				c = Release{Session: owner, Token: token}
			case n < 48 && len(past) > 0:
				c = past[r.IntN(len(past))]
			default:
				seqs++
				c = drawGroupCommand(r, plain, sessions, seqs)
			}
			if _, ok := c.(Forget); ok && r.IntN(4) > 0 {
				continue // it ends everything
			}
			past = append(past, c)
			do(c)
			if r.IntN(10) == 0 {
				restoredCopy, err := restored(copied)
				if err != nil {
					t.Fatal(err)
				}
				copied = restoredCopy
			} else if r.IntN(10) == 0 {
				plain.Snapshot()
			}
		}
		if err := plain.Check(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if d := plain.Digest(); d != logged.Digest() || d != copied.Digest() {
			t.Fatalf("round %d: digests differ", round)
		}
	}
}

func TestAPartHasOneForm(t *testing.T) {
	for _, p := range everyPart() {
		b := AppendPart([]byte("before"), p)[len("before"):]
		got, err := DecodePart(b)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%x is %+v, %v", b, got, err)
		}
		if len(b) > 3*10+MaxShards/8 {
			t.Errorf("%d bytes of a part of %d shards", len(b), len(p.Mine))
		}
		for n := range b {
			if _, err := DecodePart(b[:n]); err == nil {
				t.Errorf("a part of %x is accepted", b)
			}
		}
		if _, err := DecodePart(append(slices.Clone(b), 0)); err == nil {
			t.Errorf("%x and more is accepted", b)
		}
	}
	for name, b := range map[string][]byte{
		"unknown mark":            {4, 1, 8, 0, 0},
		"too many shards":         append(AppendPart(nil, Part{Shards: 1 << 20})[:5:5], 0),
		"shard out of range":      {0, 1, 8, 0, 1, 8},
		"more shards than exist":  {0, 1, 2, 0, 3, 0, 0, 0},
		"bitmap of few":           {2, 1, 16, 0, 1, 0},
		"list of many":            {0, 1, 8, 0, 3, 0, 0, 0},
		"bit out of range":        {2, 1, 7, 0, 0xff},
		"claims without bytes":    {0, 1, 0xff, 0x7f, 0, 0xff, 0x7f},
		"version not in its form": {0, 0x80, 0, 8, 0, 0},
	} {
		if p, err := DecodePart(b); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func FuzzDecodePart(f *testing.F) {
	for _, p := range everyPart() {
		f.Add(AppendPart(nil, p))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Part
		var err error
		if n := allocated(func() { p, err = DecodePart(b) }); n > 1<<16+64*uint64(len(b)) {
			t.Fatalf("%d bytes of input allocate %d", len(b), n)
		}
		if err == nil && string(AppendPart(nil, p)) != string(b) {
			t.Fatalf("%x is %+v", b, p)
		}
	})
}

// TestGroupsAreBounded: the limits of groups, of callers, and of the numbers remembered.
func TestGroupsAreBounded(t *testing.T) {
	s := founded()
	id := func(i int) SessionID { return SessionID{1, byte(i), byte(i >> 8)} }
	for i := range 40 {
		apply(t, s, Open{Session: id(i), Client: "c", Node: fmt.Sprint("n", i%3), TTL: 1000}, OK)
	}
	seqs := make(map[SessionID]uint64)
	enlist := func(i int, group string, shards uint32, want Code) Outcome {
		t.Helper()
		seqs[id(i)]++
		out, _ := apply(t, s, Enlist{Session: id(i), Seq: seqs[id(i)], Group: group, Shards: shards}, want)
		return out
	}
	for i := range MaxCallers {
		enlist(i/MaxEnlisted, "crowd", 4, OK)
	}
	if out := enlist(5, "crowd", 4, TooManyCallers); out.Limit != MaxCallers {
		t.Errorf("%+v", out)
	}
	if out := enlist(0, "other", 4, TooManyCallers); out.Limit != MaxEnlisted {
		t.Errorf("%+v", out)
	}
	enlist(4, "small", 4, OK)
	n := 0
	for ; n < MaxAllShards/MaxShards-1; n++ {
		enlist(36+n%3, fmt.Sprint("large ", n), MaxShards, OK)
	}
	if out := enlist(5, "too large", MaxShards, TooManyGroups); out.Limit != MaxAllShards {
		t.Errorf("%+v", out)
	}
	out, _ := apply(t, s, Resize{Session: id(5), Seq: 1000, Group: "crowd", From: 4, To: MaxShards}, TooManyGroups)
	if out.Limit != MaxAllShards {
		t.Errorf("%+v", out)
	}
	for i := n + 2; i < MaxGroups; i++ {
		enlist(6+i/MaxEnlisted, fmt.Sprint("small ", i), 1, OK)
	}
	if out := enlist(30, "one more", 1, TooManyGroups); out.Limit != MaxGroups {
		t.Errorf("%+v", out)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	// Of the groups without callers the latest are remembered.
	for i := range 40 {
		end(t, s, Close{Session: id(i)}, id(i))
	}
	if n := s.Counts().Groups; n != MaxIdleGroups {
		t.Errorf("%d groups are remembered", n)
	}
	if s.GroupVersion("crowd") != 0 || s.GroupVersion(fmt.Sprint("small ", MaxGroups-1)) == 0 {
		t.Error("not the oldest are forgotten")
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// TestOneNodesGroupsLeaveRoom: callers of one node, under any number of sessions, take half
// of a group and half of all groups and shards at most.
func TestOneNodesGroupsLeaveRoom(t *testing.T) {
	s := founded()
	seq := uint64(0)
	enlist := func(node, group string, shards uint32, want Code) Outcome {
		t.Helper()
		seq++
		id := session16(fmt.Sprint(node, seq/MaxEnlisted))
		apply(t, s, Open{Session: id, Client: "c", Node: node, TTL: 1000}, OK)
		out, _ := apply(t, s, Enlist{Session: id, Seq: seq, Group: group, Shards: shards, Grace: 1000}, want)
		return out
	}
	for i := range MaxNodeShards / MaxShards {
		enlist("noisy", fmt.Sprint("large ", i), MaxShards, OK)
	}
	if out := enlist("noisy", "too large", MaxShards, TooManyGroups); out.Limit != MaxNodeShards {
		t.Errorf("%+v", out)
	}
	enlist("quiet", "large", MaxShards, OK)
	enlist("noisy", "large", MaxShards, OK) // a group of others costs nothing
	s = founded()
	for i := range MaxNodeGroups {
		enlist("noisy", fmt.Sprint("small ", i), 1, OK)
	}
	if out := enlist("noisy", "one more", 1, TooManyGroups); out.Limit != MaxNodeGroups {
		t.Errorf("%+v", out)
	}
	enlist("quiet", "small", 1, OK)
	for range MaxNodeCallers {
		enlist("noisy", "small", 1, OK)
	}
	if out := enlist("noisy", "small", 1, TooManyCallers); out.Limit != MaxNodeCallers {
		t.Errorf("%+v", out)
	}
	enlist("other", "small", 1, OK)
}

// TestAGroupWithAWorkIsNotForgotten: a flood of groups that come and go must not let
// works of another number begin while one of the former number goes on.
func TestAGroupWithAWorkIsNotForgotten(t *testing.T) {
	s := founded()
	a, b := session16("a"), session16("b")
	apply(t, s, Open{Session: a, Client: "a", Node: "n1", TTL: 1000}, OK)
	apply(t, s, Open{Session: b, Client: "b", Node: "n2", TTL: 1000}, OK)
	apply(t, s, Enlist{Session: a, Seq: 1, Group: "g", Shards: 4}, OK)
	out, _ := apply(t, s, Acquire{Session: a, Seq: 2, Key: ShardKey("g", 1)}, Granted)
	apply(t, s, Delist{Session: a, Seq: 1}, OK)
	flood := func(from int) {
		for i := range 3 * MaxIdleGroups {
			seq := uint64(from + i + 1)
			apply(t, s, Enlist{Session: b, Seq: seq, Group: fmt.Sprint("flood ", seq), Shards: 1}, OK)
			apply(t, s, Delist{Session: b, Seq: seq}, OK)
		}
	}
	flood(0)
	apply(t, s, Enlist{Session: b, Seq: 10_000, Group: "g", Shards: 8}, WrongShards)
	if n := s.Counts().Groups; n != MaxIdleGroups {
		t.Errorf("%d groups are remembered", n)
	}
	apply(t, s, Release{Session: a, Token: out.Token}, OK)
	flood(20_000)
	if s.GroupVersion("g") != 0 {
		t.Error("a group without works is remembered for ever")
	}
	apply(t, s, Enlist{Session: b, Seq: 30_000, Group: "g", Shards: 8}, OK)
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// Groups without callers that keep a key cost nobody's requests a search, and leave other
// nodes room for new groups. Other keys in use below their names change nothing.
func TestIdleGroupsWithWorksCostNobody(t *testing.T) {
	s := founded()
	open := func(by byte, node string) SessionID {
		apply(t, s, Open{Session: SessionID{by}, Client: "c", Node: node, TTL: 3000}, OK)
		return SessionID{by}
	}
	noisy, quiet := open(1, "noisy"), open(2, "quiet")
	seq := uint64(0)
	enlist := func(id SessionID, group string, want Code) Outcome {
		seq++
		out, _ := apply(t, s, Enlist{Session: id, Seq: seq, Group: group, Shards: 256}, want)
		if want == OK {
			apply(t, s, Delist{Session: id, Seq: seq}, OK)
		}
		return out
	}
	acquire := func(key string) {
		seq++
		apply(t, s, Acquire{Session: noisy, Seq: seq, Key: key}, Granted)
	}
	nested := "!"
	for i := range MaxNodeIdleGroups {
		name := nested
		if i%200 == 199 {
			nested = fmt.Sprint("!", i)
		} else {
			nested += "/!"
		}
		acquire(ShardKey(name, 256-1))
		enlist(noisy, name, OK)
	}
	for i := range 2 * maxInUse {
		acquire(fmt.Sprint("!/!/!/0/", i))
	}
	if out := enlist(noisy, "one more", TooManyGroups); out.Limit != MaxNodeIdleGroups {
		t.Errorf("%+v", out)
	}
	if n := s.Counts().Groups; n != MaxNodeIdleGroups {
		t.Errorf("%d groups are remembered", n)
	}
	if cost := s.Cost(Dismiss{Group: "!"}); cost < MaxCost/16 {
		t.Errorf("a command that looks at all groups costs %d", cost)
	}
	looked := 0
	looks = &looked
	enlist(quiet, "honest", OK)
	if looks = nil; looked > 5*MaxNodeIdleGroups { // a look or two at each group
		t.Errorf("a new group takes %d looks", looked)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func TestAShardsKeyNamesItsGroup(t *testing.T) {
	for _, shard := range []uint32{0, 1, 10, MaxShards - 1} {
		group, n, ok := ShardOf(ShardKey("a/b", shard))
		if group != "a/b" || n != shard || !ok {
			t.Errorf("shard %d: %q, %d, %t", shard, group, n, ok)
		}
	}
	for _, key := range []string{"", "a", "a/", "/1", "a/01", "a/-1", "a/1x", "a/16384", "a/99999999999", "a/ 1"} {
		if group, n, ok := ShardOf(key); ok {
			t.Errorf("%q is shard %d of %q", key, n, group)
		}
	}
}

func TestPlacesOfIDsWithAndWithoutGaps(t *testing.T) {
	for _, ids := range [][]uint32{nil, {7}, {1, 2, 3}, {5, 9, 2000}, {1, 1 << 31, 1<<32 - 1}} {
		p := newPlaces(ids)
		for _, id := range append([]uint32{0, 1, 2, 4, 6, 7, 8, 1999, 2001, 1 << 30, 1<<32 - 1}, ids...) {
			if got, want := int(p.of(id)), slices.Index(ids, id); got != want {
				t.Errorf("%d is at %d of %v, not %d", id, got, ids, want)
			}
		}
	}
}
