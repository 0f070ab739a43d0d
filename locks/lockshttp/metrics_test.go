package lockshttp

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/meter"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

const prefers = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"

// get answers a request for metrics with the given Accept header.
func get(h http.Handler, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/any/metrics", nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// scrapeOf reads metrics in both formats, checks both, and returns the values of
// OpenMetrics.
func scrapeOf(t *testing.T, h http.Handler) *parsed {
	t.Helper()
	plain := get(h, "")
	if _, err := parseMetrics(plain.Body.String(), false); err != nil || plain.Header().Get("Content-Type") != meter.Prometheus {
		t.Fatal(err, plain.Header())
	}
	w := get(h, prefers)
	p, err := parseMetrics(w.Body.String(), true)
	if err != nil || w.Code != 200 || w.Header().Get("Content-Type") != meter.OpenMetrics {
		t.Fatal(err, w.Header())
	}
	return p
}

// value returns the value of a sample, which must be there.
func (p *parsed) value(t *testing.T, name string, labels ...[2]string) float64 {
	t.Helper()
	v, ok := p.samples[name+fmt.Sprint(labels)]
	if !ok {
		t.Fatalf("there is no %s%v", name, labels)
	}
	return v
}

func reason(r string) [2]string { return [2]string{"reason", r} }

func acquire(t *testing.T, c *locks.Client, key string) *locks.Lock {
	t.Helper()
	l, err := c.Acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The answer is in OpenMetrics for readers that prefer it, and else in the format that
// every reader knows.
func TestTheFormatIsTheReadersChoice(t *testing.T) {
	for _, c := range []struct {
		accept string
		open   bool
	}{
		{"", false},
		{"*/*", false},
		{"text/html,application/xhtml+xml,*/*;q=0.8", false},
		{"text/plain", false},
		{"text/plain;version=0.0.4", false},
		{"application/openmetrics-text", true},
		{"application/openmetrics-text; version=1.0.0", true},
		{`Application/OpenMetrics-Text; Version="1.0.0"; charset=utf-8`, true},
		{"application/openmetrics-text;version=2.0.0", false},
		{"application/openmetrics-text;q=0", false},
		{"application/openmetrics-text;q=none", false},
		{"application/openmetrics-text;q=0.2,text/plain;q=0.9", false},
		{"text/plain;q=0.2, application/openmetrics-text;q=0.9", true},
		{"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", true},                                                                               // Prometheus 2
		{"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", true}, // Prometheus 3
		{"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3", false},
		{";;;=,,q=,", false},
	} {
		if open := wantsOpenMetrics([]string{c.accept}); open != c.open {
			t.Errorf("Accept %q: OpenMetrics %v", c.accept, open)
		}
	}
	if !wantsOpenMetrics([]string{"text/plain;q=0.1", "application/openmetrics-text"}) {
		t.Error("a second header does not count")
	}
}

func TestMetricsAreOnlyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 1)
		h := Metrics(c.Client(0), Options{})
		for method, code := range map[string]int{"GET": 200, "HEAD": 200, "POST": 405, "DELETE": 405, "OPTIONS": 405} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, "/metrics", nil))
			if w.Code != code {
				t.Errorf("%s: %d", method, w.Code)
			}
		}
	})
}

