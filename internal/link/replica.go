package link

import (
	"context"
	"log/slog"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// The contracts of these methods stand on replica.Replica.
var _ replica.Replica = (*Link)(nil)

// Member implements replica.Replica.
func (k *Link) Member() string { return k.cfg.Self.Name }

// Boot implements replica.Replica.
func (k *Link) Boot() uint64 { return k.cfg.Self.Boot }

// Dir implements replica.Replica.
func (k *Link) Dir() machine.DirID { return k.cfg.Dir.ID() }

// Clock implements replica.Replica.
func (k *Link) Clock() *member.Clock { return k.cfg.Self.Clock }

// NextLook implements replica.Replica.
func (k *Link) NextLook(now time.Time, every time.Duration) time.Duration {
	return k.cfg.Self.Grid.Next(now, every)
}

// Log implements replica.Replica.
func (k *Link) Log() *slog.Logger { return k.cfg.Self.Log }

// Cluster implements replica.Replica.
func (k *Link) Cluster() machine.ClusterID { return k.cfg.Cluster() }

// TTL implements replica.Replica.
func (k *Link) TTL() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ttl != 0 {
		return time.Duration(k.ttl) * time.Millisecond
	}
	return k.cfg.TTL
}

// Reached implements replica.Replica.
func (k *Link) Reached() error {
	if _, _, ok := k.Leader(); !ok {
		return k.noQuorum()
	}
	return nil
}

// Local implements replica.Replica.
func (k *Link) Local(f func(*machine.State)) (replica.Copy, bool) { return k.cfg.Local(f) }

// Done implements replica.Replica.
func (k *Link) Done() <-chan struct{} { return k.cfg.Guests.Done() }

// Enter implements replica.Replica.
func (k *Link) Enter() *replica.Guest { return k.cfg.Guests.Enter() }

// Propose implements replica.Replica.
func (k *Link) Propose(ctx context.Context, cmd machine.Command) (machine.Outcome, error) {
	req := request{session: term.SessionOf(cmd)}
	asks := false // for a grant: without the caller, of no use to anybody
	switch cmd.(type) {
	case machine.Acquire, machine.Upgrade:
		one, other := replica.Ends(ctx)
		asks = one != nil || other != nil
	case machine.Close, machine.Release, machine.Withdraw:
		req.frees = true
	}
	o, code, err := callFor(ctx, k, req, &k.outcomes, func(up upstream, done func(machine.Outcome, wire.Code)) func() {
		place := up.Propose(k.subscriber, cmd, done)
		if !asks || place == 0 {
			return nil
		}
		return func() { up.TakeBack(k.subscriber, place) }
	})
	if err == nil && code == wire.CodeNoSession {
		return machine.Outcome{Code: machine.NoSession}, nil
	}
	if err == nil && code == wire.CodeDenied {
		return machine.Outcome{}, &replica.Error{Err: &replica.Denied{Reason: o.Value}}
	}
	k.mu.Lock()
	k.away.noteToken(o.Token + machine.Token(o.Block))
	k.mu.Unlock()
	return o, err
}

// Beat implements replica.Replica.
func (k *Link) Beat(ctx context.Context, id machine.SessionID) error {
	_, code, err := callFor(ctx, k, request{session: id}, nil, func(up upstream, done func(struct{}, wire.Code)) func() {
		up.Beat(k.subscriber, id, func(c wire.Code) { done(struct{}{}, c) })
		return nil
	})
	if err == nil && code != wire.CodeOK {
		err = replica.ErrNoSession
	}
	return err
}

// Read implements replica.Replica.
func (k *Link) Read(ctx context.Context, q replica.Query) (replica.Answer, error) {
	if err := q.Check(); err != nil {
		return replica.Answer{}, err
	}
	a, _, err := call(ctx, k, func(up upstream, done func(replica.Answer, wire.Code)) func() {
		return up.Read(q, done)
	})
	return a, err
}

// Scan implements replica.Replica.
func (k *Link) Scan(ctx context.Context, q replica.Scan) (replica.Scanned, error) {
	if err := q.Check(); err != nil {
		return replica.Scanned{}, err
	}
	a, _, err := call(ctx, k, func(up upstream, done func(replica.Scanned, wire.Code)) func() {
		return up.Scan(q, done)
	})
	return a, err
}

// Granting waits until the founding wait is over, by the word of a confirmed leader.
// An error is a *replica.Error.
func (k *Link) Granting(ctx context.Context) error {
	_, err := k.callForCode(ctx, func(up upstream, done func(wire.Code)) func() { return up.Granting(done) })
	return err
}

// Depart has the leader replace this member as a voter, and waits until the
// configuration does not list the member. An error is a *replica.Error; the leader
// may replace the member all the same.
func (k *Link) Depart(ctx context.Context) error {
	_, err := k.callForCode(ctx, func(up upstream, done func(wire.Code)) func() {
		up.Depart(k.cfg.Self.Name, k.cfg.Self.Boot, done)
		return nil
	})
	return err
}

// callForCode is call for a request without a value in the answer.
func (k *Link) callForCode(ctx context.Context, try func(up upstream, done func(wire.Code)) (cancel func())) (wire.Code, error) {
	_, code, err := call(ctx, k, func(up upstream, done func(struct{}, wire.Code)) func() {
		return try(up, func(c wire.Code) { done(struct{}{}, c) })
	})
	return code, err
}
