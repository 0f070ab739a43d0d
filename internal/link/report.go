package link

import (
	"context"
	"time"

	"github.com/wardmote/wardmote/internal/wire"
)

// Report is what a Link knows of its way to the leader, for people to read.
type Report struct {
	Name, Addr string    // of the leader; empty without one
	Reached    bool      // a leader serves this member
	Via        string    // the address of the voter that relays the stream, or ""
	Term       uint64    // the highest of a leader that has served this member
	Since      time.Time // when Reached last changed; zero: never reached

	// Confirmed is when the last request was sent that a leader has answered after a
	// majority of the voters confirmed the leader; zero: none yet.
	Confirmed time.Time

	// Summary is the last summary of a leader elsewhere, Told when it came, and Sent when
	// it was asked for. Clock is the wall clock of this host at Told.
	Summary          wire.Summary
	Sent, Told, Wall time.Time
}

// known is the part of a Link that only reports need. It is guarded by Link.mu.
type known struct {
	since     time.Time
	confirmed time.Time
	summary   wire.Summary
	sent      time.Time
	told      time.Time
	wall      time.Time
}

// Report asks nobody.
func (k *Link) Report() Report {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := Report{
		Name: k.leader.Name, Addr: k.leader.Addr, Reached: k.up != nil, Term: k.term, Since: k.known.since,
		Confirmed: k.known.confirmed, Summary: k.known.summary, Sent: k.known.sent, Told: k.known.told, Wall: k.known.wall,
	}
	if u, ok := k.up.(*remote); ok {
		r.Via = u.via
	}
	return r
}

// takeSummary keeps a summary of the leader that serves this member.
func (k *Link) takeSummary(u *remote, s wire.Summary, sent time.Time) {
	now, wall := time.Now(), k.cfg.Self.Clock.Wall()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.up == upstream(u) {
		k.known.summary, k.known.sent, k.known.told, k.known.wall = s, sent, now, wall
	}
}

// confirmed notes that a leader was confirmed after the time sent.
func (k *Link) confirmed(sent time.Time) {
	k.mu.Lock()
	if sent.After(k.known.confirmed) {
		k.known.confirmed = sent
	}
	k.mu.Unlock()
}

// Summarize asks the leader for a summary, for Report, and waits for the answer. An error
// is a *replica.Error.
func (k *Link) Summarize(ctx context.Context) error {
	_, err := k.callForCode(ctx, func(up upstream, done func(wire.Code)) func() {
		up.Summarize(func(_ wire.Summary, c wire.Code) { done(c) })
		return nil
	})
	return err
}
