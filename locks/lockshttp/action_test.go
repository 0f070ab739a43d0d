package lockshttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// outcome reads the answer to an action.
func outcome(t testing.TB, w *httptest.ResponseRecorder) (doc documents.Action) {
	t.Helper()
	decode(t, w.Body, &doc)
	if doc.Error == "" && doc.Code != "" || doc.Error != "" && doc.Code == "" || w.Code == http.StatusOK != (doc.Outcome == documents.Done) {
		t.Errorf("%d %+v", w.Code, doc)
	}
	return doc
}

// breaking is the form that breaks a lock.
func breaking(l *locks.Lock) url.Values {
	token := fmt.Sprint(l.Token())
	return fields("verb", "break", "key", l.Key(), "typed_key", l.Key(), "token", token, "typed_token", token)
}

func with(form url.Values, pairs ...string) url.Values {
	changed := make(url.Values)
	for name, v := range form {
		changed[name] = slices.Clone(v)
	}
	for i := 0; i < len(pairs); i += 2 {
		changed.Set(pairs[i], pairs[i+1])
	}
	return changed
}

func without(form url.Values, field string) url.Values {
	changed := with(form)
	changed.Del(field)
	return changed
}

// Every refusal comes before anything is changed, and says why.
func TestWrongActionsAreRefused(t *testing.T) {
	c := local(t)
	l := take(t, c, "k")
	other := take(t, another(t, c, "name\u202e"), "other")
	seats := take(t, c, "seats", locks.Permits(1, 3))
	h := Handler(c, Options{Allow: anybody})
	var ref string
	for _, s := range document[documents.Sessions](t, h, "/sessions.json").Sessions {
		if s.Client == "name\u202e" {
			ref = s.Ref
		}
	}
	good := breaking(l)
	ask := with(good, "verb", "ask")
	end := fields("verb", "end-session", "key", ref, "typed_key", `name\u{202e}`, "typed_token", ref[:8])
	capacity := fields("verb", "set-capacity", "key", "seats", "typed_key", "seats", "from", "0", "of", "2")
	resize := fields("verb", "resize", "key", "n", "typed_key", "n", "from", "4", "to", "8")
	recover := fields("verb", "recover", "key", c.Node().Name(), "typed_key", c.Node().Name(), "gone", "lost")
	long := strings.Repeat("k", 513)
	for _, bad := range []struct {
		form   url.Values
		status int
		code   string
	}{
		{nil, 400, documents.CodeInput},
		{without(good, "verb"), 400, documents.CodeInput},
		{with(good, "verb", "Break"), 400, documents.CodeInput},
		{with(good, "verb", "destroy"), 400, documents.CodeInput},
		{with(good, "extra", "x"), 400, documents.CodeInput},
		{with(good, "of", "3"), 400, documents.CodeInput},
		{url.Values{"verb": {"break", "ask"}, "key": {"k"}}, 400, documents.CodeInput},
		{url.Values{"verb": {"break"}, "key": {"k", "other"}, "typed_key": {"k"}}, 400, documents.CodeInput},
		{without(good, "key"), 400, documents.CodeInput},
		{with(good, "key", ""), 400, documents.CodeInput},
		{with(good, "key", "\xff"), 400, documents.CodeInput},
		{with(good, "key", long, "typed_key", long), 400, documents.CodeInput},
		{with(good, "key", "\x00k", "typed_key", "\x00k"), 400, documents.CodeInput},
		{with(good, "typed_key", "\xff"), 400, documents.CodeInput},
		{without(good, "token"), 400, documents.CodeInput},
		{with(good, "token", "0"), 400, documents.CodeInput},
		{with(good, "token", "-1"), 400, documents.CodeInput},
		{with(good, "token", "+1"), 400, documents.CodeInput},
		{with(good, "token", "0x10"), 400, documents.CodeInput},
		{with(good, "token", strings.Repeat("9", 21)), 400, documents.CodeInput},
		{with(good, "timeout", "1"), 400, documents.CodeInput},
		{with(good, "timeout", "1ms"), 400, documents.CodeInput},
		{with(good, "timeout", "-5s"), 400, documents.CodeInput},
		{with(good, "timeout", "1h"), 400, documents.CodeInput},

		{without(good, "typed_key"), 409, documents.CodeMismatch},
		{with(good, "typed_key", "K"), 409, documents.CodeMismatch},
		{with(good, "typed_key", "k "), 409, documents.CodeMismatch},
		{with(good, "typed_key", long), 409, documents.CodeMismatch},
		{without(good, "typed_token"), 409, documents.CodeMismatch},
		{with(good, "typed_token", "1"), 409, documents.CodeMismatch},
		{with(good, "typed_token", " "+good.Get("token")), 409, documents.CodeMismatch},
		{with(good, "token", "1", "typed_token", "1"), 409, documents.CodeMismatch}, // of an earlier holder
		{with(good, "token", fmt.Sprint(other.Token()), "typed_token", fmt.Sprint(other.Token())), 409, documents.CodeMismatch},
		{with(good, "key", "other"), 409, documents.CodeMismatch}, // typed is another key than shown
		{with(good, "key", "free", "typed_key", "free"), 409, documents.CodeNotHeld},

		{with(ask, "typed_token", "1"), 409, documents.CodeMismatch},
		{with(ask, "token", "1", "typed_token", "1"), 409, documents.CodeMismatch},
		{with(ask, "typed_key", "x"), 409, documents.CodeMismatch},
		{with(ask, "key", "free", "typed_key", "free"), 409, documents.CodeNotHeld},

		{with(end, "key", "k"), 400, documents.CodeInput},
		{with(end, "key", strings.ToUpper(ref)), 400, documents.CodeInput},
		{with(end, "token", "5"), 400, documents.CodeInput},
		{with(end, "typed_token", ref[:7]), 409, documents.CodeMismatch},
		{with(end, "typed_token", "00000000"), 409, documents.CodeMismatch},
		{with(end, "typed_token", ref+"0"), 409, documents.CodeMismatch},
		{with(end, "typed_key", "name"), 409, documents.CodeMismatch},
		{with(end, "key", strings.Repeat("0", 32), "typed_token", "00000000"), 409, documents.CodeNoSession},

		{without(capacity, "of"), 400, documents.CodeInput},
		{with(capacity, "of", "-1"), 400, documents.CodeInput},
		{with(capacity, "of", "10001"), 400, documents.CodeInput},
		{with(capacity, "of", "two"), 400, documents.CodeInput},
		{with(capacity, "typed_key", "seat"), 409, documents.CodeMismatch},
		{without(capacity, "from"), 400, documents.CodeInput},
		{with(capacity, "token", "9"), 400, documents.CodeInput},
		{with(capacity, "from", "3"), 409, documents.CodeMismatch}, // the requests' number is not set
		{with(capacity, "key", "free", "typed_key", "free", "from", "1"), 409, documents.CodeMismatch},

		{without(resize, "from"), 400, documents.CodeInput},
		{with(resize, "to", "0"), 400, documents.CodeInput},
		{with(resize, "to", "16385"), 400, documents.CodeInput},
		{with(resize, "from", "4.0"), 400, documents.CodeInput},
		{with(resize, "key", long, "typed_key", long), 400, documents.CodeInput},
		{with(resize, "typed_key", "m"), 409, documents.CodeMismatch},
		{resize, 409, documents.CodeMismatch}, // no such name

		{with(recover, "key", "someone", "typed_key", "someone"), 409, documents.CodeMismatch},
		{with(recover, "typed_key", ""), 409, documents.CodeMismatch},
		{with(recover, "gone", "not a name"), 400, documents.CodeInput},
		{url.Values{"verb": {"recover"}, "key": {c.Node().Name()}, "typed_key": {c.Node().Name()}, "gone": make([]string, maxGone+1)}, 400, documents.CodeInput},
	} {
		w := post(h, bad.form)
		doc := outcome(t, w)
		if w.Code != bad.status || doc.Code != bad.code || doc.Outcome != documents.Refused || doc.Text != "Nothing was changed." {
			t.Errorf("%.200s: %d %+v", bad.form.Encode(), w.Code, doc)
		}
	}
	if l.Err() != nil || other.Err() != nil || seats.Err() != nil {
		t.Errorf("%v, %v, %v", l.Err(), other.Err(), seats.Err())
	}
	select {
	case <-l.Asked():
		t.Error("the holder was asked")
	default:
	}
	if st, err := c.Inspect(t.Context(), "seats"); err != nil || st.CapacitySet {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestActionsAreCarriedOut(t *testing.T) {
	c := local(t)
	o := another(t, c, "b\u200b")
	h := Handler(c, Options{Allow: anybody})
	do := func(form url.Values) {
		t.Helper()
		w := post(h, form)
		if doc := outcome(t, w); doc.Outcome != documents.Done || doc.Text == "" {
			t.Errorf("%s: %d %+v", form.Encode(), w.Code, doc)
		}
	}
	l := take(t, o, "k\u202e\\")
	do(with(breaking(l), "verb", "ask"))
	<-l.Asked()
	if l.Err() != nil {
		t.Error(l.Err())
	}
	// The holder of the token is asked, and no other one.
	mine, others := take(t, c, "shared", locks.Shared()), take(t, o, "shared", locks.Shared())
	do(with(breaking(others), "verb", "ask"))
	<-others.Asked()
	select {
	case <-mine.Asked():
		t.Error("another holder was asked")
	default:
	}
	// The key is typed as the page shows it.
	do(with(breaking(l), "typed_key", `k\u{202e}\\`))
	if lost := new(locks.LostError); !errors.As(l.Err(), &lost) || lost.Reason != locks.Broken {
		t.Errorf("%v", l.Err())
	}
	m := take(t, o, "m")
	for _, s := range document[documents.Sessions](t, h, "/sessions.json").Sessions {
		if s.Client == "b\u200b" {
			do(fields("verb", "end-session", "key", s.Ref, "typed_key", `b\u{200b}`, "typed_token", s.Ref[:12], "timeout", "1m"))
		}
	}
	if !errors.Is(m.Err(), locks.ErrSessionEnded) {
		t.Errorf("%v", m.Err())
	}
	do(fields("verb", "set-capacity", "key", "seats", "typed_key", "seats", "from", "0", "of", "3"))
	take(t, c, "seats", locks.Permits(1, 0))
	do(fields("verb", "set-capacity", "key", "seats", "typed_key", "seats", "from", "3", "of", "7"))
	if st, err := c.Inspect(t.Context(), "seats"); err != nil || st.Capacity != 7 || !st.CapacitySet {
		t.Errorf("%+v, %v", st, err)
	}
	spread := make(chan error, 1)
	begun := make(chan struct{}, 100)
	go func() {
		spread <- o.Spread(context.Background(), "n", 4, func(ctx context.Context, _ int, _ *locks.Lock) error {
			begun <- struct{}{}
			<-ctx.Done()
			return nil
		})
	}()
	for range 4 {
		<-begun
	}
	doc := document[documents.Shards](t, h, "/shards.json")
	if len(doc.Groups) != 1 || doc.Groups[0].Name != "n" || doc.Groups[0].Shards != 4 || len(doc.Groups[0].Owners) != 1 || doc.Groups[0].Owners[0].Shards != "0-3" || doc.Groups[0].Orphans != "" {
		t.Errorf("%+v", doc)
	}
	do(fields("verb", "resize", "key", "n", "typed_key", "n", "from", "4", "to", "8", "timeout", "1m"))
	if err := <-spread; !errors.Is(err, locks.ErrShards) {
		t.Error(err)
	}
}

// Allow decides, and nobody decides without it.
func TestAllowDecides(t *testing.T) {
	c := local(t)
	l := take(t, c, "k")
	if w := post(Handler(c, Options{}), breaking(l)); w.Code != http.StatusForbidden {
		t.Errorf("without Allow: %d", w.Code)
	}
	if w := post(Handler(c, Options{}), fields("verb", "nonsense")); w.Code != http.StatusForbidden {
		t.Errorf("nonsense without Allow: %d", w.Code)
	}
	type question struct {
		v   cluster.Verb
		key string
	}
	var asked []question
	h := Handler(c, Options{Allow: func(r *http.Request, v cluster.Verb, key string) error {
		if asked = append(asked, question{v, key}); r.Header.Get("Authorization") != "operator" {
			return errors.New("not today")
		}
		return nil
	}})
	ref := document[documents.Sessions](t, h, "/sessions.json").Sessions[0].Ref
	name := c.Node().Name()
	for _, form := range []url.Values{
		breaking(l), with(breaking(l), "verb", "ask"),
		fields("verb", "end-session", "key", ref, "typed_key", name, "typed_token", ref),
		fields("verb", "set-capacity", "key", "k", "typed_key", "k", "from", "0", "of", "3"),
		fields("verb", "resize", "key", "n", "typed_key", "n", "from", "4", "to", "8"),
		fields("verb", "recover", "key", name, "typed_key", name),
	} {
		w := post(h, form)
		if doc := outcome(t, w); w.Code != http.StatusForbidden || doc.Code != documents.CodeForbidden || !strings.Contains(doc.Error, "not today") {
			t.Errorf("%s: %d %+v", form.Get("verb"), w.Code, doc)
		}
	}
	if want := []question{{cluster.VerbBreak, "k"}, {cluster.VerbAsk, "k"}, {cluster.VerbEndSession, ref}, {cluster.VerbSetCapacity, "k"}, {cluster.VerbResize, "n"}, {cluster.VerbRecover, ""}}; !slices.Equal(asked, want) {
		t.Errorf("%v", asked)
	}
	if l.Err() != nil {
		t.Error(l.Err())
	}
	if w := post(h, breaking(l), func(r *http.Request) { r.Header.Set("Authorization", "operator") }); w.Code != http.StatusOK {
		t.Errorf("the operator: %d %s", w.Code, w.Body)
	}
}

// What a browser sends for a page of another site changes nothing, and a request that
// cannot be an action is told so.
func TestRequestsThatAreNoActions(t *testing.T) {
	c := local(t)
	l := take(t, c, "k")
	h := Handler(c, Options{Allow: anybody})
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			for i := 0; i < len(pairs); i += 2 {
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
	}
	for _, bad := range []struct {
		change func(*http.Request)
		status int
	}{
		{header("Sec-Fetch-Site", "cross-site"), 403},
		{header("Sec-Fetch-Site", "same-site"), 403},
		{header("Sec-Fetch-Site", "cross-site", "Origin", "http://example.com"), 403}, // even with our own origin
		{header("Origin", "http://evil.example"), 403},
		{header("Origin", "null"), 403},
		{header("Content-Type", "text/plain"), 415},
		{header("Content-Type", "application/json"), 415},
		{header("Content-Type", "multipart/form-data; boundary=x"), 415},
		{header("Content-Type", ""), 415},
		{func(r *http.Request) { r.URL.RawQuery = "verb=break" }, 400},
		{func(r *http.Request) { r.Method = http.MethodGet }, 405},
		{func(r *http.Request) { r.Method = http.MethodPut }, 405},
	} {
		w := post(h, breaking(l), bad.change)
		if w.Code != bad.status || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%d, not %d: %s", w.Code, bad.status, w.Body)
		}
	}
	if w := post(h, with(breaking(l), "typed_key", strings.Repeat("x", maxForm))); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a large form: %d", w.Code)
	}
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	if w := post(h, breaking(l), header("Sec-Fetch-Site", "same-origin", "Origin", "http://example.com")); w.Code != http.StatusOK {
		t.Errorf("from the page itself: %d %s", w.Code, w.Body)
	}
}

