package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockshttp"
)

// A source answers with the documents of package lockshttp. The documents come from a
// member's page by HTTP, or from this program's own member without a network. So both
// ways give the same answers.
type source struct {
	pages  []string // addresses that end with a slash
	client *http.Client
	joined *joined // nil: the pages are elsewhere
	limit  time.Duration
}

// open returns the source of the way. The caller closes it.
func (w *way) open() (*source, error) {
	if w.url == "" {
		return w.openJoined()
	}
	s := &source{limit: w.timeout}
	for entry := range strings.SplitSeq(w.url, ",") {
		u, err := url.Parse(strings.TrimSpace(entry))
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fail(exitUsage, "give an address such as http://127.0.0.1:8080/wardmote/", "-url: %q is not the address of a page", entry[strings.LastIndex(entry, "@")+1:])
		}
		u.Path = strings.TrimSuffix(u.Path, "/") + "/"
		u.RawQuery, u.Fragment = "", ""
		s.pages = append(s.pages, u.String())
	}
	roots, err := w.roots()
	if err != nil {
		return nil, err
	}
	s.client = &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots}},
		// A login page is no document.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

// openJoined starts a member, and waits until the member reaches a leader, or for the
// time limit: without a quorum the documents have what the member knows.
func (w *way) openJoined() (*source, error) {
	j, err := w.start(context.Background(), locks.Options{})
	if err != nil {
		return nil, err
	}
	// Everything is allowed to the operator of this program. The leader asks
	// Security.Authorize besides.
	allow := func(*http.Request, cluster.Verb, string) error { return nil }
	s := &source{
		pages:  []string{"http://member/"},
		client: &http.Client{Transport: inside{lockshttp.Handler(j.client, lockshttp.Options{Allow: allow})}},
		joined: j,
		limit:  w.timeout,
	}
	for until := time.Now().Add(w.timeout); !j.node.Report().Health.Quorum && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	return s, nil
}

func (s *source) close() {
	s.client.CloseIdleConnections()
	if s.joined != nil {
		_ = s.joined.close() // nothing is locked
	}
}

// get returns a document: of the page that answers first.
func (s *source) get(name string, q url.Values, into any) error {
	raw, err := s.raw(name, q)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fail(exitUnavailable, "give the address of a page of lockshttp", "%s%s is no document: %v", redacted(s.pages[0]), name, err)
	}
	return nil
}

// redacted returns the address of a page without a password.
func redacted(page string) string {
	u, err := url.Parse(page)
	if err != nil {
		return "the page"
	}
	return u.Redacted()
}

func (s *source) raw(name string, q url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.limit)
	defer cancel()
	type answer struct {
		raw []byte
		err error
	}
	answers := make(chan answer, len(s.pages))
	for _, page := range s.pages {
		go func() {
			raw, err := s.fetch(ctx, page+name+"?"+q.Encode())
			answers <- answer{raw, err}
		}()
	}
	var failed []error
	for range s.pages {
		a := <-answers
		if a.err == nil {
			return a.raw, nil
		}
		failed = append(failed, a.err)
	}
	return nil, allFailed(failed)
}

// allFailed returns the error of several pages.
func allFailed(failed []error) error {
	if len(failed) == 1 {
		return failed[0]
	}
	return fail(asFailure(failed[0]).code, "", "%v", errors.Join(failed...))
}

// fetch gets one document.
func (s *source) fetch(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fail(exitUnavailable, "see whether the process lives, or give another -url", "%v", unwrapURL(err))
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return nil, fail(exitUnavailable, "try again", "%v", err)
	}
	return raw, s.refused(resp, raw)
}

// maxDocument bounds an answer.
const maxDocument = 256 << 20

// refused returns the error of an answer that is no document.
func (s *source) refused(resp *http.Response, raw []byte) error {
	var f struct{ Error, Code string } // a documents.Failure
	switch {
	case resp.StatusCode == http.StatusOK:
		return nil
	case json.Unmarshal(raw, &f) == nil && f.Error != "":
		return fail(codeOfDocument(f.Code), "", "%s", f.Error)
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		return fail(exitDenied, "log in by user and password in -url, or ask the program's operators", "%s answers %s", resp.Request.URL.Host, resp.Status)
	}
	return fail(exitUnavailable, "give the address of a page of lockshttp", "%s answers %s", resp.Request.URL.Redacted(), resp.Status)
}

