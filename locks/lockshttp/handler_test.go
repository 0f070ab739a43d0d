package lockshttp

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/locks"
)

// Every document stands under every prefix, stripped or not.
func TestTheHandlerStandsUnderAnyPrefix(t *testing.T) {
	c := local(t)
	h := Handler(c, Options{})
	for _, at := range []string{"/", "/wardmote/", "/a/b%2Fc/"} {
		for name, kind := range map[string]string{
			"": "text/html", "report.json": "application/json", "locks.json": "application/json", "why.json?key=k": "application/json",
			"sessions.json": "application/json", "shards.json": "application/json", "shards.json?name=n": "application/json",
		} {
			w := visit(h, at+name)
			if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) || w.Body.Len() == 0 {
				t.Errorf("%s%s: %d %s", at, name, w.Code, w.Header())
			}
			if got := w.Header(); got.Get("Cache-Control") != "no-store" || got.Get("X-Frame-Options") != "DENY" || got.Get("X-Content-Type-Options") != "nosniff" ||
				!strings.Contains(got.Get("Content-Security-Policy"), "default-src 'none'") || !strings.Contains(got.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
				t.Errorf("%s%s: %s", at, name, got)
			}
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/wardmote", nil)
	http.StripPrefix("/wardmote", h).ServeHTTP(w, r)
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), "<!doctype html>") {
		t.Errorf("the prefix alone: %d", w.Code)
	}
	for path, want := range map[string]int{"/nothing": http.StatusNotFound, "/locks": http.StatusNotFound, "/locks.json/x": http.StatusNotFound} {
		if w := visit(h, path); w.Code != want {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(method, "/locks.json", nil)); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}

// The page needs nothing but itself and its documents, and the policy says so.
func TestThePageNeedsNothingElse(t *testing.T) {
	for _, m := range regexp.MustCompile(`(?i)(src|href|action|url\()\s*=?\s*["']?([^"'> )]*)`).FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(m[2], "//") || strings.HasPrefix(m[2], "/") {
			t.Errorf("the page refers to %s", m[0])
		}
	}
	for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", " onclick=", " style=", "javascript:"} {
		if strings.Contains(string(page), bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if string(page) == string(pageWithActions) {
		t.Error("the two pages are the same")
	}
	for _, tag := range []string{"<script>", "<style>", "</script>", "</style>"} {
		if n := strings.Count(string(page), tag); n != 1 {
			t.Errorf("%d of %s: the policy has one hash", n, tag)
		}
	}
	for _, p := range strings.Split(pagePolicy, "; ") {
		if strings.Contains(p, "unsafe") || strings.Contains(p, "*") {
			t.Errorf("the policy has %s", p)
		}
	}
	w := visit(Handler(local(t), Options{Allow: anybody}), "/?from=proxy")
	if w.Header().Get("Content-Security-Policy") != pagePolicy || w.Body.String() != string(pageWithActions) {
		t.Error("the page has another policy or text")
	}
}

// hostile are keys that a page, a log or a terminal could trip over.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</script><script>alert(1)//`, `'; DROP TABLE locks; --`,
	"\u202egnp.exe", "a\u2066b\u2069", "\u200b", "line\nbreak\r\ttab", "\x01\x1b[31mred\x07", "é\u0301", `back\slash`, `\u{202e}`,
	"\u2028\u2029", "{{constructor.constructor('alert(1)')()}}", "javascript:alert(1)", "&lt;b&gt;", "%3Cscript%3E", " ", "../../etc/passwd", "key?x=1&y=2#z",
	strings.Repeat("ß", 256), "\ufeff", "\U000e0041tag", "𝕜", "__proto__", "constructor",
}

func TestHostileNamesStayText(t *testing.T) {
	c := local(t)
	for i, key := range hostile {
		take(t, another(t, c, key[:min(len(key), 128)]), key)
		_ = i
	}
	h := Handler(c, Options{})
	got := make(map[string]documents.Key)
	for _, k := range document[documents.Locks](t, h, "/locks.json?limit=1000").Keys {
		got[k.Key] = k
	}
	for _, key := range hostile {
		if k, ok := got[key]; !ok || len(k.Holders) != 1 || k.Holders[0].Client != key[:min(len(key), 128)] {
			t.Errorf("%q: %+v", key, k)
		}
		at := "/why.json?" + url.Values{"key": {key}}.Encode()
		doc := document[documents.Why](t, h, at)
		if doc.Key.Key != key || doc.Key.Holding != 1 || len(doc.Text) == 0 {
			t.Errorf("%q: %+v", key, doc)
		}
		for _, s := range doc.Text {
			if strings.IndexFunc(s, func(r rune) bool { return r != '\\' && hidden(r) }) >= 0 {
				t.Errorf("%q: hidden characters in %q", key, s)
			}
		}
		if list := document[documents.Locks](t, h, "/locks.json?"+url.Values{"prefix": {key}}.Encode()); len(list.Keys) == 0 || list.Keys[0].Key != key {
			t.Errorf("prefix %q: %+v", key, list.Keys)
		}
		if raw := visit(h, at).Body.String(); strings.ContainsAny(raw, "<>\u2028\u2029") {
			t.Errorf("%q: the JSON could be taken for something else: %s", key, raw)
		}
	}
}

