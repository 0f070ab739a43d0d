package lockshttp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

var everything = []string{"/", "/report.json", "/locks.json", "/locks.json?view=local", "/why.json?key=k", "/sessions.json", "/shards.json", "/shards.json?name=n"}

// Without a quorum every answer comes in time, with the last view of this member and its
// age. A member that does not know yet waits for the leader for a moment.
func TestEverythingAnswersWithoutAQuorum(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cl *lockstest.Cluster) {
		c := cl.Client(1)
		h, p := Handler(c, Options{}), Probes(c)
		take(t, cl.Client(0), "k")
		wait(t, c, "k")
		time.Sleep(time.Second) // the followers hear of it
		if w := visit(p, "/readyz"); w.Code != http.StatusOK {
			t.Errorf("before the outage: %d %s", w.Code, w.Body)
		}
		cl.Kill(0)
		cl.Kill(2)
		killed := time.Now()
		for time.Since(killed) < time.Minute {
			for _, target := range everything {
				began := time.Now()
				w := visit(h, target)
				if d := time.Since(began); w.Code != http.StatusOK || d > askPatience {
					t.Errorf("%v after the outage %s: %d after %v", began.Sub(killed), target, w.Code, d)
				}
			}
			for _, probe := range []string{"/livez", "/readyz"} {
				began := time.Now()
				visit(p, probe)
				if d := time.Since(began); d > 0 {
					t.Errorf("%s took %v", probe, d)
				}
			}
			time.Sleep(500 * time.Millisecond)
		}
		if w := visit(p, "/livez"); w.Code != http.StatusOK {
			t.Errorf("/livez: %d %s", w.Code, w.Body)
		}
		if w := visit(p, "/readyz"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "no quorum: ") || strings.Contains(w.Body.String(), "\"k\"") {
			t.Errorf("/readyz: %d %s", w.Code, w.Body)
		}
		for _, target := range everything[2:] {
			var head documents.Head
			if err := json.Unmarshal(visit(h, target).Body.Bytes(), &head); err != nil || head.Quorum || head.Source != documents.SourceTable ||
				head.Index == 0 || time.Duration(head.Age) < 50*time.Second || head.Reason == "" || head.Next == "" {
				t.Errorf("%s: %v, %+v", target, err, head)
			}
		}
		doc := document[documents.Why](t, h, "/why.json?key=k")
		if doc.Key.Holding != 1 || doc.Key.Queue != 1 || doc.Key.Holders[0].Left != nil || !strings.Contains(doc.Text[len(doc.Text)-1], "no quorum") {
			t.Errorf("%+v", doc)
		}
		s := openStream(t, h, "")
		defer s.close()
		for {
			m, _ := s.next(t)
			if m.kind != "beat" {
				continue
			}
			var head documents.Head
			if err := json.Unmarshal([]byte(m.data), &head); err != nil || head.Quorum || head.Reason == "" {
				t.Errorf("%v, %+v", err, head)
			}
			break
		}
	})
}

// A thin member has the leader's word, and without a leader its own locks.
func TestAThinMemberShowsItsOwn(t *testing.T) {
	bubbleWith(t, 4, func(t *testing.T, cl *lockstest.Cluster) {
		c := cl.Client(3)
		h := Handler(c, Options{})
		take(t, c, "mine")
		take(t, cl.Client(0), "other")
		wait(t, c, "other")
		if doc := document[documents.Locks](t, h, "/locks.json"); doc.Source != documents.SourceCluster || len(doc.Keys) != 2 {
			t.Errorf("%+v", doc)
		}
		if doc := document[documents.Why](t, h, "/why.json?key=other"); doc.Source != documents.SourceCluster || len(doc.Nodes) != 3 {
			t.Errorf("%+v", doc)
		}
		for _, quorum := range []bool{true, false} {
			if !quorum {
				cl.Isolate(3)
				time.Sleep(500 * time.Millisecond) // the trust of the lock is not over
			}
			doc := document[documents.Locks](t, h, "/locks.json?view=local")
			if doc.Source != documents.SourceOwn || len(doc.Keys) != 2 || doc.Keys[0].Key != "mine" || doc.Keys[1].Queue != 1 {
				t.Errorf("quorum %v: %+v", quorum, doc)
			}
		}
		cl.Heal()
	}, lockstest.Config(func(i int, cfg *cluster.Config) { cfg.Voting.Thin = i == 3 }))
}