// A client counts from its beginning: Metrics may be called late.
func TestMetricsCalledLateKnowTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		a := c.Client(1)
		for range 5 {
			l := acquire(t, a, "job")
			time.Sleep(2 * time.Second)
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		l := acquire(t, a, "job")
		b := c.Client(2)
		if _, err := b.TryAcquire(t.Context(), "job"); err == nil {
			t.Fatal("two holders")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := b.Acquire(ctx, "job"); err == nil {
			t.Fatal("two holders")
		}
		p, q := scrapeOf(t, Metrics(a, Options{})), scrapeOf(t, Metrics(b, Options{}))
		for name, want := range map[string]float64{
			"wardmote_quorum": 1, "wardmote_granting": 1, "wardmote_voters_wanted": 3, "wardmote_voters_present": 3,
			"wardmote_voters_missing": 0, "wardmote_voters_spare": 1, "wardmote_members": 3, "wardmote_conflicts": 0,
			"wardmote_session": 1, "wardmote_sessions_opened_total": 1, "wardmote_lock_wait_seconds_count": 6,
			"wardmote_lock_hold_seconds_count": 5, "wardmote_lock_hold_seconds_sum": 10, "wardmote_lock_held": 1,
			"wardmote_lock_waiting": 0, "wardmote_shards_owned": 0, "wardmote_table_keys": 1, "wardmote_table_holders": 1,
		} {
			if got := p.value(t, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if n := q.value(t, "wardmote_lock_failures_total", reason("held")); n != 1 {
			t.Errorf("%v tries found the key held", n)
		}
		if n := q.value(t, "wardmote_lock_failures_total", reason("ended")); n != 1 {
			t.Errorf("%v waits ended", n)
		}
		if beats := p.value(t, "wardmote_beat_seconds_count"); beats < 2 {
			t.Errorf("%v beats", beats)
		}
		if in, out := p.value(t, "wardmote_network_received_bytes_total"), p.value(t, "wardmote_network_sent_bytes_total"); in < 1000 || out < in/2 || out > 2*in {
			t.Errorf("%v bytes received, %v sent", in, out)
		}
		if n := p.value(t, "wardmote_store_write_seconds_count"); n == 0 {
			t.Error("no write of the store")
		}
		// Some member leads, and that member has committed and confirmed.
		leaders := 0
		for i := range 3 {
			p := scrapeOf(t, Metrics(c.Client(i), Options{}))
			if p.value(t, "wardmote_leader") == 0 {
				continue
			}
			leaders++
			for _, name := range []string{"wardmote_commit_seconds_count", "wardmote_confirm_round_seconds_count", "wardmote_leader_terms_total", "wardmote_elections_total", "wardmote_commit_bytes_total"} {
				if p.value(t, name) == 0 {
					t.Errorf("%s is 0 at the leader", name)
				}
			}
			if n := p.value(t, "wardmote_leader_members"); n != 3 {
				t.Errorf("the leader serves %v members", n)
			}
		}
		if leaders != 1 {
			t.Errorf("%d members lead", leaders)
		}
		_ = l.Release(t.Context())
	})
}

// A scrape answers at once while the quorum is lost, and says so; nothing that counts
// falls with the session, or with the client.
func TestMetricsDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		a := c.Client(0)
		h := Metrics(a, Options{Label: func(key string) string { return key }})
		last := scrapeOf(t, h)
		check := func() *parsed {
			t.Helper()
			began := time.Now()
			p := scrapeOf(t, h)
			if took := time.Since(began); took != 0 { // in a bubble, any wait for another takes time
				t.Errorf("a scrape took %v", took)
			}
			for _, f := range last.families {
				if f.kind == "gauge" {
					continue
				}
				for _, s := range f.samples {
					if now, ok := p.samples[s.series]; !ok || now < s.value {
						t.Errorf("%s fell from %v to %v", s.series, s.value, now)
					}
				}
			}
			last = p
			return p
		}
		l := acquire(t, a, "job")
		ctx := l.Context()
		check()
		c.Isolate(0)
		for range 60 {
			time.Sleep(500 * time.Millisecond)
			check()
		}
		<-ctx.Done()
		p := check()
		for name, want := range map[string]float64{"wardmote_quorum": 0, "wardmote_session": 0, "wardmote_lock_held": 0, "wardmote_voters_spare": 0, "wardmote_quorum_losses_total": 1, "wardmote_session_trust_seconds": 0} {
			if got := p.value(t, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if age := p.value(t, "wardmote_quorum_age_seconds"); age < 10 || age > 30 {
			t.Errorf("no quorum for %v s", age)
		}
		if missing := p.value(t, "wardmote_voters_missing"); missing == 0 {
			t.Error("no voter is missing")
		}
		if n := p.value(t, "wardmote_lock_losses_total", reason("quorum_unreachable")); n != 1 {
			t.Errorf("%v losses", n)
		}
		if n := p.value(t, "wardmote_key_losses_total", [2]string{"key", "job"}); n != 1 {
			t.Errorf("%v losses by key", n)
		}
		if p.value(t, "wardmote_beat_failures_total") == 0 {
			t.Error("no beat failed")
		}
		dead, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := a.Acquire(dead, "job"); err == nil {
			t.Fatal("granted without a quorum")
		}
		if n := check().value(t, "wardmote_lock_failures_total", reason("no_quorum")); n != 1 {
			t.Errorf("%v requests failed without a quorum", n)
		}
		c.Heal()
		l = acquire(t, a, "job")
		p = check()
		if n := p.value(t, "wardmote_sessions_opened_total"); n < 2 {
			t.Errorf("%v sessions", n)
		}
		if p.value(t, "wardmote_quorum") != 1 || p.value(t, "wardmote_lock_held") != 1 {
			t.Error("the outage is over, and not in the metrics")
		}
		if age := p.value(t, "wardmote_quorum_age_seconds"); age > 60 {
			t.Errorf("a quorum for %v s, right after the outage", age)
		}
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		p = check()
		if p.value(t, "wardmote_session") != 0 || p.value(t, "wardmote_lock_held") != 0 || p.value(t, "wardmote_key_held", [2]string{"key", "job"}) != 0 {
			t.Error("a closed client holds")
		}
		_ = l
	})
}