// An action without a quorum ends in time, and says what is certain.
func TestAnActionEndsInTime(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cl *lockstest.Cluster) {
		c := cl.Client(1)
		l := take(t, cl.Client(2), "k")
		h := Handler(c, Options{Allow: anybody})
		cl.Freeze(2) // the holder cannot answer: the break waits for its trust to end
		began := time.Now()
		doc := outcome(t, post(h, with(breaking(l), "timeout", "200ms")))
		if d := time.Since(began); doc.Outcome != documents.Uncertain || doc.Code != documents.CodeTimeout || !strings.Contains(doc.Text, "continues by itself") || d > 300*time.Millisecond {
			t.Errorf("after %v: %+v", d, doc)
		}
		if doc := outcome(t, post(h, with(breaking(l), "timeout", "1m"))); doc.Outcome != documents.Done && doc.Code != documents.CodeNotHeld {
			t.Errorf("%+v", doc)
		}
		cl.Thaw(2)
		m := take(t, c, "m")
		cl.Isolate(1)
		time.Sleep(time.Minute)
		began = time.Now()
		doc = outcome(t, post(h, with(breaking(m), "timeout", "2s")))
		if d := time.Since(began); doc.Outcome != documents.Refused || doc.Code != documents.CodeNoQuorum || d > 2100*time.Millisecond {
			t.Errorf("after %v: %+v", d, doc)
		}
		cl.Heal()
	})
}

