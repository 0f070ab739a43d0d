package machine

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the scripts' verdicts and the golden files")

// TestScripts runs testdata/*.txt. A script is blocks of comments, commands, a line
// of dashes, and the verdict on the commands. The table of a script is founded with
// floor 1, lifted, in term 1, unless a line says "unfounded". A line "slice n" makes the
// slices of a session's end so many keys long.
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

// runScript returns the text with the machine's verdicts.
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
		case strings.HasPrefix(line, "slice "):
			if _, err := fmt.Sscanf(line, "slice %d", &sc.s.slice); err != nil {
				t.Fatalf("%s:%d: %v", file, i+1, err)
			}
		case strings.HasPrefix(line, "admits "):
			if _, err := fmt.Sscanf(line, "admits %d", &sc.s.admits); err != nil {
				t.Fatalf("%s:%d: %v", file, i+1, err)
			}
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
			Boot:    w.num("boot", 1),
			Dir:     DirID(session16(w.text("dir", "none"))),
			TTL:     w.num("ttl", 10_000),
			Meta:    w.text("meta", "none"),
		}
	case "acquire", "try":
		id = session16(w.next())
		a := Acquire{
			Session:    id,
			Try:        verb == "try",
			Seq:        w.num("seq", 0),
			Spec:       Spec{Mode: Mode(w.num("mode", 0)), N: uint16(w.num("n", 0)), Of: uint16(w.num("of", 0)), Priority: int8(w.int("priority")), Block: uint16(w.num("block", 0)), Delay: w.num("delay", 0), Meta: w.text("meta", "none")},
			MaxWaiters: uint32(w.num("max-waiters", 0)),
			Under:      w.tokens("under"),
			Freed:      w.tokens("freed"),
			Seen:       w.seqs("seen"),
		}
		if a.Of > 0 {
			a.Mode, a.N = Permit, cmp.Or(a.N, 1)
		} else if a.N > 0 {
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
		c = Withdraw{Session: id, Seq: w.num("seq", 0), More: w.seqs("more"), Seen: w.seqs("seen")}
	case "release":
		id = session16(w.next())
		c = Release{Session: id, Token: Token(w.num("token", 0)), To: w.text("to", "none"), Seen: w.seqs("seen")}
	case "extend":
		id = session16(w.next())
		c = Extend{Session: id, Token: Token(w.num("token", 0)), Last: Token(w.num("last", 0)), Block: uint32(w.num("block", 0)), Seen: w.seqs("seen")}
	case "set-capacity":
		id = session16(w.next())
		c = SetCapacity{Session: id, Seq: w.num("seq", 0), Key: w.next(), Of: uint32(w.num("of", 0)), Seen: w.seqs("seen")}
	case "change-capacity":
		id = session16(w.next())
		c = SetCapacity{Session: id, Seq: w.num("seq", 0), Key: w.next(), Of: uint32(w.num("to", 0)), Compare: true, From: uint32(w.num("from", 0)), Seen: w.seqs("seen")}
	case "ask":
		id = session16(w.next())
		c = Ask{Session: id, Key: w.next(), Token: Token(w.num("token", 0))}
	case "break":
		id = session16(w.next())
		c = Break{Session: id, Key: w.next(), Token: Token(w.num("token", 0))}
	case "end-session":
		id = session16(w.next())
		c = EndSession{Session: id, Ref: session16(w.next()).Ref()}
	case "end-slice":
		id = session16(w.next())
		c = EndSlice{Session: id}
	case "admit-slice":
		c = AdmitSlice{}
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
	case "forget":
		c = Forget{Node: w.text("node", "none"), Boot: w.num("boot", 1), Dir: DirID(session16(w.text("dir", "none")))}
	case "unknown":
		c = Unknown{Raw: "\xff"}
	case "enlist", "delist", "decline", "resize", "assign", "dismiss", "reshard":
		id, c = w.groupCommand(verb, sc.s)

	// The verbs below ask, and change nothing.
	case "status":
		sc.status(w.next(), int(w.num("waiters", 10)))
	case "session":
		sc.session(session16(w.next()))
	case "group":
		sc.group(w.next())
	case "values":
		values, more := sc.s.Values(w.text("prefix", "none"), w.text("from", "none"), int(w.num("n", 100)), int(w.num("bytes", 1<<20)))
		for _, v := range values {
			fmt.Fprintf(&sc.out, "value   %s=%s token=%d clean=%t\n", v.Key, v.Value, v.Token, !v.Unclean)
		}
		if more {
			fmt.Fprintln(&sc.out, "values  more")
		}
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
		if e.Kind != EventChanged && e.Kind != EventGroup && (e.Kind != EventEnded && e.Kind != EventContended || sc.verbose) {
			sc.event(e)
		}
	}
	return nil
}