// Readers and users of the locks run side by side.
func TestMetricsAreReadWhileCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		a := c.Client(0)
		hs := []http.Handler{Metrics(a, Options{}), Metrics(a, Options{Label: func(key string) string { return key }})}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := range 50 {
					l, err := a.Acquire(t.Context(), fmt.Sprint("key-", (i+n)%7))
					if err != nil {
						t.Error(err)
						return
					}
					_ = l.Release(t.Context())
				}
			})
			wg.Go(func() {
				for range 20 {
					w := get(hs[i%2], prefers)
					if _, err := parseMetrics(w.Body.String(), true); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		p := scrapeOf(t, hs[1])
		if n := p.value(t, "wardmote_lock_hold_seconds_count"); n != 200 {
			t.Errorf("%v holds", n)
		}
		sum := 0.0
		for i := range 7 {
			sum += p.value(t, "wardmote_key_wait_seconds_count", [2]string{"key", fmt.Sprint("key-", i)})
		}
		if sum != 200 {
			t.Errorf("%v waits by key", sum)
		}
	})
}

// Labels that a user's function makes of anything stay labels.
func TestStrangeLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 1)
		a := c.Client(0)
		values := map[string]string{
			"quote": "a\"b", "line": "a\nb", "backslash": `a\b\n\"`, "bad": "a\xffb", "cut": strings.Repeat("x", 63) + "ä" + "rest",
			"empty": "", "brace": `}{,="`, "zero": "\x00", "escape": `\`,
		}
		h := Metrics(a, Options{Label: func(key string) string { return values[key] }})
		for key := range values {
			if err := acquire(t, a, key).Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		p := scrapeOf(t, h)
		values["bad"], values["cut"], values["empty"] = "a\uFFFDb", strings.Repeat("x", 63), "other"
		for key, value := range values {
			if n := p.value(t, "wardmote_key_wait_seconds_count", [2]string{"key", value}); n != 1 {
				t.Errorf("%s: %v waits", key, n)
			}
		}
	})
}

// Without Label no metric has a name of a key, a client or a member.
func TestNoNameIsALabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		a := locks.New(c.Node(0), locks.Options{Name: "client-name", Meta: map[string]string{"meta-name": "x"}})
		defer a.Close(context.WithoutCancel(t.Context()))
		acquire(t, a, "key-name")
		text := get(Metrics(a, Options{}), prefers).Body.String()
		for _, name := range []string{"client-name", "key-name", "meta-name", c.Node(0).Name() + `"`, c.Node(1).Name() + `"`, c.Node(0).Addr()} {
			if strings.Contains(text, name) {
				t.Errorf("the metrics have %q", name)
			}
		}
		allowed := []string{"version", "kind", "reason", "le"}
		for _, label := range regexp.MustCompile(`[{,]([a-z_]+)="`).FindAllStringSubmatch(text, -1) {
			if !slices.Contains(allowed, label[1]) {
				t.Errorf("there is a label %s", label[1])
			}
		}
	})
}

// A million keys cost the memory and the answer of a hundred.
func TestAnAnswerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 1)
		a := c.Client(0)
		h := Metrics(a, Options{Label: func(key string) string { return key }})
		long := strings.Repeat("\x01\"\n", 60)
		for i := range 20_000 {
			for _, s := range meter.OfClient(a).Series(fmt.Sprint(i, long)) {
				s.Waits.Observe(time.Duration(i) * time.Hour)
				s.Granted()
			}
		}
		w := get(h, prefers)
		p, err := parseMetrics(w.Body.String(), true)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(p.families["wardmote_key_held"].samples); n != meter.MaxLabels+1 {
			t.Errorf("%d labels", n)
		}
		if n := p.value(t, "wardmote_key_held", [2]string{"key", "other"}); n != 20_000-meter.MaxLabels {
			t.Errorf("%v others", n)
		}
		t.Logf("%d KiB", w.Body.Len()>>10)
		if w.Body.Len() > maxAnswer {
			t.Errorf("%d bytes", w.Body.Len())
		}
	})
}