func TestTooManyActionsAreRefused(t *testing.T) {
	c := local(t)
	l := take(t, c, "k")
	h := Handler(c, Options{Allow: anybody}).(*handler)
	for range maxActions {
		h.acting <- struct{}{}
	}
	w := post(h, breaking(l))
	if doc := outcome(t, w); w.Code != http.StatusServiceUnavailable || doc.Code != documents.CodeBusy || l.Err() != nil {
		t.Errorf("%d %+v, %v", w.Code, doc, l.Err())
	}
}

// Security.Authorize of the cluster is asked besides.
func TestAuthorizeIsAskedBesides(t *testing.T) {
	deny := lockstest.Config(func(_ int, cfg *cluster.Config) {
		cfg.Security.Authorize = func(cluster.Member, cluster.Verb, string) error { return errors.New("not by this member") }
	})
	bubbleWith(t, 1, func(t *testing.T, cl *lockstest.Cluster) {
		c := cl.Client(0)
		l := take(t, c, "k")
		w := post(Handler(c, Options{Allow: anybody}), breaking(l))
		if doc := outcome(t, w); w.Code != http.StatusForbidden || doc.Code != documents.CodeDenied || doc.Outcome != documents.Refused || l.Err() != nil {
			t.Errorf("%d %+v, %v", w.Code, doc, l.Err())
		}
	}, deny)
}

func FuzzActions(f *testing.F) {
	c := local(f)
	l := take(f, c, "k")
	f.Add(breaking(l).Encode())
	f.Add("verb=recover&key=x&gone=a&gone=b")
	f.Add("verb=set-capacity&key=k&from=0&of=3&typed_key=k")
	f.Add("verb=resize&key=k&from=1&to=2&typed_key=k&timeout=100ms")
	f.Add("verb=end-session&key=00000000000000000000000000000000&typed_token=00000000")
	f.Add("a;b=%zz&verb")
	refused := Handler(c, Options{Allow: func(*http.Request, cluster.Verb, string) error { return errors.New("nobody") }})
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest(http.MethodPost, "/action", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		refused.ServeHTTP(w, r)
		doc := outcome(t, w)
		if doc.Outcome != documents.Refused || w.Code < 400 || w.Code >= 500 || l.Err() != nil {
			t.Errorf("%q: %d %+v, %v", body, w.Code, doc, l.Err())
		}
	})
}