func TestWrongParametersAreRefused(t *testing.T) {
	c := local(t)
	h := Handler(c, Options{})
	long := strings.Repeat("k", 513)
	for _, target := range []string{
		"/locks.json?limit=0", "/locks.json?limit=1001", "/locks.json?limit=-1", "/locks.json?limit=", "/locks.json?limit=1e2", "/locks.json?limit=%2B5",
		"/locks.json?limit=99999999999999999999", "/locks.json?limit=5&limit=6", "/locks.json?prefix=%ff", "/locks.json?prefix=" + long, "/locks.json?prefix=%00x",
		"/locks.json?after=" + long, "/locks.json?after=%c3%28", "/locks.json?view=", "/locks.json?view=best", "/locks.json?key=k", "/locks.json?%ff=1",
		"/locks.json?prefix=%zz", "/locks.json?a;b", "/locks.json?prefix=" + strings.Repeat("%41", 3000),
		"/why.json", "/why.json?key=", "/why.json?key=%ff", "/why.json?key=" + long, "/why.json?key=%00", "/why.json?key=a&key=b", "/why.json?key=a&view=x",
		"/sessions.json?after=" + strings.Repeat("0", 33), "/sessions.json?limit=x", "/sessions.json?name=x", "/sessions.json?view=x",
		"/shards.json?name=" + strings.Repeat("n", 507), "/shards.json?name=%ff", "/shards.json?key=x", "/shards.json?view=x",
		"/report.json?x=1", "/events?x=1",
	} {
		w := visit(h, target)
		var f documents.Failure
		if w.Code != http.StatusBadRequest {
			t.Errorf("%.60s: %d", target, w.Code)
			continue
		}
		if decode(t, w.Body, &f); f.Code != documents.CodeInput || f.Error == "" || len(f.Error) > 300 {
			t.Errorf("%.60s: %+v", target, f)
		}
	}
}

// Pages of keys show each key once, and every view shows the same.
func TestKeysComeInPages(t *testing.T) {
	c := local(t)
	const all = 700
	var keys []string
	for i := range all {
		keys = append(keys, fmt.Sprintf("k/%04d", i))
	}
	for i := 0; i < all; i += 350 {
		if _, err := c.AcquireAll(t.Context(), keys[i:i+350]); err != nil {
			t.Fatal(err)
		}
	}
	h := Handler(c, Options{})
	for _, view := range []string{viewAuto, viewLocal} {
		for _, limit := range []int{1000, 350, 256, 99} {
			seen, after := 0, ""
			for {
				q := url.Values{"prefix": {"k/"}, "limit": {fmt.Sprint(limit)}, "view": {view}}
				if after != "" {
					q.Set("after", after)
				}
				doc := document[documents.Locks](t, h, "/locks.json?"+q.Encode())
				for _, k := range doc.Keys {
					if k.Key != keys[seen] {
						t.Fatalf("%s: %s at %d", view, k.Key, seen)
					}
					seen++
				}
				if after = doc.After; !doc.More {
					break
				}
			}
			if seen != all {
				t.Errorf("%s, %d a page: %d keys", view, limit, seen)
			}
		}
	}
	if doc := document[documents.Locks](t, h, "/locks.json"); doc.Total == nil || *doc.Total != all || len(doc.Keys) != pageSize || !doc.More {
		t.Errorf("%d keys, more %v, total %v", len(doc.Keys), doc.More, doc.Total)
	}
}

