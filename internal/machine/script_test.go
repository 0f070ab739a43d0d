package machine

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the scripts' verdicts and the golden files")

// TestScripts runs testdata/*.txt. A script is blocks of comments, commands, a
// line of dashes, and the verdict on the commands. Unless its first line is
// "unfounded", it finds its table founded with its floor at 1, lifted, in term 1.
//
// go test ./internal/machine -run TestScripts -rewrite
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, file, string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("%s: verdicts differ; rerun with -rewrite and read the diff:\n%s", file, firstDifference(string(text), got))
			}
		})
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\nwant: %s\ngot:  %s", i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("want %d lines, got %d", len(w), len(g))
}

// script is a run of one file.
type script struct {
	s       *State
	rev     uint64
	verbose bool // print the end of sessions, and contention, too
	out     strings.Builder
}

func founded() *State {
	s := New()
	for _, c := range []Command{
		Found{Cluster: ClusterID{1}, Floor: 1, TTL: 10_000},
		LeaderStart{Term: 1},
		Raise{Term: 1, Format: MaxFormat},
		Lift{Term: 1},
	} {
		if out, _ := s.Apply(c); out.Code != OK {
			panic(fmt.Sprintf("%#v: %+v", c, out))
		}
	}
	return s
}

// runScript returns the text with the verdicts that the machine gives.
func runScript(t *testing.T, file, text string) string {
	sc := &script{s: founded()}
	var got strings.Builder
	verdict := false
	flush := func() {
		got.WriteString(sc.out.String())
		sc.out.Reset()
	}
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case line == "----":
			got.WriteString("----\n")
			flush()
			verdict = true
			continue
		case line == "":
			if sc.out.Len() > 0 {
				t.Fatalf("%s:%d: commands without ----", file, i+1)
			}
			verdict = false
		case verdict:
			continue
		case strings.HasPrefix(line, "#"):
		case line == "unfounded":
			sc.s = New()
		case line == "verbose":
			sc.verbose = true
		default:
			if err := sc.run(line); err != nil {
				t.Fatalf("%s:%d: %s: %v", file, i+1, line, err)
			}
			if err := sc.s.Check(); err != nil {
				t.Fatalf("%s:%d: %s: %v", file, i+1, line, err)
			}
		}
		got.WriteString(line + "\n")
	}
	return got.String()
}

func name(id SessionID) string {
	if id == (SessionID{}) {
		return "nobody"
	}
	return strings.TrimRight(string(id[:]), "\x00")
}

func session16(name string) (id SessionID) {
	if name != "nobody" {
		copy(id[:], name)
	}
	return id
}

// words are a command line's arguments: name=value, and bare words.
type words struct {
	named map[string]string
	bare  []string
	err   error
}

func split(line string) (verb string, w words) {
	fields := strings.Fields(line)
	w.named = make(map[string]string)
	for _, f := range fields[1:] {
		if k, v, ok := strings.Cut(f, "="); ok {
			w.named[k] = v
		} else {
			w.bare = append(w.bare, f)
		}
	}
	return fields[0], w
}

func (w *words) next() string {
	if len(w.bare) == 0 {
		return ""
	}
	v := w.bare[0]
	w.bare = w.bare[1:]
	return v
}

func (w *words) num(name string, missing uint64) uint64 {
	v, ok := w.named[name]
	if !ok {
		return missing
	}
	delete(w.named, name)
	n, err := number(v)
	if err != nil {
		w.err = err
	}
	return n
}

func (w *words) int(name string) int {
	v, ok := w.named[name]
	if !ok {
		return 0
	}
	delete(w.named, name)
	n, err := strconv.Atoi(v)
	if err != nil {
		w.err = err
	}
	return n
}

func (w *words) tokens(name string) (tokens []Token) {
	for _, n := range w.seqs(name) {
		tokens = append(tokens, Token(n))
	}
	return tokens
}

func number(v string) (uint64, error) {
	switch v {
	case "max":
		return math.MaxUint64, nil
	case "max-token":
		return uint64(MaxToken), nil
	}
	return strconv.ParseUint(v, 10, 64)
}

// textOf reads a bare or named value; "x*600" is 600 times x, "bad-utf8" what it
// says, "none" empty.
func textOf(v string) string {
	switch v {
	case "bad-utf8":
		return "\xff"
	case "none":
		return ""
	}
	if s, n, ok := strings.Cut(v, "*"); ok {
		if n, err := strconv.Atoi(n); err == nil {
			return strings.Repeat(s, n)
		}
	}
	return v
}

