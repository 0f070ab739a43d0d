package lockshttp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/locks"
)

// Probes returns a handler of /livez and /readyz, for an orchestrator. A probe reads what
// the member knows by itself: it asks nobody, and answers at once, without a quorum too.
// The answers name no keys.
//
// /livez answers 200 unless the node has failed for good: then 503, and a restart of the
// process mends it. A lost quorum is no reason for a restart, so /livez does not depend on
// the quorum.
//
// /readyz answers 200 once this member may be counted on, and 503 with the reason
// otherwise, by the rules of Node.Ready: for the first time when the cluster grants locks
// and its voters are complete, or two minutes after it grants; and from then on while this
// member reaches a leader. A member that ends is not ready.
func Probes(c *locks.Client) http.Handler { return &probes{c: c} }

// probes remembers whether the member was ready before.
type probes struct {
	c *locks.Client

	mu      sync.Mutex
	ready   bool
	granted time.Time // when the cluster was first seen granting
}

func (p *probes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	guard(w)
	var probe func() error
	switch r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] {
	case "livez":
		probe = p.live
	case "readyz":
		probe = func() error { return p.counts(p.c.Node().Report(), time.Now()) }
	default:
		http.Error(w, "no such probe; there are livez and readyz", http.StatusNotFound)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	if err := probe(); err != nil {
		http.Error(w, visible(err.Error()), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

// live returns the failure that only a restart mends.
func (p *probes) live() error {
	if err := p.c.Node().Err(); err != nil && !errors.Is(err, cluster.ErrStopped) {
		return fmt.Errorf("the node has failed, restart the process: %w", err)
	}
	return nil // after Stop the process is about to end by itself
}

// counts returns the reason for which nobody should count on the member now.
func (p *probes) counts(r cluster.Report, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	why := func(text string) error {
		if r.Health.Reason != "" {
			text += ": " + r.Health.Reason
		}
		return errors.New(text)
	}
	switch {
	case r.Own.Ended != "":
		return fmt.Errorf("the node has ended: %s", r.Own.Ended)
	case r.Own.Leaving:
		return errors.New("the member is leaving")
	case !r.Health.Quorum:
		return why("no quorum")
	case !r.Health.Granting:
		return why("the cluster grants nothing yet")
	}
	if p.granted.IsZero() {
		p.granted = now
	}
	v := r.Health.Voters
	complete := v.Wanted > 0 && v.Present >= v.Wanted && v.Reachable >= v.Wanted && v.CaughtUp >= v.Wanted
	if !p.ready && !complete && now.Sub(p.granted) < timing.ReadyPatience {
		return why(fmt.Sprintf("the voters are not complete: %d of %d have caught up", v.CaughtUp, v.Wanted))
	}
	p.ready = true
	return nil
}
