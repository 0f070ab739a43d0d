package consensus

import (
	"sync"

	"github.com/wardmote/wardmote/internal/wakeup"
)

// reach holds raft's replication to a server back while the server is out of
// reach, and lets the replication go on with the first heartbeat answered.
//
// Raft counts the failed calls of a server and backs off for longer after each,
// up to 10 s: a voter that comes back after a minute would wait for entries for
// so long, and with it each commit that needs the voter. Heartbeats back off for
// half an election timeout at most, so a leader hears of the server's return from
// them within a few hundred milliseconds. Here a call that failed waits for that
// moment instead of returning the failure.
//
// A call waits for nothing else than the server's return, the end of the term at
// this leader, and the server's removal, and is woken at each of them.
type reach struct {
	// serves reports whether this member leads in the term and the server is in
	// the latest configuration. Nil until raft has begun.
	serves func(server string, term uint64) bool

	changed wakeup.All // an answered heartbeat, or news for serves

	mu       sync.Mutex
	answered map[string]uint64 // answered heartbeats, by server
	down     map[string]bool   // the last heartbeat failed, by server
}

func newReach() *reach {
	return &reach{answered: make(map[string]uint64), down: make(map[string]bool)}
}

// started sets serves. Raft may run already.
func (r *reach) started(serves func(server string, term uint64) bool) {
	r.mu.Lock()
	r.serves = serves
	r.mu.Unlock()
	r.changed.Wake()
}

// serving reports whether this member leads in the term and the server is in the latest
// configuration.
func (r *reach) serving(server string, term uint64) bool {
	r.mu.Lock()
	serves := r.serves
	r.mu.Unlock()
	return serves != nil && serves(server, term)
}

// note takes the result of a heartbeat.
func (r *reach) note(server string, ok bool) {
	r.mu.Lock()
	r.down[server] = !ok
	if ok {
		r.answered[server]++
	}
	r.mu.Unlock()
	if ok {
		r.changed.Wake()
	}
}

// keep runs send, and after a failure runs send again with the server's return,
// for as long as serves is true. It returns the failure when serves is false, and
// when send fails although the server answers heartbeats.
func (r *reach) keep(server string, term uint64, send func() error) error {
	for {
		before := r.count(server)
		err := send()
		if err == nil || r.count(server) != before || !r.wait(server, term, before) {
			return err
		}
	}
}

// await waits until the server answers heartbeats, for as long as serves is true.
func (r *reach) await(server string, term uint64) {
	r.mu.Lock()
	down, before := r.down[server], r.answered[server]
	r.mu.Unlock()
	if down {
		r.wait(server, term, before)
	}
}

func (r *reach) count(server string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answered[server]
}

// wait waits for a heartbeat answered after the first before ones, and reports
// false if serves became false earlier.
func (r *reach) wait(server string, term uint64, before uint64) bool {
	for {
		changed := r.changed.Wait()
		r.mu.Lock()
		serves, back := r.serves, r.answered[server] != before
		r.mu.Unlock()
		switch {
		case serves == nil:
			return false
		case back:
			return true
		case !serves(server, term):
			return false
		}
		<-changed
	}
}