// maxAnswer bounds an answer with the longest labels, each byte of them escaped.
const maxAnswer = 1 << 20

// Every reason of package locks has its label.
func TestEachReasonHasALabel(t *testing.T) {
	for r := locks.Reason(1); r < meter.MaxReasons; r++ {
		known := !strings.HasPrefix(r.String(), "reason ")
		if _, ok := reasonLabels[r]; ok != known {
			t.Errorf("%v: has a label: %v", r, ok)
		}
	}
	if known := locks.Reason(meter.MaxReasons).String(); !strings.HasPrefix(known, "reason ") {
		t.Errorf("there is no counter for %q", known)
	}
}

// docs/metrics.md has a row for each metric, in the order of an answer. The rows are
// printed if they differ.
func TestEachMetricIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, have []string
	for _, f := range families {
		want = append(want, fmt.Sprintf("| `%s` | %s | %s |", f.Name, f.Kind, f.Help))
	}
	for line := range strings.Lines(string(doc)) {
		if strings.HasPrefix(line, "| `wardmote_") {
			have = append(have, strings.TrimSpace(line))
		}
	}
	if !slices.Equal(want, have) {
		t.Errorf("docs/metrics.md is not in step; these are the rows:\n%s", strings.Join(want, "\n"))
	}
	names := make(map[string]bool)
	for _, f := range families {
		if names[f.Name] {
			t.Errorf("%s is there twice", f.Name)
		}
		names[f.Name] = true
	}
}