func TestDocumentsTellWhatThereIs(t *testing.T) {
	c := local(t)
	a, b := another(t, c, "a"), another(t, c, "b")
	l := take(t, a, "k", locks.Meta(map[string]string{"job": "7"}))
	take(t, b, "seats", locks.Permits(2, 5))
	wait(t, b, "k")
	h := Handler(c, Options{})
	for _, view := range []string{viewAuto, viewLocal} {
		doc := document[documents.Locks](t, h, "/locks.json?view="+view)
		if len(doc.Keys) != 2 || !doc.Quorum || doc.Node != c.Node().Name() {
			t.Fatalf("%s: %+v", view, doc)
		}
		k := doc.Keys[0]
		if k.Key != "k" || k.Holding != 1 || k.Queue != 1 || len(k.Waiters) != 1 || k.Waiters[0].Client != "b" || k.Waiters[0].Position != 1 || k.Waiters[0].Session == "" {
			t.Errorf("%s: %+v", view, k)
		}
		if o := k.Holders[0]; o.Client != "a" || uint64(o.Token) != uint64(l.Token()) || o.Mode != "exclusive" || o.Acquired == nil || o.Age == nil ||
			o.Left == nil || *o.Left <= 0 || o.Meta["job"] != "7" || o.ClientMeta["of"] != "a" {
			t.Errorf("%s: %+v", view, o)
		}
		if s := doc.Keys[1]; s.Permits != 2 || s.Capacity != 5 || s.Holders[0].Permits != 2 || s.Holders[0].Mode != "permit" {
			t.Errorf("%s: %+v", view, s)
		}
		sessions := document[documents.Sessions](t, h, "/sessions.json?view="+view)
		if len(sessions.Sessions) != 2 || sessions.More {
			t.Errorf("%s: %+v", view, sessions)
		}
		for _, s := range sessions.Sessions {
			if len(s.Ref) != 32 || s.TTL <= 0 || s.Left == nil || s.Keys != 1 || s.Waits != map[string]int{"b": 1}[s.Client] {
				t.Errorf("%s: %+v", view, s)
			}
		}
		first := document[documents.Sessions](t, h, "/sessions.json?limit=1&view="+view)
		second := document[documents.Sessions](t, h, "/sessions.json?limit=1&view="+view+"&after="+first.After)
		if !first.More || second.More || first.Sessions[0].Ref != sessions.Sessions[0].Ref || second.Sessions[0].Ref != sessions.Sessions[1].Ref {
			t.Errorf("%s: pages of sessions: %+v, %+v", view, first, second)
		}
	}
	report := document[locks.Report](t, h, "/report.json")
	if report.Node.Own.Name != c.Node().Name() || !report.Node.Health.Quorum || report.Node.Summary.Keys != 2 {
		t.Errorf("%+v", report)
	}
}

// Readers of all documents and streams, and operators, beside keys that come and go.
func TestManyAtATime(t *testing.T) {
	c := local(t)
	h := Handler(c, Options{Allow: anybody})
	p := Probes(c)
	var all, reading sync.WaitGroup
	var streams []*reader
	for i := range 4 {
		s := openStream(t, h, "")
		streams = append(streams, s)
		reading.Go(func() {
			for ok := true; ok; {
				_, ok = s.next(t)
			}
		})
		all.Go(func() {
			o := another(t, c, fmt.Sprint("worker-", i))
			for n := range 30 {
				l := take(t, o, fmt.Sprint("k", n%5))
				if n%3 == 0 {
					post(h, fields("verb", "break", "key", l.Key(), "typed_key", l.Key(), "token", fmt.Sprint(l.Token()), "typed_token", fmt.Sprint(l.Token())))
				}
				_ = l.Release(t.Context())
			}
		})
		all.Go(func() {
			for n := range 30 {
				for _, target := range []string{"/", "/report.json", "/locks.json", "/locks.json?view=local", "/why.json?key=k1", "/sessions.json", "/shards.json"} {
					if w := visit(h, target); w.Code != http.StatusOK {
						t.Errorf("%s: %d %s", target, w.Code, w.Body)
					}
				}
				visit(p, []string{"/livez", "/readyz"}[n%2])
			}
		})
	}
	all.Wait()
	for _, s := range streams {
		s.close()
	}
	reading.Wait()
}

func FuzzDocuments(f *testing.F) {
	c := local(f)
	take(f, c, "k")
	h := Handler(c, Options{})
	for _, q := range []string{"prefix=a&after=b&limit=5&view=local", "key=%e2%80%ae", "name=orders", "limit=1&limit=2", "a;b=%zz", ""} {
		f.Add("locks.json", q)
		f.Add("why.json", q)
		f.Add("sessions.json", q)
		f.Add("shards.json", q)
	}
	f.Fuzz(func(t *testing.T, name, query string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL = &url.URL{Path: "/" + name, RawQuery: query}
		if strings.HasSuffix(name, "events") {
			return // has no end
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch w.Code {
		case http.StatusOK:
		case http.StatusBadRequest, http.StatusNotFound:
			var f documents.Failure
			if decode(t, w.Body, &f); f.Error == "" || f.Code == "" {
				t.Errorf("%+v", f)
			}
		default:
			t.Errorf("%q?%q: %d %s", name, query, w.Code, w.Body)
		}
	})
}