func (w *words) text(name, missing string) string {
	v, ok := w.named[name]
	if !ok {
		v = missing
	}
	delete(w.named, name)
	return textOf(v)
}

// seqs reads "1,2,5-9".
func (w *words) seqs(name string) (seqs []uint64) {
	v, ok := w.named[name]
	if !ok {
		return nil
	}
	delete(w.named, name)
	for _, part := range strings.Split(v, ",") {
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		a, err1 := number(first)
		b, err2 := number(last)
		if err1 != nil || err2 != nil || b-a > 1<<20 {
			w.err = fmt.Errorf("bad range %q", part)
			return nil
		}
		for n := a; ; n++ {
			seqs = append(seqs, n)
			if n == b {
				break
			}
		}
	}
	return seqs
}

func (sc *script) run(line string) error {
	verb, w := split(line)
	var c Command
	var id SessionID
	var key string
	switch verb {
	case "found":
		c = Found{
			Cluster: ClusterID(session16(w.text("cluster", "c"))),
			Floor:   Token(w.num("floor", 1)),
			TTL:     w.num("ttl", 10_000),
		}
	case "leader-start":
		c = LeaderStart{Term: w.num("term", sc.s.Term()+1)}
	case "raise":
		c = Raise{Term: w.num("term", sc.s.Term()), Format: w.num("format", MaxFormat)}
	case "lift":
		c = Lift{Term: w.num("term", sc.s.Term())}
	case "bound":
		c = Bound{Term: w.num("term", sc.s.Term()), TTL: w.num("ttl", 10_000)}
	case "open":
		n := w.next()
		id = session16(n)
		c = Open{
			Session: id,
			Client:  w.text("client", "client-"+n),
			Node:    w.text("node", "node-"+n),
			TTL:     w.num("ttl", 10_000),
			Meta:    w.text("meta", "none"),
		}
	case "acquire", "try":
		id = session16(w.next())
		a := Acquire{
			Session:    id,
			Try:        verb == "try",
			Seq:        w.num("seq", 0),
			Spec:       Spec{Mode: Mode(w.num("mode", 0)), Of: uint32(w.num("of", 0)), Priority: int8(w.int("priority")), Delay: w.num("delay", 0), Meta: w.text("meta", "none")},
			MaxWaiters: uint32(w.num("max-waiters", 0)),
			Under:      w.tokens("under"),
			Seen:       w.seqs("seen"),
		}
		if a.Of > 0 {
			a.Mode = Permit
		}
		if _, ok := w.named["if-token"]; ok {
			a.Conditional, a.IfToken = true, Token(w.num("if-token", 0))
		}
		for len(w.bare) > 0 {
			switch v := w.next(); v {
			case "shared":
				a.Mode = Shared
			case "tree":
				a.Tree = true
			default:
				for _, k := range strings.Split(v, ",") {
					a.Keys = append(a.Keys, textOf(k))
				}
			}
		}
		if len(a.Keys) == 1 {
			a.Key, a.Keys = a.Keys[0], nil
		}
		key = a.Key
		if a.Keys != nil {
			key = strings.Join(a.Keys, ",")
		}
		c = a
	case "upgrade":
		id = session16(w.next())
		c = Upgrade{Session: id, Seq: w.num("seq", 0), Token: Token(w.num("token", 0)), Under: w.tokens("under"), Seen: w.seqs("seen")}
		key = "upgrade"
	case "downgrade":
		id = session16(w.next())
		c = Downgrade{Session: id, Token: Token(w.num("token", 0)), Seen: w.seqs("seen")}
	case "set-value":
		id = session16(w.next())
		sc.rev++
		v := SetValue{Session: id, Token: Token(w.num("token", 0)), Rev: w.num("rev", sc.rev), Value: []byte(w.text("value", "none")), Seen: w.seqs("seen")}
		if w.next() == "fade" {
			v.Fade = true
		}
		c = v
	case "withdraw":
		id = session16(w.next())
		c = Withdraw{Session: id, Seq: w.num("seq", 0), Seen: w.seqs("seen")}
	case "release":
		id = session16(w.next())
		c = Release{Session: id, Token: Token(w.num("token", 0)), To: w.text("to", "none"), Seen: w.seqs("seen")}
	case "ask":
		id = session16(w.next())
		c = Ask{Session: id, Key: w.next()}
	case "break":
		id = session16(w.next())
		c = Break{Session: id, Key: w.next(), Token: Token(w.num("token", 0))}
	case "end-delay":
		c = EndDelay{Token: Token(w.num("token", 0)), Term: w.num("term", sc.s.Term())}
	case "clock":
		sc.s.Clock(w.num("at", 0))
	case "silence":
		id = session16(w.next())
		c = Silence{Session: id, Term: w.num("term", sc.s.Term())}
	case "hear":
		id = session16(w.next())
		c = Hear{Session: id, Term: w.num("term", sc.s.Term())}
	case "expire":
		id = session16(w.next())
		c = Expire{Session: id, Term: w.num("term", sc.s.Term())}
	case "close":
		id = session16(w.next())
		c = Close{Session: id}
	case "unknown":
		c = Unknown{Raw: "\xff"}

	// What follows asks, and changes nothing.
	case "status":
		sc.status(w.next(), int(w.num("waiters", 10)))
	case "session":
		sc.session(session16(w.next()))
	case "pending":
		for _, e := range sc.s.Pending(session16(w.next())) {
			fmt.Fprintf(&sc.out, "pending ")
			sc.event(e)
		}
	case "table":
		n := sc.s.Counts()
		fmt.Fprintf(&sc.out, "table   term=%d bound=%d lifted=%t last-token=%d keys=%d grants=%d waiters=%d sessions=%d answers=%d values=%d\n",
			sc.s.Term(), sc.s.Bound(), sc.s.Lifted(), sc.s.LastToken(), n.Keys, n.Grants, n.Waiters, n.Sessions, n.Answers, n.Values)
	default:
		return fmt.Errorf("unknown verb")
	}
	if w.err != nil {
		return w.err
	}
	if len(w.named) > 0 || len(w.bare) > 0 {
		return fmt.Errorf("arguments left over: %v %v", w.named, w.bare)
	}
	if c == nil {
		return nil
	}
	out, events := sc.s.Apply(c)
	sc.outcome(id, key, term(c), out)
	for _, e := range events {
		if e.Kind != EventChanged && (e.Kind != EventEnded && e.Kind != EventContended || sc.verbose) {
			sc.event(e)
		}
	}
	return nil
}

