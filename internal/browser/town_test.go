package browser

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/internal/testrounds"
)

var screenshots = flag.String("screenshots", "", "write the pictures of the documentation into this directory")

// picture writes a picture of the documentation, if asked for.
func picture(p *tab, name string, height int) {
	if *screenshots != "" {
		p.screenshot(filepath.Join(*screenshots, name+".png"), height)
	}
}

// A cluster of three processes, in the browser: in health, with contention, with an
// operator, and without a quorum.
func TestTown(t *testing.T) {
	town := startTown(t)
	browser := startChromium(t)
	t.Run("health", func(t *testing.T) { health(t, browser, town) })
	if t.Failed() {
		return
	}
	t.Run("contention", func(t *testing.T) { contention(t, browser, town) })
	t.Run("break", func(t *testing.T) { breakAGrant(t, browser, town) })
	t.Run("read only", func(t *testing.T) { readOnly(t, browser, town) })
	t.Run("another site", func(t *testing.T) { anotherSite(t, browser, town) })
	t.Run("outage", func(t *testing.T) { outage(t, browser, town) })
}

func health(t *testing.T, browser *chromium, town []*member) {
	for i, m := range town {
		m.obey("spread worker-%d orders", i)
	}
	town[1].acquire("backup", "jobs/backup")
	town[2].acquire("mailer", "jobs/newsletter")
	p := browser.newTab(t, 1200, 900)
	p.open(town[0].page())
	p.wait("document.querySelector('#status').textContent === 'Healthy'", "the cluster is healthy")
	p.wait("document.querySelectorAll('#member-rows tr').length === 3", "three members are listed")
	p.wait("document.querySelector('#member-rows').innerText.match(/caught up/g)?.length === 3", "three voters have caught up")
	p.wait("document.querySelector('#key-rows').innerText.includes('jobs/newsletter')", "the keys are listed")
	p.wait("document.querySelector('#groups').innerText.match(/worker-\\d/g)?.length === 3 && !document.querySelector('#groups .note:not([hidden])')", "every shard has an owner")
	p.wait("document.querySelector('#session-rows').innerText.includes('mailer')", "the sessions are listed")
	p.wait("document.querySelector('#stream').textContent === 'live'", "events are live")
	if p.text("String(document.querySelector('#banner').hidden)") != "true" {
		t.Error("a banner in health")
	}
	for _, at := range p.asked() {
		if !strings.HasPrefix(at, town[0].page()) && at != "about:blank" && at != "data:," {
			t.Errorf("the page has asked for %s", at)
		}
	}
	accessible(p)
	p.calm()
	picture(p, "health", 1400)
}

func contention(t *testing.T, browser *chromium, town []*member) {
	// alice holds orders/42, and waits for the ledger, which carol holds.
	town[0].acquire("alice", "orders/42")
	town[1].acquire("carol", "ledger")
	town[0].obey("acquire alice ledger")
	for _, name := range []string{"bob", "dave", "eve"} {
		town[2].obey("acquire %s orders/42", name)
	}
	p := browser.newTab(t, 1200, 900)
	p.open(town[1].page())
	const row = "[...document.querySelectorAll('#key-rows tr')].find(r => r.dataset.id === 'orders/42')"
	p.wait(row+"?.innerText.match(/3: (bob|dave|eve) on cleo/)", "three wait for orders/42")
	p.wait("document.querySelector('#key-rows').innerText.match(/1: alice on ann/)", "alice waits for the ledger")
	p.click(row + "?.querySelector('button')")
	p.wait("document.querySelector('#why-text').innerText.includes('\"alice\" itself waits for \"ledger\", which \"carol\" on ben holds')", "the page says why the key is stuck")
	p.wait("document.querySelectorAll('#why-graph svg g').length === 7", "the graph has four waits, two keys and a holder")
	p.wait("document.querySelectorAll('#why-waiters tr').length === 3", "the queue is listed")
	accessible(p)
	p.calm()
	picture(p, "contention", 1250)
}

// typed fills in the dialog of an action.
func typed(p *tab, key, token string) {
	p.do("document.querySelector('#typed-key').value = document.querySelector('#typed-token').value = ''")
	p.do("document.querySelector('#typed-key').focus()")
	p.write(key)
	p.do("document.querySelector('#typed-token').focus()")
	p.write(token)
	p.click("document.querySelector('#act-go')")
}

