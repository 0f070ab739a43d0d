package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait. Hosts may be slow, so it is long: a test waits for
// conditions, and passes as soon as they hold.
const patience = 90 * time.Second

// chromium is a running browser.
type chromium struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	log   bytes.Buffer
	ended chan struct{} // closed when the pipe has ended

	mu      sync.Mutex
	id      int
	replies map[int]chan reply
	tabs    map[string]*tab // by session
}

// reply is a message from the browser: an answer, or an event.
type reply struct {
	ID        int             `json:"id"`
	SessionID string          `json:"sessionId"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *struct{ Message string }
}

func program() (string, error) {
	if p := os.Getenv("WARDMOTE_CHROMIUM"); p != "" {
		return exec.LookPath(p)
	}
	for _, p := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(p); err == nil {
			return found, nil
		}
	}
	return "", errors.New("no chromium in PATH: apt-get install chromium, or name one in WARDMOTE_CHROMIUM")
}

// startChromium starts a browser that ends with the test.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	c := &chromium{replies: make(map[int]chan reply), tabs: make(map[string]*tab), ended: make(chan struct{})}
	c.cmd = exec.Command(path, "--headless=new", "--remote-debugging-pipe", "--user-data-dir="+filepath.Join(home, "profile"),
		"--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-default-browser-check", "--disable-extensions",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps", "--mute-audio",
		"--hide-scrollbars", "--force-color-profile=srgb", "--lang=en-US", "about:blank")
	c.cmd.Env = append(os.Environ(), "HOME="+home, "LANG=C.UTF-8", "TZ=UTC")
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in = ourOut
	c.cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4
	c.cmd.Stderr = &c.log
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirIn.Close()
	_ = theirOut.Close()
	go c.read(ourIn)
	t.Cleanup(func() { c.stop(t) })
	return c
}

// stop ends the browser's process, and with it the processes that it has started: each of
// them ends with its connection to the browser.
func (c *chromium) stop(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, _ = c.call(ctx, "", "Browser.close", nil)
	_ = c.in.Close()
	exited := make(chan error, 1)
	go func() { exited <- c.cmd.Wait() }()
	select {
	case <-exited:
	case <-ctx.Done():
		_ = c.cmd.Process.Kill()
		<-exited
	}
}

// read hands out the browser's messages, each of which ends with a NUL byte.
func (c *chromium) read(from io.ReadCloser) {
	defer from.Close()
	r := bufio.NewReaderSize(from, 1<<20)
	for {
		b, err := r.ReadBytes(0)
		if err != nil {
			break
		}
		var m reply
		if json.Unmarshal(b[:len(b)-1], &m) != nil {
			continue
		}
		c.mu.Lock()
		if m.ID != 0 {
			if ch := c.replies[m.ID]; ch != nil {
				delete(c.replies, m.ID)
				ch <- m
			}
		} else if tab := c.tabs[m.SessionID]; tab != nil {
			tab.note(m)
		}
		c.mu.Unlock()
	}
	close(c.ended)
}

func (c *chromium) call(ctx context.Context, session, method string, params any) (json.RawMessage, error) {
	c.mu.Lock()
	c.id++
	id := c.id
	ch := make(chan reply, 1)
	c.replies[id] = ch
	m := map[string]any{"id": id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	b, err := json.Marshal(m)
	if err == nil {
		_, err = c.in.Write(append(b, 0))
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case r := <-ch:
		if r.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, r.Error.Message)
		}
		return r.Result, nil
	case <-c.ended:
		return nil, fmt.Errorf("%s: the browser has ended: %s", method, c.log.String())
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// tab is a page of the browser.
type tab struct {
	t       *testing.T
	c       *chromium
	session string

	// Under c.mu: what went wrong in the page, and which addresses it has asked.
	complaints []string
	requests   []string
}

// newTab opens a page of a size.
func (c *chromium) newTab(t *testing.T, width, height int) *tab {
	t.Helper()
	tab := &tab{t: t, c: c}
	var target struct{ TargetID string }
	tab.must(c.call(tab.ctx(), "", "Target.createTarget", map[string]any{"url": "about:blank"}))(&target)
	var attached struct{ SessionID string }
	tab.must(c.call(tab.ctx(), "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}))(&attached)
	tab.session = attached.SessionID
	c.mu.Lock()
	c.tabs[tab.session] = tab
	c.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Accessibility"} {
		tab.call(domain+".enable", nil)
	}
	tab.resize(width, height)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, _ = c.call(ctx, "", "Target.closeTarget", map[string]any{"targetId": target.TargetID})
	})
	return tab
}

// ctx returns a context for one question; the end of the test ends it.
func (p *tab) ctx() context.Context {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	p.t.Cleanup(cancel)
	return ctx
}

func (p *tab) must(result json.RawMessage, err error) func(into any) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
	return func(into any) {
		p.t.Helper()
		if err := json.Unmarshal(result, into); err != nil {
			p.t.Fatalf("%v: %s", err, result)
		}
	}
}

func (p *tab) call(method string, params any) func(into any) {
	p.t.Helper()
	return p.must(p.c.call(p.ctx(), p.session, method, params))
}

// note keeps what a test may want to know of an event of the page.
func (p *tab) note(m reply) {
	var e struct {
		Entry            struct{ Source, Level, Text, URL string }
		Request          struct{ URL string }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Message string // of a dialog
	}
	_ = json.Unmarshal(m.Params, &e)
	switch m.Method {
	case "Runtime.exceptionThrown":
		p.complaints = append(p.complaints, "exception: "+e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case "Log.entryAdded":
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			p.complaints = append(p.complaints, e.Entry.Source+": "+e.Entry.Text+" "+e.Entry.URL)
		}
	case "Page.javascriptDialogOpening":
		p.complaints = append(p.complaints, "dialog: "+e.Message)
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, e.Request.URL)
	}
}

// troubles returns what went wrong in the page since the last call.
func (p *tab) troubles() []string {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	all := p.complaints
	p.complaints = nil
	return all
}

// calm fails the test if anything went wrong in the page.
func (p *tab) calm() {
	p.t.Helper()
	for _, c := range p.troubles() {
		p.t.Errorf("the page: %s", c)
	}
}

// asked returns the addresses that the page has asked for.
func (p *tab) asked() []string {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return append([]string(nil), p.requests...)
}

func (p *tab) open(url string) {
	p.t.Helper()
	p.call("Page.navigate", map[string]any{"url": url})
	p.wait("document.readyState === 'complete'", "the page is loaded")
}

// eval evaluates an expression in the page, awaits it if it is a promise, and decodes its
// value.
func (p *tab) eval(expression string, into any) error {
	result, err := p.c.call(p.ctx(), p.session, "Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true,
	})
	if err != nil {
		return err
	}
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return err
	}
	if r.ExceptionDetails != nil {
		return fmt.Errorf("%s: %s %s", expression, r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	}
	if into == nil || len(r.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(r.Result.Value, into)
}

// text returns the value of an expression that is a text.
func (p *tab) text(expression string) (s string) {
	p.t.Helper()
	if err := p.eval(expression, &s); err != nil {
		p.t.Fatal(err)
	}
	return s
}

// do evaluates an expression for its effect.
func (p *tab) do(expression string) {
	p.t.Helper()
	if err := p.eval("void ("+expression+")", nil); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits until a condition holds in the page.
func (p *tab) wait(condition, what string) {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		var ok bool
		err := p.eval("!!("+condition+")", &ok)
		if ok && err == nil {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("not in %v: %s; %v; the page says:\n%s", patience, what, err, p.text("document.body.innerText"))
		}
		time.Sleep(30 * time.Millisecond) // a page tells no event when a condition holds
	}
}

func (p *tab) resize(width, height int) {
	p.t.Helper()
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

// scheme sets the colour scheme that the user prefers.
func (p *tab) scheme(dark bool) {
	p.t.Helper()
	value := "light"
	if dark {
		value = "dark"
	}
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": value}}})
}

// press presses a key.
func (p *tab) press(key string, modifiers int) {
	p.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
	event := map[string]any{"type": "keyDown", "key": key, "code": strings.ReplaceAll(key, " ", "Space"), "windowsVirtualKeyCode": codes[key], "modifiers": modifiers}
	switch key {
	case "Enter":
		event["text"] = "\r"
	case " ":
		event["text"] = " "
	}
	p.call("Input.dispatchKeyEvent", event)
	event["type"] = "keyUp"
	delete(event, "text")
	p.call("Input.dispatchKeyEvent", event)
}

// write types text into the element with the focus.
func (p *tab) write(text string) {
	p.t.Helper()
	p.call("Input.insertText", map[string]any{"text": text})
}

// click clicks into the middle of the element that an expression returns, with the mouse.
func (p *tab) click(element string) {
	p.t.Helper()
	p.wait("("+element+")", "there is "+element)
	p.do("(" + element + ").scrollIntoView({block: 'center', behavior: 'instant'})")
	var at struct{ X, Y float64 }
	if err := p.eval("(() => { const r = ("+element+").getBoundingClientRect(); return {x: r.x + r.width / 2, y: r.y + r.height / 2}; })()", &at); err != nil {
		p.t.Fatal(err)
	}
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		p.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1})
	}
}

// screenshot writes the page to a file, up to a height.
func (p *tab) screenshot(file string, height int) {
	p.t.Helper()
	var shot struct{ Data string }
	p.do("window.scrollTo(0, 0)")
	p.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": 1200, "height": height, "scale": 1}})(&shot)
	b, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(file, b, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
