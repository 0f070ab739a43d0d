package link

import (
	"context"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// The contracts of these methods stand on replica.Replica.
var _ replica.Replica = (*Link)(nil)

// Member implements replica.Replica.
func (k *Link) Member() string { return k.cfg.Self.Name }

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

// Done implements replica.Replica.
func (k *Link) Done() <-chan struct{} { return k.cfg.Done }

// Propose implements replica.Replica.
func (k *Link) Propose(ctx context.Context, cmd machine.Command) (machine.Outcome, error) {
	o, _, err := call(ctx, k, func(up upstream, done func(machine.Outcome, wire.Code)) func() {
		up.Propose(k.subscriber, cmd, done)
		return nil
	})
	return o, err
}

// Beat implements replica.Replica.
func (k *Link) Beat(ctx context.Context, id machine.SessionID) error {
	code, err := k.callForCode(ctx, func(up upstream, done func(wire.Code)) { up.Beat(k.subscriber, id, done) })
	if err == nil && code != wire.CodeOK {
		err = replica.ErrNoSession
	}
	return err
}

// Attach implements replica.Replica.
func (k *Link) Attach(id machine.SessionID, sink func(machine.Event)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.attached[id] = &attachment{sink: sink}
}

// Detach implements replica.Replica.
func (k *Link) Detach(id machine.SessionID) {
	k.mu.Lock()
	delete(k.attached, id)
	up := k.up
	k.mu.Unlock()
	if up != nil {
		up.Detach(id)
	}
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
	_, err := k.callForCode(ctx, func(up upstream, done func(wire.Code)) { up.Granting(done) })
	return err
}

// Depart has the leader replace this member as a voter, and waits until the
// configuration does not list the member. An error is a *replica.Error; the leader
// may replace the member all the same.
func (k *Link) Depart(ctx context.Context) error {
	_, err := k.callForCode(ctx, func(up upstream, done func(wire.Code)) {
		up.Depart(k.cfg.Self.Name, k.cfg.Self.Boot, done)
	})
	return err
}

// callForCode is call for a request without a value in the answer.
func (k *Link) callForCode(ctx context.Context, try func(up upstream, done func(wire.Code))) (wire.Code, error) {
	_, code, err := call(ctx, k, func(up upstream, done func(struct{}, wire.Code)) func() {
		try(up, func(c wire.Code) { done(struct{}{}, c) })
		return nil
	})
	return code, err
}