func breakAGrant(t *testing.T, browser *chromium, town []*member) {
	key := "stuck job"
	key = strings.ReplaceAll(key, " ", "-")
	token := town[1].acquire("sleeper", key)
	town[2].obey("acquire next %s", key)
	p := browser.newTab(t, 1200, 900)
	p.open(town[0].page())
	const row = "[...document.querySelectorAll('#key-rows tr')].find(r => r.dataset.id === 'stuck-job')"
	p.wait(row+"?.innerText.includes('1: next on cleo')", "the key has a waiter")
	p.click(row + "?.querySelector('button')")
	p.click("[...document.querySelectorAll('#why-holders button')].find(b => b.textContent === 'Break…')")
	p.wait("document.querySelector('#act').open", "the dialog is open")
	for _, wrong := range [][2]string{{"stuck-jo", token}, {key, "12"}, {"", ""}} {
		typed(p, wrong[0], wrong[1])
		p.wait("document.querySelector('#outcome').textContent.startsWith('Refused. Nothing was changed.')", fmt.Sprintf("%q is refused", wrong))
		p.do("document.querySelector('#outcome').textContent = ''")
	}
	var doc documents.Why
	town[0].document("why.json?key="+key, &doc)
	if len(doc.Key.Holders) != 1 || fmt.Sprint(uint64(doc.Key.Holders[0].Token)) != token {
		t.Errorf("after refused actions: %+v", doc.Key)
	}
	accessible(p)
	p.troubles() // the browser notes each refusal's status as an error
	typed(p, key, token)
	p.wait("document.querySelector('#outcome').textContent.startsWith('Done. ')", "the grant is broken")
	town[1].says("ended sleeper " + key)
	town[2].says("granted next " + key)
	p.wait("document.querySelector('#why-holders').innerText.includes('next')", "the page shows the next holder")
	p.wait("document.querySelector('#event-rows').innerText.includes('Granted stuck-job')", "the grant is an event")
	p.calm()
}

func readOnly(t *testing.T, browser *chromium, town []*member) {
	p := browser.newTab(t, 1200, 900)
	p.open(town[0].http + "/read/only/")
	p.wait("document.querySelector('#key-rows').innerText.includes('jobs/backup')", "the keys are listed")
	p.click("document.querySelector('#key-rows button')")
	p.wait("document.querySelectorAll('#why-holders tr').length > 0", "the holders are listed")
	if n := p.text("String([...document.querySelectorAll('button')].filter(b => /…$/.test(b.textContent) && b.checkVisibility()).length)"); n != "0" {
		t.Errorf("%s actions on a page without Allow", n)
	}
	p.calm()
}

// A page of another site sends the form of an action, with the right key and token.
func anotherSite(t *testing.T, browser *chromium, town []*member) {
	token := town[1].acquire("victim", "guarded")
	target := town[0].page() + "action"
	fields := url.Values{"verb": {"break"}, "key": {"guarded"}, "typed_key": {"guarded"}, "token": {token}, "typed_token": {token}}
	var inputs strings.Builder
	for name, v := range fields {
		fmt.Fprintf(&inputs, `<input name="%s" value="%s">`, name, v[0])
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	evil := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		switch r.URL.Path {
		case "/form":
			fmt.Fprintf(w, `<title>evil</title><form method="post" action="%s">%s</form>`, target, inputs.String())
		case "/fetch":
			fmt.Fprintf(w, `<title>evil</title><script>fetch(%q, {method: 'POST', mode: 'no-cors', credentials: 'include', body: new URLSearchParams(%q)}).finally(() => document.title = 'sent')</script>`, target, fields.Encode())
		case "/frame":
			fmt.Fprintf(w, `<title>evil</title><iframe src="%s" onload="document.title = 'loaded'"></iframe>`, town[0].page())
		case "/read":
			fmt.Fprintf(w, `<title>evil</title><script>fetch(%q).then(r => r.text()).then(() => document.title = 'read', () => document.title = 'refused')</script>`, town[0].page()+"locks.json")
		}
	})}
	go func() { _ = evil.Serve(listener) }()
	t.Cleanup(func() { _ = evil.Close() })
	_, port, _ := net.SplitHostPort(listener.Addr().String())

	// The same address with another port is another origin, and another name of the host
	// is another site.
	for _, host := range []string{"127.0.0.1", "localhost"} {
		at := "http://" + net.JoinHostPort(host, port)
		p := browser.newTab(t, 800, 600)
		p.open(at + "/form")
		p.do("document.forms[0].submit()")
		p.wait("document.body.innerText.includes('cross-origin')", "the form from "+host+" is refused")
		p.open(at + "/fetch")
		p.wait("document.title === 'sent'", "the request is sent")
		p.open(at + "/read")
		p.wait("document.title === 'refused'", "another site reads no document")
		p.open(at + "/frame")
		p.wait("document.title === 'loaded'", "the frame is done")
		if !strings.Contains(strings.Join(p.troubles(), "\n"), "frame") {
			t.Error("the browser has not refused to show the page in a frame")
		}
	}
	var doc documents.Why
	town[0].document("why.json?key=guarded", &doc)
	if h := doc.Key.Holders; len(h) != 1 || fmt.Sprint(uint64(h[0].Token)) != token || h[0].Broken || h[0].Asked {
		t.Errorf("after the other site's requests: %+v", h)
	}
	// The same form from nowhere, as a command sends it, is carried out: the refusals
	// above are about the site alone.
	reply, err := http.PostForm(target, fields)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		t.Errorf("the form from nowhere: %s", reply.Status)
	}
	town[1].says("ended victim guarded")
}

