package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// link keeps this member's way to the leader, and is the replica.Replica that
// its clients work on. One goroutine finds the leader and holds the upstream;
// callers use the upstream there is, or wait for one.
type link struct {
	n    *Node
	woke chan struct{} // size 1: something about the leader may have changed

	mu       sync.Mutex
	up       upstream
	name     string // the leader's member name and address, while up
	addr     string
	term     uint64 // the highest term served in
	ttl      uint64 // the bound, in milliseconds, as last told; 0 unknown
	attached map[machine.SessionID]*attachment
	changed  pulse // up has changed
}

// attachment is a session whose events come to this member.
type attachment struct {
	mu   sync.Mutex // calls of sink come one at a time
	sink func(machine.Event)
}

const (
	dialTimeout  = 2 * time.Second
	leastBackoff = 20 * time.Millisecond
	mostBackoff  = 500 * time.Millisecond
	checkEvery   = time.Second
	// Without a leader for so long, the quorum counts as lost.
	quorumPatience = 5 * time.Second
	maxHops        = 3
)

func newLink(n *Node) *link {
	return &link{n: n, woke: make(chan struct{}, 1), attached: make(map[machine.SessionID]*attachment)}
}

// wake has the link look again at who leads.
func (k *link) wake() {
	select {
	case k.woke <- struct{}{}:
	default:
	}
}

// run finds leaders until ctx ends.
func (k *link) run(ctx context.Context) {
	backoff := leastBackoff
	alone, told := time.Now(), false
	for ctx.Err() == nil {
		gossiped := k.n.gossip.changed.wait()
		up := k.connect(ctx)
		if up == nil {
			if !told && time.Since(alone) > quorumPatience && k.n.founding.Load() != nil {
				told = true
				k.n.event(Event{Kind: QuorumLost, Detail: k.n.quorumText()})
			}
			t := time.NewTimer(backoff/2 + rand.N(backoff/2))
			select {
			case <-t.C:
			case <-gossiped:
			case <-k.woke:
			case <-ctx.Done():
			}
			t.Stop()
			backoff = min(2*backoff, mostBackoff)
			continue
		}
		backoff = leastBackoff
		if told {
			told = false
			k.n.event(Event{Kind: QuorumRegained})
		}
		k.hold(ctx, up)
		alone = time.Now()
		k.mu.Lock()
		k.up, k.name, k.addr = nil, "", ""
		k.mu.Unlock()
		k.changed.fire()
		up.close()
	}
}

// hold waits until up is gone, or there is a better one.
func (k *link) hold(ctx context.Context, up upstream) {
	t := time.NewTicker(checkEvery)
	defer t.Stop()
	for {
		gossiped := k.n.gossip.changed.wait()
		if k.better(up) {
			return
		}
		select {
		case <-up.gone():
			return
		case <-ctx.Done():
			return
		case <-k.woke:
		case <-gossiped:
		case now := <-t.C:
			if up.stalled(now) {
				return
			}
		}
	}
}

// better reports whether a newer leader than up's is known.
func (k *link) better(up upstream) bool {
	l := k.n.leader.Load()
	r, ok := up.(*remote)
	if !ok {
		return l != up.(local).l
	}
	if l != nil {
		return l.term >= r.term
	}
	for _, s := range k.n.gossip.alive() {
		if s.meta.Leads > r.term {
			return true
		}
	}
	return false
}

// connect finds the leader and attaches to it, or returns nil.
func (k *link) connect(ctx context.Context) upstream {
	if k.n.founding.Load() == nil {
		return nil
	}
	if up := k.connectLocal(); up != nil {
		return up
	}
	candidates := k.candidates()
	tried := make(map[string]bool)
	hops := 0
	for len(candidates) > 0 && ctx.Err() == nil {
		addr := candidates[0]
		candidates = candidates[1:]
		if tried[addr] || addr == k.n.addr {
			continue
		}
		tried[addr] = true
		up, hint := k.connectRemote(ctx, addr)
		if up != nil {
			return up
		}
		if up := k.connectLocal(); up != nil {
			return up
		}
		if hint.Addr != "" && hops < maxHops {
			hops++
			candidates = append([]string{hint.Addr}, candidates...)
		}
	}
	return nil
}

// connectLocal attaches to this node's own leader, if there is one and it is
// not older than one that has served this member.
func (k *link) connectLocal() upstream {
	l := k.n.leader.Load()
	k.mu.Lock()
	term := k.term
	k.mu.Unlock()
	m := &member{push: k.deliver, bound: k.bounded}
	if l == nil || l.term < term || !l.join(m) {
		return nil
	}
	up := local{l, m}
	k.install(up, k.n.cfg.Name, k.n.addr, wire.AttachAnswer{Term: l.term, TTL: l.bound()})
	l.attach(m, k.sessions())
	return up
}

