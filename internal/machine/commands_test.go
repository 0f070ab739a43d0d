package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"pgregory.net/rapid"
)

// commands draws commands of a small world, where requests meet: three sessions, a
// few keys, a dozen seqs, and now and then a copy of an earlier command.
type commands struct {
	past    []Command
	refused []Command // for the moment, in a world of changes
	kinds   []kind
	keys    []string // drawn from
	like    int      // the feature that is drawn more often; 0 for none

	// changes: most commands name a present grant, by a present or former token, and
	// each request has a seq of its own.
	changes bool
	seqs    uint64 // used in a world of changes
}

// A kind of command is drawn so often.
type kind struct {
	name  string
	often int
}

var (
	// ofAll is a world with everything in it.
	ofAll = []kind{
		{"acquire", 40}, {"release", 20}, {"withdraw", 8}, {"upgrade", 9}, {"downgrade", 4}, {"set value", 6},
		{"open", 14}, {"forget", 3}, {"close", 3}, {"expire", 2}, {"silence", 3}, {"hear", 2}, {"end delay", 4},
		{"break", 3}, {"ask", 3}, {"leader", 2}, {"lift", 3}, {"bound", 1}, {"found", 1}, {"raise", 1}, {"bad", 1}, {"group", 8}, {"capacity", 3}, {"extend", 4}, {"end session", 3}, {"end slice", 6}, {"admit slice", 6},
	}
	// ofChanges is a world of grants that change their modes and their holders.
	ofChanges = []kind{
		{"acquire", 30}, {"release", 16}, {"withdraw", 9}, {"upgrade", 21}, {"downgrade", 13}, {"set value", 10},
		{"open", 5}, {"forget", 1}, {"close", 1}, {"expire", 2}, {"end delay", 2}, {"break", 7}, {"ask", 1}, {"lift", 1}, {"raise", 1}, {"end session", 2}, {"end slice", 3}, {"admit slice", 4},
	}
)

func (g *commands) kind(t *rapid.T) string {
	all := 0
	for _, k := range g.kinds {
		all += k.often
	}
	n := fair(t, 10, "kind") * all >> 10
	i := 0
	for ; n >= g.kinds[i].often; i++ {
		n -= g.kinds[i].often
	}
	return g.kinds[i].name
}

// fair draws a number of so many bits. Of a range, rapid mostly draws the small ones.
func fair(t *rapid.T, bits int, label string) (n int) {
	for _, one := range rapid.SliceOfN(rapid.Bool(), bits, bits).Draw(t, label) {
		if n *= 2; one {
			n++
		}
	}
	return n
}

// tokens returns the present and former tokens of the grants of keys: the session's,
// or everybody's if id is zero.
func tokens(s *State, keys []string, id SessionID) (ts []Token) {
	for _, key := range keys {
		r := s.keys.recordTable.get(key)
		if r == nil {
			continue
		}
		for _, g := range r.holders {
			if id != (SessionID{}) && g.session != id {
				continue
			}
			ts = append(ts, g.token)
			if g.former != 0 {
				ts = append(ts, g.former, g.first)
			}
		}
	}
	return ts
}

// neighbours are keys that meet: two of one shard, where the order of a map could
// show, and some above and below each other.
var neighbours = func() (keys []string) {
	for i := 0; len(keys) < 2; i++ {
		if key := fmt.Sprint("key ", i); hashKey(key) == 7 {
			keys = append(keys, key)
		}
	}
	return append(keys, "t", "t/1", "t/1/x", "t/2")
}()

func (g *commands) draw(t *rapid.T, s *State) Command {
	if len(g.refused) > 0 && fair(t, 2, "late") == 0 {
		return rapid.SampledFrom(g.refused).Draw(t, "refused")
	}
	if len(g.past) > 0 && rapid.IntRange(0, 9).Draw(t, "copy") == 0 {
		return rapid.SampledFrom(g.past).Draw(t, "past")
	}
	c := g.drawNew(t, s)
	g.past = append(g.past, c)
	return c
}

