package lockshttp

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
)

// page is the whole page: one document with its style and its script. It has no data, so
// no name of a key or a client is ever a part of HTML; the script loads the documents, and
// shows names as text.
//
//go:embed page.html
var page []byte

// pageWithActions is the page for a handler that may carry out actions.
var pageWithActions = bytes.Replace(page, []byte(`data-actions="no"`), []byte(`data-actions="yes"`), 1)

// pagePolicy lets the browser run and apply what stands in the page, by hash, and connect
// to where the page came from. Nothing else.
var pagePolicy = "default-src 'none'; script-src " + hashOf("script") + "; style-src " + hashOf("style") +
	"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// hashOf returns the hash of the one element of a name, as a source of a policy.
func hashOf(name string) string {
	_, rest, _ := bytes.Cut(page, []byte("<"+name+">"))
	text, _, _ := bytes.Cut(rest, []byte("</"+name+">"))
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func (h *handler) servePage(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Security-Policy", pagePolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	document := page
	if h.o.Allow != nil {
		document = pageWithActions
	}
	_, _ = w.Write(document)
	return nil
}