// codeOfDocument returns the exit code for a code of package documents.
func codeOfDocument(code string) int {
	switch code {
	case documents.CodeInput:
		return exitUsage
	case documents.CodeForbidden, documents.CodeCrossOrigin, documents.CodeHost, documents.CodeDenied:
		return exitDenied
	case documents.CodeNoQuorum, documents.CodeTimeout, documents.CodeBusy:
		return exitUnavailable
	}
	return exitFailed
}

// act posts an action to the first page that can be dialled, and returns the answer. A page
// that was dialled may have done the action, whatever it answers: no other page is asked then.
func (s *source) act(form url.Values) (documents.Action, error) {
	var doc documents.Action
	form.Set("timeout", min(max(s.limit, 100*time.Millisecond), 2*time.Minute).String())
	ctx, cancel := context.WithTimeout(context.Background(), s.limit+time.Second)
	defer cancel()
	var resp *http.Response
	var failed []error
	for _, page := range s.pages {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, page+"action", strings.NewReader(form.Encode()))
		if err != nil {
			return doc, err
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if resp, err = s.client.Do(req); err == nil {
			break
		}
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "dial" {
			return doc, fail(exitUnavailable, "look at the key before you try again: the action may have been done", "%v", unwrapURL(err))
		}
		failed = append(failed, fail(exitUnavailable, "nothing was done: see whether the process lives, or give another -url", "%v", unwrapURL(err)))
	}
	if resp == nil {
		return doc, allFailed(failed)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return doc, fail(exitUnavailable, "look at the key before you try again: the action may have been done", "%v", err)
	}
	if json.Unmarshal(raw, &doc) == nil && doc.Outcome != "" {
		return doc, nil
	}
	if err := s.refused(resp, raw); err != nil {
		return doc, err
	}
	return doc, fail(exitUnavailable, "give the address of a page of lockshttp", "the page answers no action")
}

// stream opens the stream of events of a page, behind the event with the ID last.
func (s *source) stream(ctx context.Context, page, last string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page+"events", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fail(exitUnavailable, "see whether the process lives, or give another -url", "%v", unwrapURL(err))
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return nil, s.refused(resp, raw)
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		resp.Body.Close()
		return nil, fail(exitUnavailable, "give the address of a page of lockshttp", "%s answers no events", req.URL.Redacted())
	}
	return resp.Body, nil
}

// unwrapURL shortens an error of package http, which has the whole address, a password
// included, and the method.
func unwrapURL(err error) error {
	var u *url.Error
	if !errors.As(err, &u) {
		return err
	}
	host := u.URL
	if parsed, e := url.Parse(u.URL); e == nil {
		host = parsed.Host
	}
	if u.Timeout() {
		return fmt.Errorf("no answer from %s in time", host)
	}
	return fmt.Errorf("no answer from %s: %w", host, u.Err)
}

// inside is a network that ends at a handler in this process.
type inside struct{ h http.Handler }

func (i inside) RoundTrip(r *http.Request) (*http.Response, error) {
	body, to := io.Pipe()
	w := &response{header: make(http.Header), to: to, began: make(chan struct{})}
	served := r.Clone(r.Context())
	if served.Body == nil {
		served.Body = http.NoBody
	}
	go func() {
		i.h.ServeHTTP(w, served)
		w.WriteHeader(http.StatusOK)
		to.Close()
	}()
	select {
	case <-w.began:
	case <-r.Context().Done():
		body.Close()
		return nil, context.Cause(r.Context())
	}
	return &http.Response{
		Status: fmt.Sprint(w.status, " ", http.StatusText(w.status)), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header.Clone(), Body: body, ContentLength: -1, Request: r,
	}, nil
}

// response is a http.ResponseWriter into a pipe.
type response struct {
	header http.Header
	to     *io.PipeWriter
	status int
	began  chan struct{}
}

func (w *response) Header() http.Header { return w.header }

func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		close(w.began)
	}
}

func (w *response) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.to.Write(b)
}

// Flush does nothing: nothing is held back.
func (w *response) Flush() { w.WriteHeader(http.StatusOK) }