func (g *commands) drawNew(t *rapid.T, s *State) Command {
	id := session16(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "session"))
	seq := rapid.Uint64Range(1, 12)
	fresh := func() uint64 { return seq.Draw(t, "seq") }
	if g.changes {
		seq = rapid.Uint64Range(max(g.seqs, 9)-8, g.seqs+1)
		fresh = func() uint64 { g.seqs++; return g.seqs }
	}
	seen := func() []uint64 { return rapid.SliceOfN(seq, 0, 2).Draw(t, "seen") }
	meta := func() []byte { return rapid.SampledFrom([][]byte{nil, {1}, {2, 2}}).Draw(t, "meta") }
	term := func() uint64 {
		return s.Term() + uint64(rapid.SampledFrom([]int{0, 0, 0, 0, -1, 1}).Draw(t, "term"))
	}
	key := rapid.SampledFrom(g.keys)
	// Two nodes, one of which holds most sessions, so that a Forget ends several.
	node := func() string { return rapid.SampledFrom([]string{"node", "node", "other"}).Draw(t, "node") }
	boot := func() uint64 { // rises with time, as boots do
		return s.Commands()/16 + uint64(rapid.IntRange(1, 2).Draw(t, "boot"))
	}
	dir := func() DirID { return rapid.SampledFrom([]DirID{{1}, {1}, {1}, {2}, {}}).Draw(t, "dir") }
	tokenOf := func(id SessionID, keys ...string) Token {
		if g.changes && rapid.IntRange(0, 9).Draw(t, "late") > 0 {
			if ts := tokens(s, keys, id); len(ts) > 0 {
				return rapid.SampledFrom(ts).Draw(t, "token")
			}
		}
		return s.LastToken() - Token(rapid.Uint64Range(0, 4).Draw(t, "token"))
	}
	token := func() Token { return tokenOf(id, g.keys...) }
	under := func() []Token {
		if rapid.IntRange(0, 2).Draw(t, "under") > 0 {
			return nil
		}
		return []Token{token()}
	}
	freed := func() (list []Token) {
		if rapid.IntRange(0, 3).Draw(t, "freed") > 0 {
			return nil
		}
		for range rapid.IntRange(1, 3).Draw(t, "frees") {
			list = append(list, token())
		}
		return list
	}
	switch g.kind(t) {
	case "acquire":
		c := Acquire{
			Session:    id,
			Seq:        fresh(),
			Key:        key.Draw(t, "key"),
			Try:        rapid.IntRange(0, 3).Draw(t, "try") == 0,
			MaxWaiters: rapid.SampledFrom([]uint32{0, 0, 0, 1, 2}).Draw(t, "waiters"),
			Under:      under(),
			Spec:       Spec{Meta: string(meta())},
			Freed:      freed(),
			Seen:       seen(),
		}
		// One feature or two, and sometimes two in contradiction.
		for range rapid.IntRange(0, 2).Draw(t, "features") {
			feature := rapid.IntRange(0, 9).Draw(t, "feature")
			if g.like > 0 && rapid.Bool().Draw(t, "like") {
				feature = g.like
			}
			switch feature {
			case 0, 1:
				c.Mode = Shared
			case 2:
				c.Mode, c.N, c.Of = Permit, rapid.SampledFrom([]uint16{1, 1, 1, 2, 3, 0}).Draw(t, "n"), rapid.SampledFrom([]uint16{3, 3, 2, 1, 0}).Draw(t, "of")
			case 3:
				c.Tree = true
			case 4:
				c.Key, c.Keys = "", rapid.SliceOfNDistinct(key, 1, min(3, len(g.keys)), rapid.ID).Draw(t, "keys")
				slices.Sort(c.Keys)
			case 5:
				c.Priority = int8(rapid.IntRange(-1, 2).Draw(t, "priority"))
			case 6:
				c.Delay = 5
			case 7:
				c.Conditional, c.IfToken = true, token()
			case 8, 9:
				c.Block = uint16(rapid.IntRange(1, 3).Draw(t, "block"))
			}
		}
		return c
	case "release":
		to := rapid.SampledFrom([]string{"", "", "", "two", "one"}).Draw(t, "to")
		return Release{Session: id, Token: token(), To: to, Seen: seen()}
	case "withdraw":
		var more []uint64
		for range rapid.SampledFrom([]int{0, 0, 0, 1, 3}).Draw(t, "more") {
			more = append(more, seq.Draw(t, "seq"))
		}
		return Withdraw{Session: id, Seq: seq.Draw(t, "seq"), More: more, Seen: seen()}
	case "upgrade":
		return Upgrade{Session: id, Seq: fresh(), Token: token(), Under: under(), Seen: seen()}
	case "downgrade":
		return Downgrade{Session: id, Token: token(), Seen: seen()}
	case "set value":
		return SetValue{
			Session: id,
			Token:   token(),
			Rev:     rapid.SampledFrom([]uint64{1, 2, 3, 0}).Draw(t, "rev"),
			Value:   rapid.SampledFrom([][]byte{nil, {1}, {2, 2}}).Draw(t, "value"),
			Fade:    rapid.Bool().Draw(t, "fade"),
			Seen:    seen(),
		}
	case "open":
		return Open{Session: id, Client: clientOf(id), Node: node(), Boot: boot(), Dir: dir(), TTL: rapid.Uint64Range(299, 1001).Draw(t, "ttl"), Meta: string(meta())}
	case "forget":
		return Forget{Node: node(), Boot: boot(), Dir: dir()}
	case "close":
		if g.like == 6 && rapid.IntRange(0, 2).Draw(t, "rather") > 0 { // expired, for its delays
			return Expire{Session: id, Term: term()}
		}
		return Close{Session: id}
	case "expire":
		return Expire{Session: id, Term: term()}
	case "silence":
		return Silence{Session: id, Term: term()}
	case "hear":
		return Hear{Session: id, Term: term()}
	case "end delay":
		return EndDelay{Token: tokenOf(SessionID{}, g.keys...), Term: term()}
	case "break":
		k := key.Draw(t, "key")
		return Break{Session: id, Key: k, Token: tokenOf(SessionID{}, k)}
	case "capacity":
		of := rapid.SampledFrom([]uint32{1, 2, 3, 4, 0, 0, MaxHolders + 1}).Draw(t, "of")
		c := SetCapacity{Session: id, Seq: fresh(), Key: key.Draw(t, "key"), Of: of, Seen: seen()}
		if c.Compare = rapid.Bool().Draw(t, "compare"); c.Compare {
			c.From = rapid.Uint32Range(0, 4).Draw(t, "from")
		}
		return c
	case "extend":
		c := Extend{Session: id, Token: token(), Block: rapid.SampledFrom([]uint32{1, 8, 0, MaxBlock, MaxBlock + 1}).Draw(t, "block"), Seen: seen()}
		for _, k := range g.keys {
			if r := s.keys.get(k); r.holder(c.Token) >= 0 {
				c.Last = r.last - Token(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "late"))
			}
		}
		return c
	case "end session":
		return EndSession{Session: id, Ref: session16(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "ended")).Ref()}
	case "end slice":
		if list := s.Unfinished(); len(list) > 0 && rapid.IntRange(0, 9).Draw(t, "right") > 0 {
			id = rapid.SampledFrom(list).Draw(t, "unfinished")
		}
		return EndSlice{Session: id}
	case "admit slice":
		return AdmitSlice{}
	case "ask":
		k := key.Draw(t, "key")
		if rapid.Bool().Draw(t, "one") {
			return Ask{Session: id, Key: k, Token: tokenOf(SessionID{}, k)}
		}
		return Ask{Session: id, Key: k}
	case "leader":
		return LeaderStart{Term: term()}
	case "lift":
		return Lift{Term: term()}
	case "bound":
		return Bound{Term: term(), TTL: 1000}
	case "found":
		return Found{Cluster: ClusterID{1}, Floor: 5, TTL: 1000}
	case "group":
		return drawGroupCommand(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "group"), 0)), s, []string{"a", "b", "c"}, fresh())
	case "raise":
		return Raise{Term: term(), Format: rapid.Uint64Range(1, 3).Draw(t, "format")}
	default:
		return rapid.SampledFrom([]Command{nil, Unknown{Raw: "?"}, &Close{}}).Draw(t, "bad")
	}
}

// clientOf names two sessions' clients alike.
func clientOf(id SessionID) string {
	if name(id) == "c" {
		return "two"
	}
	return "one"
}
