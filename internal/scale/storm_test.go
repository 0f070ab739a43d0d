package scale

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/simnet"
)

// probers is the number of members that acquire locks all the time during a storm.
const probers = 20

// A storm is a loss of the leader. Serves counts from the loss, and the times after it
// from then on.
type storm struct {
	name              string
	serves            time.Duration // the first member has another leader
	median, most, all time.Duration // half of the members, 90 % and all have
	lost              int           // locks of living members, until a TTL later
	messages, bytes   uint64        // sent by anybody until all were served
	gap               time.Duration // the longest Acquire
	cpu               time.Duration // of all members
}

// storm takes the leader away by lose, and measures until every member is served again,
// and a TTL longer.
func (w *town) storm(name string, leader int, lose func()) (s storm) {
	w.t.Helper()
	s.name = name
	old := w.residents[leader]
	above := uint64(0)
	for _, r := range w.living() {
		above = max(above, r.term())
	}
	longest := w.probe()
	time.Sleep(time.Second)
	before := w.count(leader)
	began := time.Now()
	lose()
	waiting := slices.DeleteFunc(w.living(), func(r *resident) bool { return r == old })
	took := make([]time.Duration, 0, len(waiting))
	for ; len(waiting) > 0 && time.Since(began) < time.Minute; time.Sleep(5 * time.Millisecond) {
		waiting = slices.DeleteFunc(waiting, func(r *resident) bool {
			at, ok := r.served(above)
			if ok {
				took = append(took, at.Sub(began))
			}
			return ok
		})
	}
	for _, r := range waiting {
		w.t.Errorf("%s: %s is not served after a minute", name, r.name)
	}
	s.cpu = cpu(w.t) - before.cpu
	var sent simnet.Traffic
	for i := range w.residents {
		now, _ := w.net.Traffic(host(i))
		sent = sent.Add(now.Sub(before.sent[i]))
	}
	s.messages, s.bytes = sent.Messages(), sent.Bytes()
	slices.Sort(took)
	s.serves = took[0]
	s.median, s.most, s.all = took[len(took)/2]-s.serves, took[len(took)*9/10]-s.serves, took[len(took)-1]-s.serves
	time.Sleep(ttl + time.Second)
	s.gap = longest()
	s.lost = w.lost(old)
	return s
}

// probe has members acquire and release locks until longest is called, which returns the
// longest time that an Acquire has taken.
func (w *town) probe() (longest func() time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var most time.Duration
	var probes sync.WaitGroup
	for i := range probers {
		r := w.residents[voters+i*(len(w.residents)-voters)/probers]
		probes.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				began := time.Now()
				l, err := r.client.Acquire(ctx, fmt.Sprintf("%s/probe/%d", r.name, n))
				if err != nil {
					continue // the end of ctx
				}
				mu.Lock()
				most = max(most, time.Since(began))
				mu.Unlock()
				_ = l.Release(ctx)
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		})
	}
	return func() time.Duration {
		cancel()
		probes.Wait()
		return most
	}
}

// served returns when a leader above a term began to serve the resident.
func (r *resident) served(above uint64) (at time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.leaders {
		if a.term > above {
			return a.at, true
		}
	}
	return at, false
}

// term returns the term of the last leader of the resident.
func (r *resident) term() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaders[len(r.leaders)-1].term
}