// Two of three processes are killed: the page says so, shows the last view with its age,
// and every document, page and probe answers within 200 ms.
func outage(t *testing.T, browser *chromium, town []*member) {
	stalls := testrounds.WatchStalls(nil)
	defer stalls.Stop()
	p := browser.newTab(t, 1200, 900)
	survivor := town[1]
	p.open(survivor.page())
	p.wait("document.querySelector('#key-rows').innerText.includes('orders/42')", "the keys are listed")
	p.calm()
	killed := time.Now()
	town[0].kill()
	town[2].kill()
	paths := []string{"", "report.json", "locks.json", "locks.json?view=local", "locks.json?prefix=orders/", "why.json?key=orders/42", "sessions.json", "shards.json", "shards.json?name=orders"}
	slowest := time.Duration(0)
	check := func(lost bool) {
		for _, path := range append(paths, "/livez", "/readyz") {
			full := path
			if !strings.HasPrefix(path, "/") {
				full = prefix + "/" + path
			}
			began := time.Now()
			status, body, took := survivor.get(full)
			slowest = max(slowest, took)
			inTime(t, stalls, began, took, 200*time.Millisecond, full)
			switch {
			case path == "/readyz":
				if lost && status != http.StatusServiceUnavailable {
					t.Errorf("/readyz: %d", status)
				}
			case status != http.StatusOK:
				t.Errorf("%s: %d %s", full, status, body)
			case lost && strings.HasSuffix(strings.SplitN(path, "?", 2)[0], ".json") && path != "report.json":
				var head documents.Head
				if err := json.Unmarshal(body, &head); err != nil || head.Quorum || head.Source != documents.SourceTable || head.Age <= 0 || head.Reason == "" || head.Next == "" {
					t.Errorf("%s without a quorum: %v, %+v", full, err, head)
				}
			}
		}
	}
	for lost := false; !lost; {
		check(false)
		status, _, _ := survivor.get("/readyz")
		if lost = status != http.StatusOK; !lost && time.Since(killed) > patience {
			t.Fatal("the survivor does not notice")
		}
	}
	t.Logf("the survivor knows of the outage after %v", time.Since(killed).Round(time.Millisecond))
	for range 5 {
		check(true)
	}
	t.Logf("the slowest answer took %v; the longest standstill %v", slowest.Round(time.Millisecond), stalls.Since(killed))
	p.wait("!document.querySelector('#banner').hidden && document.querySelector('#banner').innerText.includes('No quorum')", "the banner")
	p.wait("document.querySelector('#banner-next').textContent.length > 10", "the next action")
	p.wait("document.querySelector('#keys').classList.contains('aged') && document.querySelector('#keys-source').textContent.startsWith('Out of date')", "the view is marked with its age")
	p.wait("document.querySelector('#key-rows').innerText.includes('orders/42')", "the keys are still listed")
	p.wait("document.querySelector('#member-rows').innerText.match(/lost|ended/g)?.length === 2", "two members are lost")
	p.wait("getComputedStyle(document.querySelector('#banner')).backgroundColor === 'rgb(163, 21, 26)'", "the banner is red")
	accessible(p)
	p.calm()
	picture(p, "outage", 1250)
	// Actions end in time too, and say that nothing is certain.
	form := url.Values{"verb": {"break"}, "key": {"ledger"}, "typed_key": {"ledger"}, "token": {"1"}, "typed_token": {"1"}, "timeout": {"300ms"}}
	began := time.Now()
	reply, err := http.PostForm(survivor.page()+"action", form)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	took := time.Since(began)
	inTime(t, stalls, began, took, time.Second, "an action without a quorum")
	var doc documents.Action
	if err := json.NewDecoder(reply.Body).Decode(&doc); err != nil || doc.Code != documents.CodeNoQuorum || doc.Outcome != documents.Refused {
		t.Errorf("an action without a quorum: %v, %+v", err, doc)
	}
}