func (sc *script) event(e Event) {
	p := func(format string, args ...any) { fmt.Fprintf(&sc.out, format, args...) }
	switch e.Kind {
	case EventGranted:
		p("granted %s %s token=%d", name(e.Session), e.Key, e.Token)
		sc.left(e.Value, e.Unclean)
	case EventLost:
		p("lost    %s %s token=%d reason=%s", name(e.Session), e.Key, e.Token, reason(e.Reason))
	case EventEnded:
		p("ended   %s reason=%s", name(e.Session), reason(e.Reason))
	case EventRefused:
		p("refused %s %s seq=%d code=%d token=%d", name(e.Session), e.Key, e.Seq, e.Code, e.Token)
	case EventAsked:
		p("asked   %s %s token=%d by=%s", name(e.Session), e.Key, e.Token, e.By)
	case EventContended:
		p("wanted  %s %s token=%d", name(e.Session), e.Key, e.Token)
	case EventDelayed:
		p("delayed %s token=%d for=%d", e.Key, e.Token, e.Delay)
	}
	p("\n")
}

// left tells what a holder finds.
func (sc *script) left(value string, unclean bool) {
	if value != "" {
		fmt.Fprintf(&sc.out, " value=%s", value)
	}
	if unclean {
		fmt.Fprint(&sc.out, " unclean")
	}
}

func reason(r Reason) string {
	switch r {
	case Expired:
		return "expired"
	case Closed:
		return "closed"
	case Broken:
		return "broken"
	}
	return fmt.Sprintf("reason-%d", r)
}

// term is the one in which c was proposed, if it says.
func term(c Command) uint64 {
	switch c := c.(type) {
	case LeaderStart:
		return c.Term
	case Lift:
		return c.Term
	case Bound:
		return c.Term
	case Silence:
		return c.Term
	case Hear:
		return c.Term
	case Expire:
		return c.Term
	case EndDelay:
		return c.Term
	case Raise:
		return c.Term
	}
	return 0
}