// candidates lists where the leader may be, best guess first.
func (k *link) candidates() []string {
	var out []string
	if r := k.n.roles.current(); r != nil {
		if id := r.leaderID(); id != "" {
			if at, err := k.n.resolve(id); err == nil {
				out = append(out, at.addr)
			}
		}
	}
	members := k.n.gossip.alive()
	rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	slices.SortStableFunc(members, func(a, b sighting) int {
		switch {
		case a.meta.Leads != b.meta.Leads:
			if a.meta.Leads > b.meta.Leads {
				return -1
			}
			return 1
		case a.meta.Voter != b.meta.Voter:
			if a.meta.Voter {
				return -1
			}
			return 1
		}
		return 0
	})
	const most = 8
	for _, s := range members[:min(len(members), most)] {
		out = append(out, s.addr)
	}
	return out
}

// connectRemote asks the member at addr to serve this one.
func (k *link) connectRemote(ctx context.Context, addr string) (upstream, wire.Hint) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := k.n.port.Dial(ctx, addr, port.KindMember, port.Peer{})
	if err != nil {
		return nil, wire.Hint{}
	}
	up := &remote{}
	up.rpc = newRPC(conn, func(q *request) {
		switch q.Type {
		case wire.Event:
			if e, _, err := machine.DecodeEvent(q.Body); err == nil {
				k.deliver(e)
			}
		case wire.Bound:
			var a wire.AttachAnswer
			if wire.Unmarshal(q.Body, &a) == nil {
				k.bounded(a)
			}
		default:
			q.answer(wire.CodeBad, nil)
		}
	})
	up.rpc.start()
	k.mu.Lock()
	term := k.term
	k.mu.Unlock()
	sessions := k.sessions()
	var a wire.AttachAnswer
	for more := true; more; more = len(sessions) > 0 {
		part := sessions[:min(len(sessions), wire.MaxAttach)]
		sessions = sessions[len(part):]
		f, _, err := up.rpc.call(ctx, wire.Attach, wire.Marshal(&wire.AttachRequest{Sessions: part, Term: term}))
		var hint wire.Hint
		if err != nil || f.Code != wire.CodeOK {
			if err == nil && f.Code == wire.CodeNotLeader {
				_ = wire.Unmarshal(f.Body, &hint)
			}
			up.rpc.close()
			return nil, hint
		}
		if wire.Unmarshal(f.Body, &a) != nil {
			up.rpc.close()
			return nil, hint
		}
	}
	up.term = a.Term
	k.install(up, conn.Remote.Name, addr, a)
	return up, wire.Hint{}
}

// install lets callers use up.
func (k *link) install(up upstream, name, addr string, a wire.AttachAnswer) {
	k.mu.Lock()
	news := k.term != a.Term || k.name != name
	k.up, k.name, k.addr = up, name, addr
	k.term, k.ttl = max(k.term, a.Term), a.TTL
	k.mu.Unlock()
	k.changed.fire()
	if news {
		k.n.event(Event{Kind: LeaderChanged, Member: Member{Name: name, Addr: addr}, Term: a.Term})
	}
}

func (k *link) bounded(a wire.AttachAnswer) {
	k.mu.Lock()
	k.ttl = a.TTL
	k.mu.Unlock()
}

// leader is where this member is attached.
func (k *link) leader() (name, addr string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.name, k.addr, k.up != nil
}

// sessions lists those whose events come to this member.
func (k *link) sessions() []machine.SessionID {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := make([]machine.SessionID, 0, len(k.attached))
	for id := range k.attached {
		ids = append(ids, id)
	}
	return ids
}

// deliver tells a session's client an event.
func (k *link) deliver(e machine.Event) {
	k.mu.Lock()
	a := k.attached[e.Session]
	k.mu.Unlock()
	if a == nil {
		return
	}
	a.mu.Lock()
	a.sink(e)
	a.mu.Unlock()
}

func (k *link) current() (upstream, <-chan struct{}) {
	changed := k.changed.wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.up, changed
}

