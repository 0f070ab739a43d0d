package machine

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
	"pgregory.net/rapid"
)

// commands draws commands of a small world, so that they meet: three sessions, a
// few keys, a dozen seqs, and now and then a copy of an earlier command.
type commands struct {
	past    []Command
	refused []Command // for the moment, in a world of changes
	kinds   []kind
	keys    []string // drawn from
	like    int      // the feature that is drawn more often; 0 for none

	// changes: what is drawn mostly names a grant that is there, by a token that it
	// has or had, and each request has a seq of its own.
	changes bool
	seqs    uint64 // used in a world of changes
}

// A kind of command is drawn so often.
type kind struct {
	name  string
	often int
}

var (
	// ofAll is a world in which everything happens.
	ofAll = []kind{
		{"acquire", 40}, {"release", 20}, {"withdraw", 8}, {"upgrade", 9}, {"downgrade", 4}, {"set value", 6},
		{"open", 14}, {"close", 3}, {"expire", 2}, {"silence", 3}, {"hear", 2}, {"end delay", 4},
		{"break", 3}, {"ask", 3}, {"leader", 2}, {"lift", 3}, {"bound", 1}, {"found", 1}, {"raise", 1}, {"bad", 1},
	}
	// ofChanges is one in which grants change their modes and their holders.
	ofChanges = []kind{
		{"acquire", 30}, {"release", 16}, {"withdraw", 9}, {"upgrade", 21}, {"downgrade", 13}, {"set value", 10},
		{"open", 5}, {"close", 1}, {"expire", 2}, {"end delay", 2}, {"break", 7}, {"ask", 1}, {"lift", 1}, {"raise", 1},
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

// tokens returns those that the grants of keys have and had, of the session or, if
// that is zero, of all.
func tokens(s *State, keys []string, id SessionID) (ts []Token) {
	for _, key := range keys {
		r, ok := s.keys.get(key)
		if !ok {
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

// neighbours are keys that meet: two of one shard, so that the order of its map
// could show, and some above and below each other.
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
			Seen:       seen(),
		}
		// One feature or two, and sometimes two that do not go together.
		for range rapid.IntRange(0, 2).Draw(t, "features") {
			feature := rapid.IntRange(0, 7).Draw(t, "feature")
			if g.like > 0 && rapid.Bool().Draw(t, "like") {
				feature = g.like
			}
			switch feature {
			case 0, 1:
				c.Mode = Shared
			case 2:
				c.Mode, c.Of = Permit, rapid.Uint32Range(1, 2).Draw(t, "of")
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
			}
		}
		return c
	case "release":
		to := rapid.SampledFrom([]string{"", "", "", "two", "one"}).Draw(t, "to")
		return Release{Session: id, Token: token(), To: to, Seen: seen()}
	case "withdraw":
		return Withdraw{Session: id, Seq: seq.Draw(t, "seq"), Seen: seen()}
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
		return Open{Session: id, Client: clientOf(id), Node: "node", TTL: rapid.Uint64Range(299, 1001).Draw(t, "ttl"), Meta: string(meta())}
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
	case "ask":
		return Ask{Session: id, Key: key.Draw(t, "key")}
	case "leader":
		return LeaderStart{Term: term()}
	case "lift":
		return Lift{Term: term()}
	case "bound":
		return Bound{Term: term(), TTL: 1000}
	case "found":
		return Found{Cluster: ClusterID{1}, Floor: 5, TTL: 1000}
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

// witness watches commands, outcomes and events alone, and knows what must never
// be seen. It has its own, slow idea of what conflicts, and none of a queue.
type witness struct {
	asked  map[requestID]Acquire   // that wait or hold
	came   map[requestID]int       // when they did
	passed map[requestID]int       // those that wait: how often
	token  map[requestID]Token     // those that hold
	exempt map[requestID]bool      // may pass: a waiver or a successor
	mode   map[requestID]Mode      // those that hold, as it is now
	ups    map[requestID]requestID // upgrades that wait, of what
	ghosts map[Token]string        // clients of expired grants, whose delay runs: see ghostly
	broken map[requestID]bool
	lasts  map[string]Token   // of each key
	gave   map[requestID]bool // granted in the session's present life
	done   map[requestID]bool // withdrawn, released or refused in it
	last   Token
	now    int
}

func newWitness() *witness {
	return &witness{
		asked:  make(map[requestID]Acquire),
		came:   make(map[requestID]int),
		passed: make(map[requestID]int),
		token:  make(map[requestID]Token),
		exempt: make(map[requestID]bool),
		mode:   make(map[requestID]Mode),
		ups:    make(map[requestID]requestID),
		ghosts: make(map[Token]string),
		broken: make(map[requestID]bool),
		lasts:  make(map[string]Token),
		gave:   make(map[requestID]bool),
		done:   make(map[requestID]bool),
	}
}

func (c Acquire) all() []string {
	if c.Keys != nil {
		return c.Keys
	}
	return []string{c.Key}
}

// meet reports whether two requests are for one key, or a tree and what is above
// or below it.
func meet(a, b Acquire) bool {
	for _, x := range a.all() {
		for _, y := range b.all() {
			over := strings.HasPrefix(x+"/", y+"/") || strings.HasPrefix(y+"/", x+"/")
			if x == y || (a.Tree || b.Tree) && over {
				return true
			}
		}
	}
	return false
}

func (w *witness) grant(q requestID, token Token) error {
	c := w.asked[q]
	if token <= w.last {
		return fmt.Errorf("token %d granted after token %d", token, w.last)
	}
	if w.gave[q] || w.done[q] {
		return fmt.Errorf("%v granted again", q)
	}
	if c.Conditional && w.lasts[c.Key] > c.IfToken {
		return fmt.Errorf("%v granted %q after token %d, not %d", q, c.Key, w.lasts[c.Key], c.IfToken)
	}
	for _, g := range w.waivers(q) {
		w.exempt[q] = true
		w.drop(g)
		delete(w.ghosts, Token(g.seq))
	}
	for v, other := range w.asked {
		if _, holds := w.token[v]; holds || v == q || !meet(c, other) {
			continue
		}
		if _, up := w.ups[v]; up || c.Mode == Shared && other.Mode == Shared || w.came[v] > w.came[q] {
			continue
		}
		if c.Priority <= other.Priority && !w.exempt[q] {
			return fmt.Errorf("%v granted before %v, which came first", q, v)
		}
		if w.passed[v]++; w.passed[v] > MaxPassed {
			return fmt.Errorf("%v was passed %d times", v, w.passed[v])
		}
	}
	w.token[q], w.mode[q], w.gave[q], w.last = token, c.Mode, true, token
	for _, key := range c.all() {
		w.lasts[key] = token
	}
	return w.exclusion(q)
}

// exclusion compares one holder with all others.
func (w *witness) exclusion(q requestID) error {
	c, permits := w.asked[q], 0
	for v := range w.token {
		o := w.asked[v]
		if v == q || !meet(c, o) || w.mode[q] == Shared && w.mode[v] == Shared {
			continue
		}
		if w.mode[q] == Permit && w.mode[v] == Permit && c.Of == o.Of {
			permits++
			continue
		}
		return fmt.Errorf("%v holds %v while %v holds %v", q, c.all(), v, o.all())
	}
	if w.mode[q] == Permit && permits >= int(c.Of) {
		return fmt.Errorf("%d permits of %d", permits+1, c.Of)
	}
	return nil
}

func (w *witness) drop(q requestID) {
	for up, of := range w.ups {
		if of == q {
			delete(w.ups, up)
			delete(w.asked, up)
		}
	}
	delete(w.ups, q)
	delete(w.asked, q)
	delete(w.token, q)
	delete(w.mode, q)
}

// ghostly stands for an expired grant among those that hold.
func ghostly(token Token) requestID { return requestID{seq: uint64(token)} }

// waivers returns the delays that q need not wait for.
func (w *witness) waivers(q requestID) (ghosts []requestID) {
	c := w.asked[q]
	for token, client := range w.ghosts {
		if c.Keys == nil && w.asked[ghostly(token)].Key == c.Key && client == clientOf(q.session) {
			ghosts = append(ghosts, ghostly(token))
		}
	}
	return ghosts
}

// holds finds who holds under a token, or did before an upgrade.
func holds(s *State, id SessionID, token Token) (q requestID) {
	if o, ok := s.sessions.get(id); ok {
		if seq, _, g := s.grantOf(o, token); g != nil {
			return requestID{id, seq}
		}
	}
	return requestID{}
}

// means finds the grant that a command names, before it is applied.
func means(s *State, c Command) requestID {
	switch c := c.(type) {
	case Upgrade:
		return holds(s, c.Session, c.Token)
	case Downgrade:
		return holds(s, c.Session, c.Token)
	case Release:
		return holds(s, c.Session, c.Token)
	case Break:
		for _, g := range s.Status(c.Key, MaxHolders).Holders {
			if g.Token == c.Token {
				return requestID{g.Session, g.Seq}
			}
		}
	}
	return requestID{}
}

// see judges one step. Held is the grant that the command names, as it was before.
func (w *witness) see(c Command, held requestID, out Outcome, events []Event) error {
	w.now++
	switch c := c.(type) {
	case Acquire:
		q := requestID{c.Session, c.Seq}
		switch out.Code {
		case Granted:
			if t, ok := w.token[q]; ok || w.gave[q] {
				if ok && t != out.Token {
					return fmt.Errorf("%v granted again", q)
				}
				break // told again, or an upgrade of that seq
			}
			w.asked[q], w.came[q] = c, w.now
			if err := w.grant(q, out.Token); err != nil {
				return err
			}
		case Queued:
			if w.gave[q] || w.done[q] {
				return fmt.Errorf("%v queued again", q)
			}
			if _, ok := w.asked[q]; !ok {
				w.asked[q], w.came[q], w.passed[q] = c, w.now, 0
				w.exempt[q] = len(w.waivers(q)) > 0
			}
		case Held, Deadlock, Changed, TooOld, WrongCapacity:
			if w.gave[q] {
				return fmt.Errorf("%v refused, and granted before", q)
			}
			w.done[q] = true
		case TooManyWaiters, Founding, Withdrawn:
			w.done[q] = true
		}
	case Upgrade:
		q := requestID{c.Session, c.Seq}
		switch {
		case out.Code == Granted && !w.gave[q] && w.token[q] == 0:
			if err := w.upgraded(q, held, out.Token); err != nil {
				return err
			}
		case out.Code == Queued:
			if _, ok := w.asked[q]; !ok {
				w.ups[q], w.asked[q] = held, Acquire{Key: w.asked[held].Key}
			}
		case out.Code == Deadlock:
			w.done[q] = true
		}
	case Downgrade:
		if out.Code == OK {
			w.mode[held] = Shared
		}
	case Withdraw:
		if out.Code == OK {
			q := requestID{c.Session, c.Seq}
			if out.Token != 0 { // an upgrade's
				for v, t := range w.token {
					if t == out.Token {
						w.mode[v] = Shared
					}
				}
			}
			w.drop(q)
			w.done[q] = true
		}
	case Release:
		if out.Code == OK {
			if _, ok := w.token[held]; !ok {
				return fmt.Errorf("release of token %d freed nothing known", c.Token)
			}
			if c.To != "" {
				for q := range w.asked {
					w.exempt[q] = w.exempt[q] || clientOf(q.session) == c.To
				}
			}
			w.drop(held)
			w.done[held] = true
		}
	case Expire:
		if out.Code == OK {
			w.leave(c.Session)
		}
	case Close:
		if out.Code == OK {
			w.leave(c.Session)
		}
	case EndDelay:
		if out.Code == OK {
			w.drop(ghostly(c.Token))
			delete(w.ghosts, c.Token)
		}
	case Break:
		if _, ok := w.ghosts[c.Token]; ok && out.Code == OK {
			w.drop(ghostly(c.Token))
			delete(w.ghosts, c.Token)
		} else if out.Code == OK {
			for v := range w.ups {
				if w.ups[v] == held {
					w.drop(v)
				}
			}
		}
	}

	var ended SessionID
	stage := EventKind(0)
	var changed []string
	for _, e := range events {
		q := requestID{e.Session, e.Seq}
		switch e.Kind {
		case EventLost:
			if w.token[q] != e.Token {
				return fmt.Errorf("%v lost token %d, which it does not hold", q, e.Token)
			}
			if e.Reason == Broken {
				w.broken[q] = true
				break
			}
			if c := w.asked[q]; e.Reason == Expired && c.Delay > 0 && !w.broken[q] {
				g := ghostly(e.Token)
				w.asked[g], w.token[g], w.mode[g] = c, e.Token, w.mode[q]
				w.ghosts[e.Token] = clientOf(q.session)
			}
			w.drop(q)
			w.leave(e.Session)
			ended = e.Session
		case EventGranted:
			if e.Session == ended {
				return fmt.Errorf("granted to the session that ends")
			}
			if of, ok := w.ups[q]; ok {
				if err := w.upgraded(q, of, e.Token); err != nil {
					return err
				}
				break
			}
			if _, ok := w.asked[q]; !ok {
				return fmt.Errorf("granted %v, which does not wait", q)
			}
			if err := w.grant(q, e.Token); err != nil {
				return err
			}
		case EventRefused:
			w.drop(q)
			w.done[q] = true
		case EventEnded:
			w.leave(e.Session)
			for _, m := range []map[requestID]bool{w.gave, w.done, w.exempt, w.broken} {
				for q := range m {
					if q.session == e.Session {
						delete(m, q)
					}
				}
			}
			for q := range w.token {
				if q.session == e.Session {
					return fmt.Errorf("session ended, %v still holds", q)
				}
			}
		case EventChanged:
			changed = append(changed, e.Key)
		}
		if last := stage == EventEnded || stage == EventChanged; last && e.Kind != EventChanged || stage == EventChanged && e.Kind == EventEnded {
			return fmt.Errorf("event %d after %d", e.Kind, stage)
		}
		stage = e.Kind
	}
	if !slices.IsSorted(changed) || len(slices.Compact(slices.Clone(changed))) != len(changed) {
		return fmt.Errorf("changed keys %v", changed)
	}
	return nil
}

func (w *witness) upgraded(q, of requestID, token Token) error {
	if token <= w.last || w.gave[q] || w.done[q] {
		return fmt.Errorf("%v upgraded %v to token %d after %d", q, of, token, w.last)
	}
	w.drop(q)
	w.token[of], w.mode[of], w.gave[q], w.last = token, Exclusive, true, token
	w.lasts[w.asked[of].Key] = token
	return w.exclusion(of)
}

// leave takes a session's waiters out of all queues.
func (w *witness) leave(id SessionID) {
	for q := range w.asked {
		if _, holds := w.token[q]; q.session == id && !holds {
			w.drop(q)
		}
	}
}

// asks returns the session of a command that a client asks for a grant with, or for
// something about one, and what it lists as seen.
func asks(c Command) (id SessionID, seen []uint64) {
	switch c := c.(type) {
	case Acquire:
		return c.Session, c.Seen
	case Withdraw:
		return c.Session, c.Seen
	case Release:
		return c.Session, c.Seen
	case Upgrade:
		return c.Session, c.Seen
	case Downgrade:
		return c.Session, c.Seen
	case SetValue:
		return c.Session, c.Seen
	case Break:
		return c.Session, nil
	}
	return SessionID{}, nil
}

// refusals knows what sessions were refused: no late copy of that may be granted or
// done, since whoever asked has the refusal. Where two requests have one seq it does
// not count: a copy of the one is answered with what became of the other.
type refusals map[SessionID]map[string]Code // by the command as the log has it

// see judges one step, and reports whether c is refused for the first time, for a
// reason that may pass.
func (r refusals) see(c Command, out Outcome, events []Event) (moment bool, err error) {
	for _, e := range events {
		if e.Kind == EventEnded {
			delete(r, e.Session) // another one of that ID begins anew
		}
	}
	id, _ := asks(c)
	if id == (SessionID{}) {
		return false, nil
	}
	same := string(EncodeCommands([]Command{c}))
	before := r[id][same]
	switch out.Code {
	case OK, Granted, Queued:
		if before != 0 {
			err = fmt.Errorf("refused with code %d, and done by a late copy", before)
		}
	case NotFounded, NoSession, WrongFormat, NoSuccessor:
		// Is not remembered: it may pass.
	case ValuesFull:
		// A copy is answered as done once another value was set, but does nothing.
	default:
		if r[id] == nil {
			r[id] = make(map[string]Code)
		}
		r[id][same] = out.Code
		moment = before == 0 && out.Code != NotHeld && out.Code != Withdrawn && out.Code != BadCommand
	}
	return moment, err
}

// again has the second copy of a command come at once: it must do nothing. One that
// lists as seen what its first copy has granted is another matter.
func again(t *rapid.T, s *State, c Command, step func(Command) []Event) {
	if _, seen := asks(c); len(seen) > 0 {
		return
	}
	before := content(s)
	events := step(c)
	if content(s) != before {
		t.Fatalf("a second copy of %#v changes the table", c)
	}
	if _, ok := c.(Ask); len(events) > 0 && !ok {
		t.Fatalf("a second copy of %#v: %+v", c, events)
	}
}

// content is a Digest of all but the number of commands.
func content(s *State) [sha256.Size]byte {
	i := s.Snapshot()
	i.header.commands = 0
	return i.Digest()
}

func restored(s *State) (*State, error) {
	var b bytes.Buffer
	if _, err := s.Snapshot().WriteTo(&b); err != nil {
		return nil, err
	}
	return Restore(&b)
}

// TestAnyCommandsKeepTheInvariants feeds one sequence of commands to three
// tables: one that only applies, one whose commands went through the log's
// encoding, and one that is restored from its own image again and again. They
// must not differ in anything that can be seen.
func TestAnyCommandsKeepTheInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := commands{kinds: ofAll, keys: neighbours, like: rapid.IntRange(0, 7).Draw(t, "like")}
		steps, dull := rapid.IntRange(1, 80), rapid.IntRange(0, 4).Draw(t, "start") == 0
		switch rapid.IntRange(0, 4).Draw(t, "world") {
		case 0:
			g.keys = neighbours[:1] // where they meet most
		case 1:
			g.keys = neighbours[2:]
		case 2, 3:
			g.kinds, g.changes = ofChanges, true
			g.keys = rapid.SampledFrom([][]string{neighbours[:2], neighbours[2:4]}).Draw(t, "two")
			g.like = 1 // shared
			steps, dull = rapid.IntRange(30, 100), false
		}
		w, refused := newWitness(), make(refusals)
		plain, logged, copied := New(), New(), New()
		step := func(c Command) []Event {
			held := means(plain, c)
			out, events := plain.Apply(c)
			t.Logf("%T%+v: %+v %+v", c, c, out, events)
			if err := plain.Check(); err != nil {
				t.Fatalf("after %#v: %v", c, err)
			}
			if err := w.see(c, held, out, events); err != nil {
				t.Fatalf("after %#v: %v", c, err)
			}
			if g.changes {
				moment, err := refused.see(c, out, events)
				if err != nil {
					t.Fatalf("after %#v: %v", c, err)
				}
				if moment {
					g.refused = append(g.refused, c)
				}
			}
			cmds, err := DecodeEntry(EncodeCommands([]Command{c}))
			if err != nil || len(cmds) != 1 {
				t.Fatalf("%#v does not survive the log: %v", c, err)
			}
			for name, s := range map[string]*State{"logged": logged, "copied": copied} {
				in := c
				if s == logged {
					in = cmds[0]
				}
				out2, events2 := s.Apply(in)
				if !reflect.DeepEqual(out2, out) || !reflect.DeepEqual(events, events2) {
					t.Fatalf("%#v: the %s table says\n%+v %+v, not\n%+v %+v", c, name, out2, events2, out, events)
				}
			}
			return events
		}
		// Most runs skip what is dull: a table without a founding.
		if !dull {
			step(Found{Cluster: ClusterID{1}, Floor: 5, TTL: 1000})
			step(LeaderStart{Term: 1})
			if g.changes || rapid.IntRange(0, 9).Draw(t, "raise") > 0 {
				step(Raise{Term: 1, Format: MaxFormat})
			}
			for _, n := range []string{"a", "b", "c"} {
				step(Open{Session: session16(n), Client: clientOf(session16(n)), TTL: 1000})
			}
			if g.changes || rapid.IntRange(0, 4).Draw(t, "lift") > 0 {
				step(Lift{Term: 1})
			}
		}
		for range steps.Draw(t, "steps") {
			c := g.draw(t, plain)
			step(c)
			if rapid.IntRange(0, 5).Draw(t, "again") == 0 {
				again(t, plain, c, step)
			}
			switch rapid.IntRange(0, 7).Draw(t, "between") {
			case 0:
				r, err := restored(copied)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Check(); err != nil {
					t.Fatal(err)
				}
				copied = r
			case 1:
				plain.Snapshot()
			}
			compare(t, plain, copied)
		}
		if d := plain.Digest(); d != logged.Digest() || d != copied.Digest() {
			t.Fatal("digests differ")
		}
	})
}

// compare asks two tables all that can be asked.
func compare(t *rapid.T, a, b *State) {
	ca, fa := a.Cluster()
	cb, fb := b.Cluster()
	if ca != cb || fa != fb || a.Term() != b.Term() || a.Bound() != b.Bound() || a.Lifted() != b.Lifted() ||
		a.LastToken() != b.LastToken() || a.Commands() != b.Commands() || a.Counts() != b.Counts() {
		t.Fatal("tables differ")
	}
	for _, key := range neighbours {
		sa, sb := a.Status(key, 100), b.Status(key, 100)
		if a.Value(key) != b.Value(key) {
			t.Fatalf("value of %q differs: %q, %q", key, a.Value(key), b.Value(key))
		}
		if !reflect.DeepEqual(sa, sb) || a.Version(key) != b.Version(key) {
			t.Fatalf("%q differs:\n%+v\n%+v", key, sa, sb)
		}
		id, token := a.Owner(key)
		if len(sa.Holders) > 0 && (sa.Holders[0].Session != id || sa.Holders[0].Token != token) {
			t.Fatalf("%q: Owner %v %d, Status %+v", key, id, token, sa)
		}
	}
	open := 0
	a.Sessions(func(st SessionStatus) bool {
		open++
		other, ok := b.Session(st.ID)
		if !ok || other != st {
			t.Fatalf("session differs: %+v, %+v", st, other)
		}
		if pa, pb := a.Pending(st.ID), b.Pending(st.ID); !reflect.DeepEqual(pa, pb) {
			t.Fatalf("pending differs: %+v, %+v", pa, pb)
		}
		return true
	})
	if open != b.Counts().Sessions {
		t.Fatalf("%d sessions, %d", open, b.Counts().Sessions)
	}
}

// TestSpansAreASet compares spans with a map.
func TestSpansAreASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p spans
		in := make(map[uint64]bool)
		edge := rapid.SampledFrom([]uint64{1, 1 << 40, ^uint64(0) - 20}).Draw(t, "edge")
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			seq := edge + rapid.Uint64Range(0, 20).Draw(t, "seq")
			if !p.add(seq) {
				t.Fatal("full")
			}
			in[seq] = true
			if !p.valid() {
				t.Fatalf("%v", p)
			}
		}
		for seq := edge; ; seq++ {
			if p.has(seq) != in[seq] {
				t.Fatalf("%d in %v: %t", seq, p, p.has(seq))
			}
			if seq-edge == 20 {
				break
			}
		}
	})
}

// TestMain has rapid draw more than its hundred cases: the world is small, but what
// can meet in it is not.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", fmt.Sprint(testrounds.Rounds(100, 600))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