// The rules and their tests name only metrics that exist, and every rule says what to do.
func TestAlertsNameMetricsThatExist(t *testing.T) {
	exist := make(map[string]bool)
	for _, f := range families {
		exist[f.Name] = true
		if f.Kind == meter.KindHistogram {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				exist[f.Name+suffix] = true
			}
		}
	}
	used := make(map[string]bool)
	for _, file := range []string{"wardmote.rules.yml", "wardmote.test.yml"} {
		text, err := os.ReadFile("../../docs/alerts/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bwardmote_[a-z_]+`).FindAllString(string(text), -1) {
			used[name] = true
			if !exist[name] {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
	}
	if len(used) < 10 {
		t.Errorf("the rules use %v", slices.Collect(maps.Keys(used)))
	}
	rules, err := os.ReadFile("../../docs/alerts/wardmote.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("../../docs/alerts/wardmote.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for i, rule := range strings.Split(string(rules), "- alert: ") {
		name, rest, _ := strings.Cut(rule, "\n")
		if i == 0 {
			continue
		}
		for _, part := range []string{"severity: ", "summary: ", "action: "} {
			if !strings.Contains(rest, part) {
				t.Errorf("alert %s has no %s", name, part)
			}
		}
		if n := strings.Count(string(tests), "alertname: "+name+"\n"); n < 2 {
			t.Errorf("alert %s has %d tests, and needs one in which it fires and one in which it does not", name, n)
		}
	}
}

// With WARDMOTE_SCRAPE the metrics of a live cluster are written to that file, in the
// format of Prometheus, for promtool.
func TestScrapeOfALiveCluster(t *testing.T) {
	path := os.Getenv("WARDMOTE_SCRAPE")
	if path == "" {
		t.Skip("WARDMOTE_SCRAPE is not set")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var nodes []*cluster.Node
	var join []string
	for i := range 3 {
		n, err := cluster.Start(ctx, cluster.Config{Name: fmt.Sprint("m", i), Bind: "127.0.0.1:0", Join: join, InitialSize: 3, TTL: time.Second, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Stop()
		nodes, join = append(nodes, n), append(join, n.Addr())
	}
	var text []byte
	for _, n := range nodes {
		c := locks.New(n, locks.Options{})
		defer c.Close(context.WithoutCancel(ctx))
		server := httptest.NewServer(Metrics(c, Options{Label: func(key string) string { return key }}))
		defer server.Close()
		for i := range 3 {
			if err := acquire(t, c, fmt.Sprint("job \"", i, "\"\n")).Release(ctx); err != nil {
				t.Fatal(err)
			}
		}
		w := get(Metrics(c, Options{Label: strings.Clone}), "")
		if text == nil || strings.Contains(w.Body.String(), "wardmote_leader 1\n") {
			text = w.Body.Bytes()
		}
		for _, accept := range []string{"", prefers} {
			if _, err := parseMetrics(get(server.Config.Handler, accept).Body.String(), accept != ""); err != nil {
				t.Error(err)
			}
		}
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// A write that hangs holds up no scrape, and is seen in it.
func TestMetricsWhileADiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		leader := c.Leader()
		a := c.Client(leader)
		h := Metrics(a, Options{})
		acquire(t, a, "before")
		c.HangStore(leader)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		stalled := 0.0
		for range 20 {
			go func() { _, _ = a.Acquire(ctx, "during") }()
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			p := scrapeOf(t, h)
			if took := time.Since(began); took != 0 {
				t.Fatalf("a scrape took %v", took)
			}
			if s, ok := p.samples["wardmote_store_stalled_seconds[]"]; ok {
				stalled = max(stalled, s)
			}
		}
		if stalled < 0.5 {
			t.Errorf("stalled for %v s at most", stalled)
		}
		c.HealStore(leader)
	})
}

// A thin member has no raft, and an ended node still answers.
func TestMetricsOfAThinMemberAndOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 4, lockstest.Config(func(i int, cfg *cluster.Config) { cfg.Voting.Thin = i == 3 }))
		a := c.Client(3)
		l := acquire(t, a, "job")
		h := Metrics(a, Options{})
		p := scrapeOf(t, h)
		if p.families["wardmote_raft_term"] != nil || p.value(t, "wardmote_voter") != 0 || p.value(t, "wardmote_lock_held") != 1 {
			t.Error("a thin member has a raft, or holds nothing")
		}
		if p.value(t, "wardmote_voters_wanted") != 3 || p.value(t, "wardmote_connections", [2]string{"kind", "raft"}) != 0 {
			t.Error("a thin member knows no voters, or replicates")
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Node(3).Stop(); err != nil {
			t.Fatal(err)
		}
		p = scrapeOf(t, h)
		if p.value(t, "wardmote_quorum") != 0 || p.value(t, "wardmote_lock_hold_seconds_count") != 1 {
			t.Error("the metrics of an ended node")
		}
	})
}

// Shards are counted as shards, and as no locks.
func TestShardsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		labels := 0
		h := []http.Handler{
			Metrics(c.Client(0), Options{Label: func(string) string { labels++; return "x" }}),
			Metrics(c.Client(1), Options{}),
		}
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		work := func(ctx context.Context, _ int, _ *locks.Lock) error { <-ctx.Done(); return nil }
		wg.Go(func() { _ = c.Client(0).Spread(ctx, "s", 8, work) })
		time.Sleep(time.Minute)
		if n := scrapeOf(t, h[0]).value(t, "wardmote_shards_owned"); n != 8 {
			t.Errorf("%v shards at the only caller", n)
		}
		wg.Go(func() { _ = c.Client(1).Spread(ctx, "s", 8, work) })
		time.Sleep(time.Minute)
		a, b := scrapeOf(t, h[0]), scrapeOf(t, h[1])
		for name, want := range map[string][2]float64{
			"wardmote_shards_owned": {4, 4}, "wardmote_shards_gained_total": {8, 4}, "wardmote_shards_ended_total": {4, 0},
			"wardmote_lock_held": {0, 0}, "wardmote_lock_wait_seconds_count": {0, 0}, "wardmote_table_shards": {8, 8}, "wardmote_table_groups": {1, 1},
		} {
			if got := [2]float64{a.value(t, name), b.value(t, name)}; got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		cancel()
		wg.Wait()
		if n := scrapeOf(t, h[0]).value(t, "wardmote_shards_owned"); n != 0 || labels != 0 {
			t.Errorf("%v shards in the end, %d labels", n, labels)
		}
	})
}

// A guard's refusals are counted where the program says so.
func TestRefusalsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 1)
		a := c.Client(0)
		g := &fence.Guard{Refused: CountRefusals(a)}
		for _, token := range []fence.Token{5, 4, 0, 6, 5} {
			_ = g.Claim(token)
		}
		if n := scrapeOf(t, Metrics(a, Options{})).value(t, "wardmote_tokens_refused_total"); n != 3 {
			t.Errorf("%v refusals", n)
		}
	})
}