func (sc *script) outcome(id SessionID, key string, term uint64, o Outcome) {
	if len(key) > 40 || !utf8.ValidString(key) {
		key = "…"
	}
	p := func(format string, args ...any) { fmt.Fprintf(&sc.out, format+"\n", args...) }
	switch o.Code {
	case OK:
	case Granted:
		fmt.Fprintf(&sc.out, "granted %s %s token=%d", name(id), key, o.Token)
		sc.left(o.Value, o.Unclean)
		p("")
	case Queued:
		p("queued  %s %s behind=%d", name(id), key, o.Behind)
	case Held:
		at := ""
		if o.Holder.Key != "" {
			at = " of " + o.Holder.Key
		}
		p("refused: held by %s of %s on %s, token=%d%s", name(o.Holder.Session), o.Holder.Client, o.Holder.Node, o.Holder.Token, at)
	case TooManyWaiters:
		p("refused: %d wait already", o.Limit)
	case Founding:
		p("refused: nothing is granted during the founding wait")
	case NoSession:
		p("refused: session %s is gone", name(id))
	case NotHeld:
		p("refused: %s does not hold that token", name(id))
	case Withdrawn:
		p("refused: withdrawn, or seen and forgotten")
	case WrongTerm:
		p("refused: proposed in term %d, now in term %d", term, o.Limit)
	case Founded:
		p("refused: founded already")
	case NotFounded:
		p("refused: not founded")
	case BadCommand:
		p("refused: bad %s, limit %d", o.Field, o.Limit)
	case TokensSpent:
		p("refused: tokens are spent")
	case TooManyUnseen:
		p("refused: %d outcomes unseen", o.Limit)
	case Deadlock:
		fmt.Fprint(&sc.out, "refused: deadlock")
		for _, l := range o.Cycle {
			fmt.Fprintf(&sc.out, ", %s waits for %s", l.Client, l.Key)
			if l.Token > 0 {
				fmt.Fprintf(&sc.out, " token=%d", l.Token)
			}
		}
		p("")
	case WrongCapacity:
		p("refused: permits are of %d", o.Limit)
	case Changed:
		p("refused: granted since, token=%d", o.Token)
	case TooOld:
		p("refused: grants up to token=%d are forgotten", o.Token)
	case WrongMode:
		p("refused: wrong mode")
	case NoSuccessor:
		p("refused: no successor")
	case ValuesFull:
		p("refused: values are full, limit %d", o.Limit)
	case WrongFormat:
		p("refused: format %d has no such command", o.Limit)
	default:
		p("code %d", o.Code)
	}
}

func (sc *script) status(key string, waiters int) {
	st := sc.s.Status(key, waiters)
	p := func(format string, args ...any) { fmt.Fprintf(&sc.out, format, args...) }
	if len(st.Holders) == 0 && st.Queue == 0 {
		p("free    %s", key)
		sc.left(sc.s.Value(key), st.Unclean)
		p("\n")
		return
	}
	for _, g := range st.Holders {
		p("holder  %s %s", name(g.Session), key)
		if g.Seq > 0 {
			p(" seq=%d", g.Seq)
		}
		p(" token=%d%s", g.Token, modeText(g.Mode, g.Of, g.Tree, g.Keys))
		if g.At > 0 {
			p(" at=%d", g.At)
		}
		for _, f := range []struct {
			is   bool
			text string
		}{{g.Asked, " asked"}, {g.Broken, " broken"}, {g.Delayed, " delayed, was " + g.Client + "'s"}} {
			if f.is {
				p("%s", f.text)
			}
		}
		if len(g.Meta) > 0 {
			p(" meta=%s", g.Meta)
		}
		p("\n")
	}
	for _, w := range st.Waiters {
		p("waiter  %s %s seq=%d%s", name(w.Session), key, w.Seq, modeText(w.Mode, w.Of, w.Tree, w.Keys))
		if w.Upgrade {
			p(" upgrade")
		}
		if w.Priority != 0 {
			p(" priority=%d", w.Priority)
		}
		if w.Passed != 0 {
			p(" passed=%d", w.Passed)
		}
		p("\n")
	}
	if st.Queue > len(st.Waiters) {
		p("and %d more\n", st.Queue-len(st.Waiters))
	}
}

func modeText(m Mode, of uint32, tree bool, keys int) (s string) {
	switch m {
	case Shared:
		s = " shared"
	case Permit:
		s = fmt.Sprintf(" of=%d", of)
	}
	if tree {
		s += " tree"
	}
	if keys > 1 {
		s += fmt.Sprintf(" keys=%d", keys)
	}
	return s
}

func (sc *script) session(id SessionID) {
	st, ok := sc.s.Session(id)
	if !ok {
		fmt.Fprintf(&sc.out, "gone    %s\n", name(id))
		return
	}
	silent := ""
	if st.Silent {
		silent = " silent"
	}
	fmt.Fprintf(&sc.out, "session %s ttl=%d grants=%d waits=%d%s\n", name(id), st.TTL, st.Grants, st.Waits, silent)
}