// call has try run on the upstream until it gets a verdict, waiting for one
// and repeating it over changes and lost answers until ctx ends.
func call[T any](ctx context.Context, k *link, try func(upstream, func(T, wire.Code)) (cancel func())) (T, wire.Code, error) {
	type verdict struct {
		value T
		code  wire.Code
	}
	var zero T
	unknown := false
	fail := func(err error) (T, wire.Code, error) { return zero, 0, &replica.Error{Unknown: unknown, Err: err} }
	backoff := leastBackoff
	for {
		if err := ctx.Err(); err != nil {
			return fail(context.Cause(ctx))
		}
		if k.n.ctx.Err() != nil {
			return fail(k.n.stopCause())
		}
		up, changed := k.current()
		if up == nil {
			select {
			case <-changed:
			case <-k.n.ctx.Done():
			case <-ctx.Done():
				return fail(fmt.Errorf("%w: %w", k.noQuorum(), context.Cause(ctx)))
			}
			continue
		}
		ch := make(chan verdict, 1)
		cancel := try(up, func(v T, c wire.Code) { ch <- verdict{v, c} })
		v := verdict{code: wire.CodeUnknown}
		select {
		case v = <-ch:
		case <-up.gone():
			// A leader whose disk hangs may never answer.
			select {
			case v = <-ch:
			default:
				if cancel != nil {
					cancel()
				}
			}
		case <-ctx.Done():
			if cancel != nil {
				cancel()
			}
			unknown = true
			return fail(context.Cause(ctx))
		case <-k.n.ctx.Done():
			unknown = true
			return fail(k.n.stopCause())
		}
		switch v.code {
		case wire.CodeOK, wire.CodeNo, wire.CodeNoSession:
			return v.value, v.code, nil
		case wire.CodeVersion:
			return fail(ErrVersion)
		case wire.CodeBad:
			// What this member lets out is well formed, to members of its age.
			return fail(fmt.Errorf("%w: the leader does not understand the request", ErrVersion))
		case wire.CodeNotLeader, wire.CodeBusy:
		default: // what a later version says, too
			unknown = true
		}
		// Not leader, busy, or unknown: again, elsewhere or after a pause.
		t := time.NewTimer(backoff/2 + rand.N(backoff/2))
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
		case <-k.n.ctx.Done():
		}
		t.Stop()
		backoff = min(2*backoff, mostBackoff)
	}
}

func (k *link) noQuorum() error { return fmt.Errorf("%w: %s", ErrNoQuorum, k.n.quorumText()) }

// Below is replica.Replica.

var _ replica.Replica = (*link)(nil)

func (k *link) Member() string { return k.n.cfg.Name }

func (k *link) Cluster() machine.ClusterID { return k.n.clusterID() }

func (k *link) TTL() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ttl != 0 {
		return time.Duration(k.ttl) * time.Millisecond
	}
	return k.n.cfg.TTL
}

func (k *link) Reached() error {
	if _, _, ok := k.leader(); !ok {
		return k.noQuorum()
	}
	return nil
}

func (k *link) Done() <-chan struct{} { return k.n.ctx.Done() }

func (k *link) Propose(ctx context.Context, cmd machine.Command) (machine.Outcome, error) {
	o, _, err := call(ctx, k, func(up upstream, done func(machine.Outcome, wire.Code)) func() {
		up.propose(cmd, done)
		return nil
	})
	return o, err
}

func (k *link) Beat(ctx context.Context, id machine.SessionID) error {
	_, code, err := call(ctx, k, func(up upstream, done func(struct{}, wire.Code)) func() {
		up.beat(id, func(c wire.Code) { done(struct{}{}, c) })
		return nil
	})
	if err == nil && code != wire.CodeOK {
		err = replica.ErrNoSession
	}
	return err
}

func (k *link) Attach(id machine.SessionID, sink func(machine.Event)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.attached[id] = &attachment{sink: sink}
}

func (k *link) Detach(id machine.SessionID) {
	k.mu.Lock()
	delete(k.attached, id)
	up := k.up
	k.mu.Unlock()
	if up != nil {
		up.detach(id)
	}
}

func (k *link) Read(ctx context.Context, q replica.Query) (replica.Answer, error) {
	if err := checkQuery(q); err != nil {
		return replica.Answer{}, err
	}
	a, _, err := call(ctx, k, func(up upstream, done func(replica.Answer, wire.Code)) func() {
		return up.read(q, done)
	})
	return a, err
}

func (k *link) Scan(ctx context.Context, q replica.Scan) (replica.Scanned, error) {
	if err := checkScan(q); err != nil {
		return replica.Scanned{}, err
	}
	a, _, err := call(ctx, k, func(up upstream, done func(replica.Scanned, wire.Code)) func() {
		return up.scan(q, done)
	})
	return a, err
}

// granting waits until the cluster grants.
func (k *link) granting(ctx context.Context) error {
	_, _, err := call(ctx, k, func(up upstream, done func(struct{}, wire.Code)) func() {
		up.granting(func(c wire.Code) { done(struct{}{}, c) })
		return nil
	})
	return err
}

// depart has the leader replace this member as a voter.
func (k *link) depart(ctx context.Context) error {
	_, _, err := call(ctx, k, func(up upstream, done func(struct{}, wire.Code)) func() {
		up.depart(k.n.cfg.Name, k.n.boot, func(c wire.Code) { done(struct{}{}, c) })
		return nil
	})
	return err
}