func TestProbesFollowTheMember(t *testing.T) {
	p := &probes{c: local(t)}
	now := time.Now()
	health := func(change func(*cluster.Report)) cluster.Report {
		var r cluster.Report
		r.Health.Quorum, r.Health.Granting = true, true
		r.Health.Voters = cluster.VoterHealth{Wanted: 3, Present: 3, Reachable: 3, CaughtUp: 3}
		change(&r)
		return r
	}
	behind := func(r *cluster.Report) { r.Health.Voters.CaughtUp, r.Health.Reason = 2, "one is behind" }
	all := func(*cluster.Report) {}
	for _, step := range []struct {
		what   string
		change func(*cluster.Report)
		after  time.Duration
		want   string // part of the reason; "" if ready
	}{
		{"no quorum yet", func(r *cluster.Report) { r.Health.Quorum, r.Health.Reason = false, "one of three is seen" }, 0, "no quorum: one of three is seen"},
		{"the founding wait", func(r *cluster.Report) { r.Health.Granting = false }, 0, "grants nothing yet"},
		{"voters are missing", behind, 0, "2 of 3 have caught up: one is behind"},
		{"voters are missing for long", behind, timing.ReadyPatience, ""},
		{"it was ready before", behind, 0, ""},
		{"the quorum is lost", func(r *cluster.Report) { r.Health.Quorum = false }, 0, "no quorum"},
		{"it is back", all, 0, ""},
		{"leaving", func(r *cluster.Report) { r.Own.Leaving = true }, 0, "leaving"},
		{"ended", func(r *cluster.Report) { r.Own.Ended = "stopped" }, 0, "has ended: stopped"},
	} {
		now = now.Add(step.after)
		err := p.counts(health(step.change), now)
		if err == nil != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Errorf("%s: %v", step.what, err)
		}
	}
	fresh := &probes{c: p.c}
	if err := fresh.counts(health(all), now); err != nil {
		t.Errorf("complete at once: %v", err)
	}
}

