package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockshttp"
)

// alone starts a cluster of this process, and serves its page under the prefix.
func alone(t *testing.T) (c *locks.Client, page string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c, err := wardmote.Local(ctx)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(routes(c))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		cancel()
		<-c.Node().Done()
		_ = c.Node().Stop()
	})
	return c, server.URL + prefix + "/"
}

func take(t *testing.T, c *locks.Client, key string) *locks.Lock {
	t.Helper()
	l, err := c.Acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The page stands behind a proxy with another prefix, and without a slash at its end.
func TestBehindAProxy(t *testing.T) {
	c, page := alone(t)
	take(t, c, "k")
	target, err := url.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.URL.Path = strings.TrimSuffix(target.Path, "/") + strings.TrimPrefix(r.In.URL.Path, "/outer/deep")
	}, FlushInterval: -1}
	server := httptest.NewServer(proxy)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	browser := startChromium(t)
	for _, at := range []string{server.URL + "/outer/deep/", page} {
		p := browser.newTab(t, 1200, 900)
		p.open(at)
		p.wait("document.querySelector('#key-rows').innerText.includes('k')", "the keys are listed at "+at)
		p.wait("document.querySelector('#stream').textContent === 'live'", "events are live at "+at)
		p.click("document.querySelector('#key-rows button')")
		p.click("[...document.querySelectorAll('#why-holders button')].find(b => b.textContent === 'Ask…')")
		typed(p, "k", p.text("document.querySelector('#act-token').textContent"))
		p.wait("document.querySelector('#outcome').textContent.startsWith('Done. ')", "the holder is asked at "+at)
		p.calm()
	}
	// A program may serve the prefix without a slash.
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.StripPrefix("/bare", lockshttp.Handler(c, lockshttp.Options{})).ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		bare.CloseClientConnections()
		bare.Close()
	})
	p := browser.newTab(t, 1200, 900)
	p.open(bare.URL + "/bare")
	p.wait("document.querySelector('#key-rows').innerText.includes('k')", "the keys are listed without a slash")
	p.calm()
}

// Everything is done with the keyboard: the skip link, the way to a key, its actions, the
// dialog, and the way back.
func TestByKeyboard(t *testing.T) {
	c, page := alone(t)
	l := take(t, c, "only/key")
	browser := startChromium(t)
	p := browser.newTab(t, 1200, 900)
	p.open(page)
	p.wait("document.querySelector('#key-rows button')", "the keys are listed")
	p.press("Tab", 0)
	if s := p.text("document.activeElement.textContent"); s != "Skip to the content" {
		t.Errorf("the first stop is %q", s)
	}
	// tabTo presses Tab until an element has the focus, which is visible all the way.
	tabTo := func(condition string) {
		t.Helper()
		for range 80 {
			var there bool
			if err := p.eval("!!("+condition+")", &there); err != nil {
				t.Fatal(err)
			}
			if there {
				return
			}
			p.press("Tab", 0)
			if s := p.text("(e => e === document.body ? '' : getComputedStyle(e).outlineStyle)(document.activeElement)"); s == "none" {
				t.Errorf("the focus on %s is not visible", p.text("document.activeElement.outerHTML.slice(0, 100)"))
			}
		}
		t.Fatalf("Tab does not lead to %s", condition)
	}
	tabTo("document.activeElement.closest('#key-rows')")
	p.press("Enter", 0)
	p.wait("!document.querySelector('#why').hidden && document.activeElement.id === 'why-title'", "the focus is on the heading of the key")
	p.wait("document.querySelector('#why-holders button')", "the holders are listed")
	tabTo("document.activeElement.textContent === 'Break…'")
	p.press("Enter", 0)
	p.wait("document.querySelector('#act').open && document.activeElement.id === 'typed-key'", "the focus is in the dialog")
	p.press("Escape", 0)
	p.wait("!document.querySelector('#act').open && document.activeElement.textContent === 'Break…'", "Escape leads back to the button")
	p.press("Enter", 0)
	p.wait("document.activeElement.id === 'typed-key'", "the dialog is open again")
	p.write("only/key")
	p.press("Tab", 0)
	p.write(fmt.Sprint(uint64(l.Token())))
	p.press("Enter", 0)
	p.wait("document.querySelector('#outcome').textContent.startsWith('Done. ')", "the grant is broken")
	<-l.Context().Done()
	p.press("Escape", 0)
	tabTo("document.activeElement.id === 'why-close'")
	p.press(" ", 0)
	p.wait("document.querySelector('#why').hidden", "the key is closed")
	p.calm()
}

