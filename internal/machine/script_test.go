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
	verbose bool // print the end of sessions too
	out     strings.Builder
}

func founded() *State {
	s := New()
	for _, c := range []Command{
		Found{Cluster: ClusterID{1}, Floor: 1, TTL: 10_000},
		LeaderStart{Term: 1},
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
			Meta:    []byte(w.text("meta", "none")),
		}
	case "acquire", "try":
		id = session16(w.next())
		a := Acquire{
			Session:    id,
			Try:        verb == "try",
			Seq:        w.num("seq", 0),
			Mode:       Mode(w.num("mode", 0)),
			MaxWaiters: uint32(w.num("max-waiters", 0)),
			Meta:       []byte(w.text("meta", "none")),
			Seen:       w.seqs("seen"),
		}
		key = textOf(w.next())
		a.Key = key
		c = a
	case "withdraw":
		id = session16(w.next())
		c = Withdraw{Session: id, Seq: w.num("seq", 0), Seen: w.seqs("seen")}
	case "release":
		id = session16(w.next())
		c = Release{Session: id, Token: Token(w.num("token", 0)), Seen: w.seqs("seen")}
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
			fmt.Fprintf(&sc.out, "pending %s seq=%d %s token=%d\n", name(e.Session), e.Seq, e.Key, e.Token)
		}
	case "table":
		n := sc.s.Counts()
		fmt.Fprintf(&sc.out, "table   term=%d bound=%d lifted=%t last-token=%d keys=%d grants=%d waiters=%d sessions=%d refusals=%d\n",
			sc.s.Term(), sc.s.Bound(), sc.s.Lifted(), sc.s.LastToken(), n.Keys, n.Grants, n.Waiters, n.Sessions, n.Refusals)
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
		switch e.Kind {
		case EventGranted:
			fmt.Fprintf(&sc.out, "granted %s %s token=%d\n", name(e.Session), e.Key, e.Token)
		case EventLost:
			fmt.Fprintf(&sc.out, "lost    %s %s token=%d reason=%s\n", name(e.Session), e.Key, e.Token, reason(e.Reason))
		case EventEnded:
			if sc.verbose {
				fmt.Fprintf(&sc.out, "ended   %s reason=%s\n", name(e.Session), reason(e.Reason))
			}
		}
	}
	return nil
}

func reason(r Reason) string {
	switch r {
	case Expired:
		return "expired"
	case Closed:
		return "closed"
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
		p("granted %s %s token=%d", name(id), key, o.Token)
	case Queued:
		p("queued  %s %s behind=%d", name(id), key, o.Behind)
	case Held:
		p("refused: held by %s of %s on %s, token=%d", name(o.Holder.Session), o.Holder.Client, o.Holder.Node, o.Holder.Token)
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
	default:
		p("code %d", o.Code)
	}
}

func (sc *script) status(key string, waiters int) {
	st := sc.s.Status(key, waiters)
	if len(st.Holders) == 0 && st.Queue == 0 {
		fmt.Fprintf(&sc.out, "free    %s\n", key)
		return
	}
	for _, g := range st.Holders {
		fmt.Fprintf(&sc.out, "holder  %s %s seq=%d token=%d", name(g.Session), key, g.Seq, g.Token)
		if len(g.Meta) > 0 {
			fmt.Fprintf(&sc.out, " meta=%s", g.Meta)
		}
		fmt.Fprintln(&sc.out)
	}
	for _, w := range st.Waiters {
		fmt.Fprintf(&sc.out, "waiter  %s %s seq=%d\n", name(w.Session), key, w.Seq)
	}
	if st.Queue > len(st.Waiters) {
		fmt.Fprintf(&sc.out, "and %d more\n", st.Queue-len(st.Waiters))
	}
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