func TestProbesAnswer(t *testing.T) {
	c := local(t)
	p := Probes(c)
	for until := time.Now().Add(time.Minute); visit(p, "/readyz").Code != http.StatusOK && time.Now().Before(until); {
		time.Sleep(5 * time.Millisecond) // a probe tells no event
	}
	for target, want := range map[string]int{"/livez": 200, "/readyz": 200, "/any/prefix/readyz?verbose=1": 200, "/": 404, "/healthz": 404} {
		if w := visit(p, target); w.Code != want || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	if w := post(p, nil, func(r *http.Request) { r.URL.Path = "/livez" }); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	if err := c.Node().Stop(); err != nil {
		t.Fatal(err)
	}
	if w := visit(p, "/livez"); w.Code != http.StatusOK {
		t.Errorf("after Stop: %d %s", w.Code, w.Body)
	}
	if w := visit(p, "/readyz"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("after Stop: %d %s", w.Code, w.Body)
	}
	h := Handler(c, Options{Allow: anybody})
	for _, target := range everything {
		if w := visit(h, target); w.Code != http.StatusOK {
			t.Errorf("%s after Stop: %d %s", target, w.Code, w.Body)
		}
	}
}

// grants makes the states of keys from lines such as "k: a b | c d": a and b hold k, c and
// d wait for it.
func grants(lines ...string) *states {
	t := newStates()
	token := 0
	for _, line := range lines {
		key, rest, _ := strings.Cut(line, ": ")
		held, waits, _ := strings.Cut(rest, "|")
		st := locks.Status{Key: strings.TrimSuffix(key, "/**")}
		for _, name := range strings.Fields(held) {
			token++
			st.Holders = append(st.Holders, locks.Holder{Client: name, Ref: name, Node: "m", Tree: strings.HasSuffix(key, "/**"), Mode: locks.ModeExclusive})
		}
		for _, name := range strings.Fields(waits) {
			st.Waiters = append(st.Waiters, locks.Waiter{Client: strings.TrimPrefix(name, "*"), Ref: strings.TrimPrefix(name, "*"), Node: "m", Tree: name[0] == '*'})
		}
		st.Holding, st.Queue = len(st.Holders), len(st.Waiters)
		t.add(st)
	}
	return t
}

func TestTheGraphFollowsWaits(t *testing.T) {
	for _, c := range []struct {
		name  string
		keys  []string
		want  string // the edges
		cycle bool
		text  []string
	}{
		{"nobody", nil, "", false, []string{"Nobody holds the key, and nobody waits"}},
		{"held", []string{"k: a"}, "k→a", false, []string{`"a" on m holds the key`, "Nobody waits."}},
		{"a queue", []string{"k: a | b c"}, "b→k c→k k→a", false, []string{"2 requests wait; the first is of \"b\""}},
		{"the holder waits", []string{"j: c | a x", "k: a | b"}, "b→k k→a a→j j→c", false, []string{`"a" itself waits for "j", which "c" on m holds`}},
		{"a chain", []string{"i: d | c", "j: c | a", "k: a"}, "k→a a→j j→c c→i i→d", false, nil},
		{"two holders", []string{"j: a | b", "k: a b"}, "k→a k→b b→j j→a", false, nil},
		{"a circle", []string{"j: b | a", "k: a | b"}, "b→k k→a a→j j→b", true, []string{"form a circle"}},
		{"a circle further on", []string{"i: c | a", "j: c | d", "l: a | c", "k: a"}, "k→a a→i i→c c→l l→a", true, nil},
		{"its own circle", []string{"k: a | a"}, "a→k k→a", true, nil},
		{"a tree above", []string{"a/**: t", "a/k: | w"}, "w→a/k a/k→a a→t", false, []string{`The lock of "a" may be in the way`, "Nobody holds the key itself."}},
		{"no tree above", []string{"a: t", "a/k: | w"}, "w→a/k", false, nil},
		{"keys below a tree", []string{"k/1: x", "k: | *w"}, "w→k k→k/1 k/1→x", false, []string{`The lock of "k/1" may be in the way`}},
	} {
		key := "k"
		if strings.Contains(c.want, "a/k") || c.name == "no tree above" {
			key = "a/k"
		}
		var doc documents.Why
		explain(&doc, grants(c.keys...), key, time.Now())
		var edges []string
		for _, e := range doc.Edges {
			_, from, _ := strings.Cut(e.From, ":")
			_, to, _ := strings.Cut(e.To, ":")
			edges = append(edges, from+"→"+to)
		}
		if got := strings.Join(edges, " "); got != c.want || doc.Cycle != c.cycle || doc.Cut {
			t.Errorf("%s: %s, cycle %v, cut %v", c.name, got, doc.Cycle, doc.Cut)
		}
		for _, want := range c.text {
			if !strings.Contains(strings.Join(doc.Text, "\n"), want) {
				t.Errorf("%s: no %q in %q", c.name, want, doc.Text)
			}
		}
	}
}

func TestTheGraphIsBounded(t *testing.T) {
	var lines []string
	for i := range 300 {
		lines = append(lines, fmt.Sprintf("k%03d: s%d | s%d", i, i, i+1))
	}
	wide := "w:"
	for i := range 300 {
		wide += fmt.Sprint(" h", i)
	}
	wide += " |"
	for i := range 300 {
		wide += fmt.Sprint(" q", i)
	}
	for key, at := range map[string][]string{"k299": lines, "w": {wide}} {
		var doc documents.Why
		explain(&doc, grants(at...), key, time.Now())
		if !doc.Cut || len(doc.Nodes) > maxNodes || len(doc.Edges) > 4*maxNodes || len(doc.Text) > 4*maxFanOut {
			t.Errorf("%s: %d nodes, %d edges, %d sentences, cut %v", key, len(doc.Nodes), len(doc.Edges), len(doc.Text), doc.Cut)
		}
	}
}

func TestShardsAreRanges(t *testing.T) {
	for want, shards := range map[string][]int{"": nil, "0": {0}, "0-3": {0, 1, 2, 3}, "0,2,4-5,9": {0, 2, 4, 5, 9}} {
		if got := ranges(shards); got != want {
			t.Errorf("%v: %q", shards, got)
		}
	}
}

func TestHiddenCharactersAreShown(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain": "plain", "a b": "a b", `a\b`: `a\\b`, "\u202e": `\u{202e}`, `\u{202e}`: `\\u{202e}`, "\x00": `\u{0}`, "a\nb": `a\u{a}b`,
		"\u00a0": `\u{a0}`, "\u200d": `\u{200d}`, "\ufeff": `\u{feff}`, "\u2028": `\u{2028}`, "\ue000": `\u{e000}`, "ß𝕜": "ß𝕜", "\U000e0041": `\u{e0041}`,
	} {
		if got := visible(in); got != want {
			t.Errorf("%q: %s", in, got)
		}
	}
}
