package lockshttp

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/meter"
	"github.com/wardmote/wardmote/locks"
)

// Metrics serves the figures of the client and its node as OpenMetrics text, or in the
// older format of Prometheus to a reader that does not ask for OpenMetrics. All metrics
// are listed in docs/metrics.md, with their units; docs/alerts has rules for them.
//
// Metrics answers any path, to GET and HEAD. An answer asks nobody and waits for nobody:
// it comes at once during an outage as well, with the facts that this member has. The
// client and its node count from their beginning, so figures from before the call of
// Metrics are there, and no figure falls when a session is lost or the client is closed.
//
// No metric has the name of a key, a client or a member, unless Label gives it. With
// Label, the metrics whose names begin with wardmote_key_ count the requests and grants
// of each label, from the call of Metrics on. Call Metrics once for each client then: a
// further Handler counts by its Label too, for as long as it is in use.
//
// An answer has a bounded size: 20 KiB without labels, and below 1 MiB with the most and the
// longest. Allow is not asked.
func Metrics(c *locks.Client, o Options) http.Handler {
	h := &metrics{client: c, hosts: o.Hosts}
	if o.Label != nil {
		h.labels = meter.NewLabels(o.Label)
		meter.OfClient(c).Add(h.labels)
	}
	return h
}

// CountRefusals returns a function for the field Refused of a fence.Guard or a fence.File.
// The function counts each refused token in the metric wardmote_tokens_refused_total of c:
// a guard knows no client. A guard of another kind may call the function too.
func CountRefusals(c *locks.Client) func(fence.Token, error) {
	m := meter.OfClient(c)
	return func(fence.Token, error) { m.TokensRefused.Inc() }
}

// metrics is the handler of Metrics.
type metrics struct {
	client *locks.Client
	hosts  []string
	labels *meter.Labels // nil: none
}

func (h *metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := foreignHost(r, h.hosts); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "metrics are read by GET", http.StatusMethodNotAllowed)
		return
	}
	open := wantsOpenMetrics(r.Header.Values("Accept"))
	text := h.text(open)
	contentType := meter.Prometheus
	if open {
		contentType = meter.OpenMetrics
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Vary", "Accept")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // net/http sends no body to HEAD
}

// text returns all metrics at this moment.
func (h *metrics) text(open bool) []byte {
	e := &meter.Encoder{Open: open}
	s := h.read()
	for i := range families {
		if f := &families[i]; f.when == nil || f.when(s) {
			e.Family(f.Family)
			f.write(e, f.Name, s)
		}
	}
	return e.End()
}

// read reads the figures for one answer.
func (h *metrics) read() *scrape {
	s := &scrape{
		client: meter.OfClient(h.client), figures: meter.ReadClient(h.client),
		node: meter.OfNode(h.client.Node()), state: meter.ReadNode(h.client.Node()),
	}
	if h.labels != nil {
		s.labels = h.labels.All()
	}
	return s
}

// wantsOpenMetrics reports whether a reader with these Accept headers prefers OpenMetrics,
// of a version that is written here, to plain text.
func wantsOpenMetrics(accept []string) bool {
	var open, text float64
	for _, header := range accept {
		for media := range strings.SplitSeq(header, ",") {
			kind, params, _ := strings.Cut(media, ";")
			quality, version := 1.0, ""
			for param := range strings.SplitSeq(params, ";") {
				name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
				value = strings.Trim(strings.TrimSpace(value), `"`)
				switch strings.ToLower(strings.TrimSpace(name)) {
				case "q":
					quality, _ = strconv.ParseFloat(value, 64) // unreadable: 0, not acceptable
				case "version":
					version = value
				}
			}
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "application/openmetrics-text":
				if version == "" || version == "1.0.0" || version == "0.0.1" {
					open = max(open, quality)
				}
			case "text/plain":
				if version == "" || version == "0.0.4" {
					text = max(text, quality)
				}
			}
		}
	}
	return open > 0 && open >= text
}