// Refreshing the page moves no focus and keeps the rows that stay.
func TestARefreshKeepsTheFocus(t *testing.T) {
	c, page := alone(t)
	take(t, c, "b")
	browser := startChromium(t)
	p := browser.newTab(t, 1200, 900)
	p.open(page)
	p.wait("document.querySelector('#key-rows button')", "the keys are listed")
	p.do("document.querySelector('#key-rows button').focus()")
	take(t, c, "a")
	take(t, c, "c")
	p.wait("document.querySelectorAll('#key-rows button').length === 3", "three keys are listed")
	if s := p.text("document.activeElement.textContent + ' ' + [...document.querySelectorAll('#key-rows button')].map(b => b.textContent).join('')"); s != "b abc" {
		t.Errorf("%q", s)
	}
	p.calm()
}

// 10,000 keys come in pages, a prefix finds one, and the page stays quick and small.
func TestTenThousandKeys(t *testing.T) {
	c, page := alone(t)
	const all, each = 10_000, 1000
	for i := 0; i < all; i += each {
		var keys []string
		for j := range each {
			keys = append(keys, fmt.Sprintf("load/%05d", i+j))
		}
		if _, err := c.AcquireAll(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
	}
	browser := startChromium(t)
	p := browser.newTab(t, 1200, 900)
	p.open(page)
	p.wait("document.querySelector('#range').textContent === 'keys 1 to 100 of 10,000'", "the first page")
	p.click("document.querySelector('#next')")
	p.wait("document.querySelector('#range').textContent === 'keys 101 to 200 of 10,000' && document.querySelector('#key-rows button').textContent === 'load/00100'", "the second page")
	p.click("document.querySelector('#previous')")
	p.wait("document.querySelector('#key-rows button').textContent === 'load/00000'", "the first page again")
	p.do("document.querySelector('#prefix').focus()")
	p.write("load/0998")
	p.press("Enter", 0)
	p.wait("document.querySelectorAll('#key-rows button').length === 10 && document.querySelector('#key-rows button').textContent === 'load/09980'", "the keys of a prefix")
	p.do("(document.querySelector('#prefix').value = '', document.querySelector('#filter').requestSubmit())")
	p.wait("document.querySelectorAll('#key-rows tr').length === 100", "all keys again")
	p.click("document.querySelector('#key-rows button')")
	p.wait("document.querySelector('#why-text').innerText.includes('holds the key')", "a key among many is explained")
	if n := p.text("String(document.querySelectorAll('*').length)"); len(n) > 4 {
		t.Errorf("%s elements", n)
	}
	// The time of one whole refresh, requests included.
	var took float64
	if err := p.eval("(async () => { const n = +document.documentElement.dataset.refreshed, t = performance.now(); while (+document.documentElement.dataset.refreshed < n + 3) { refresh(); await new Promise(r => setTimeout(r, 5)); } return (performance.now() - t) / 3; })()", &took); err != nil {
		t.Fatal(err)
	}
	t.Logf("a refresh takes %.0f ms", took)
	p.calm()
}

// hostile are names that a page could take for something else.
var hostile = []string{
	`<script>document.title='owned'</script>`, `<img src=x onerror="document.title='owned'">`, `</script><script>document.title='owned'//`,
	`"><svg onload=document.title='owned'>`, "\u202etxt.exe", "two\nlines", "\x00hidden"[1:], "zero\u200bwidth", `\u{202e}`, "javascript:alert(1)",
	strings.Repeat("長", 170), "{{7*7}}", "__proto__", "constructor", "a b  c", "\u2028",
}

// Names are text, whatever they are, and the page shows what a reader would not see.
func TestHostileNames(t *testing.T) {
	c, page := alone(t)
	tokens := make(map[string]string)
	for _, name := range hostile {
		o := locks.New(c.Node(), locks.Options{Name: name[:min(len(name), 126)], Meta: map[string]string{name: name}})
		t.Cleanup(func() { _ = o.Close(context.Background()) })
		tokens[name] = fmt.Sprint(uint64(take(t, o, name).Token()))
	}
	browser := startChromium(t)
	p := browser.newTab(t, 1200, 900)
	p.open(page)
	p.wait(fmt.Sprintf("document.querySelectorAll('#key-rows button').length === %d", len(hostile)), "all keys are listed")
	for _, name := range hostile {
		row := "[...document.querySelectorAll('#key-rows tr')].find(r => r.dataset.id === " + quote(name) + ")"
		p.click(row + "?.querySelector('button')")
		p.wait("document.querySelector('#why-holders')?.innerText.includes("+quote(tokens[name])+")", fmt.Sprintf("%q is explained", name))
		shown := p.text("document.querySelector('#why-key').textContent")
		if strings.ContainsAny(shown, "\u202e\u200b\u2028\n") || name == `\u{202e}` && shown != `\\u{202e}` {
			t.Errorf("%q is shown as %q", name, shown)
		}
		// The server takes the key as the page shows it: its function is the same.
		p.click("[...document.querySelectorAll('#why-holders button')].find(b => b.textContent === 'Ask…')")
		typed(p, shown, tokens[name])
		p.wait("document.querySelector('#outcome').textContent.startsWith('Done. ')", fmt.Sprintf("%q is asked for as %q", name, shown))
		p.click("document.querySelector('#act-cancel')")
		p.click("document.querySelector('#why-close')")
	}
	if title := p.text("document.title"); strings.Contains(title, "owned") {
		t.Error("a name has run as a script")
	}
	p.calm()
}

// The policy stops what the page itself would never do.
func TestThePolicyBites(t *testing.T) {
	_, page := alone(t)
	browser := startChromium(t)
	p := browser.newTab(t, 800, 600)
	p.open(page)
	p.wait("document.querySelector('#status').textContent !== 'loading'", "the page is loaded")
	p.calm()
	for directive, attempt := range map[string]string{
		"require-trusted-types-for": "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title = 1\">')",
		"connect-src":               "fetch('http://127.0.0.1:9/x')",
		"frame-src":                 "(() => { const f = document.createElement('iframe'); f.src = location.href; document.body.append(f); })()",
		"base-uri":                  "(() => { const b = document.createElement('base'); b.href = 'http://127.0.0.1:9/'; document.head.append(b); })()",
		"img-src":                   "(() => { const i = document.createElement('img'); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i); })()",
		"form-action":               "(() => { const f = document.createElement('form'); f.action = location.href; f.method = 'post'; document.body.append(f); f.submit(); })()",
		"style-src-attr":            "document.body.setAttribute('style', 'display: none')",
		"script-src-elem":           "(() => { const s = document.createElementNS('http://www.w3.org/2000/svg', 'script'); s.append('document.title = \"owned\"'); const g = document.createElementNS('http://www.w3.org/2000/svg', 'svg'); g.append(s); document.body.append(g); })()",
	} {
		stopped := p.text(`new Promise(resolve => {
			addEventListener('securitypolicyviolation', e => resolve(e.effectiveDirective), {once: true});
			setTimeout(() => resolve('nothing'), 20000);
			(async () => ` + attempt + `)().catch(() => 0);
		})`)
		// The browser may name the rule that stops a script in two ways.
		if stopped != directive && !(directive == "script-src-elem" && stopped == "require-trusted-types-for") {
			t.Errorf("%s is stopped by %s: %s", attempt, stopped, directive)
		}
	}
	if title := p.text("document.title"); strings.Contains(title, "owned") {
		t.Error("a script has run")
	}
}

// On a narrow screen nothing is cut off, in both colour schemes.
func TestNarrowAndDark(t *testing.T) {
	c, page := alone(t)
	take(t, c, "a/key/with/a/rather/long/name/that/does/not/fit/into/one/line/of/a/telephone")
	browser := startChromium(t)
	p := browser.newTab(t, 320, 640)
	p.open(page)
	p.wait("document.querySelector('#key-rows button')", "the keys are listed")
	p.click("document.querySelector('#key-rows button')")
	p.wait("document.querySelector('#why-graph svg')", "the graph is drawn")
	if wide := p.text("String(document.documentElement.scrollWidth)"); wide != "320" {
		t.Errorf("the page is %s wide", wide)
	}
	accessible(p)
	p.scheme(true)
	if back := p.text("getComputedStyle(document.body).backgroundColor"); back != "rgb(20, 23, 27)" {
		t.Errorf("the dark page is %s", back)
	}
	p.scheme(false)
	if back := p.text("getComputedStyle(document.body).backgroundColor"); back != "rgb(255, 255, 255)" {
		t.Errorf("the light page is %s", back)
	}
	p.calm()
}

// A page of 300 members, 40 of which are lost.
func TestThreeHundredMembers(t *testing.T) {
	c, _ := alone(t)
	report := c.Report()
	real := report.Node.Members[0]
	for i := 1; i < 300; i++ {
		m := real
		m.Name, m.Self, m.Leader, m.Voter, m.Reach, m.Addr = fmt.Sprintf("member-%03d", i), false, false, false, "reached", fmt.Sprintf("10.0.%d.%d:7000", i/250, i%250)
		m.Boot = uint64(i)
		if i%8 == 0 {
			m.Reach = "lost"
		}
		report.Node.Members = append(report.Node.Members, m)
	}
	h := lockshttp.Handler(c, lockshttp.Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/report.json" {
			_ = json.NewEncoder(w).Encode(report)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	browser := startChromium(t)
	p := browser.newTab(t, 1200, 900)
	p.open(server.URL)
	p.wait("document.querySelectorAll('#member-rows tr').length === 300", "300 members are listed")
	if n := p.text("String(document.querySelectorAll('#member-rows td.bad').length)"); n != "37" {
		t.Errorf("%s members are lost", n)
	}
	var high float64
	if err := p.eval("document.querySelector('#members').getBoundingClientRect().height", &high); err != nil || high > 900 {
		t.Errorf("the members take %v pixels, %v", high, err)
	}
	p.calm()
}
