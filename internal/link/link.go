package link

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// Config is everything a Link needs of its node. Every field must be set. The
// functions may be called from any goroutine and must not block, except Dial.
type Config struct {
	Self member.Self
	TTL  time.Duration // of this member's sessions, until a leader tells the bound

	// Cluster returns the ID of the cluster, zero while this member is in none.
	Cluster func() machine.ClusterID

	// Leading returns the term in which this node leads, or nil.
	Leading func() Leader

	// Guess returns the leader of this node's own raft, if any.
	Guess func() (member.Process, bool)

	// Members returns the living members. The channel of Gossiped is closed at
	// the next change of Members.
	Members  func() []member.Sighting
	Gossiped func() <-chan struct{}

	// Dial opens a member stream to addr, and returns the name of the member
	// found there.
	Dial func(ctx context.Context, addr string) (conn net.Conn, name string, err error)

	// Explain gives the reason why there is no quorum.
	Explain func() string

	// Done is closed when the node stops; Cause then says why.
	Done  <-chan struct{}
	Cause func() error

	// Events, called by Run.
	LeaderChanged  func(leader member.Process, term uint64) // a leader serves this member, maybe the same again
	QuorumLost     func(detail string)                      // no leader for timing.QuorumPatience
	QuorumRegained func()                                   // after QuorumLost
}

// A Link is this member's way to the leader. Run finds the leader and keeps the
// upstream; calls use the present upstream, or wait for the next. Every method but Run
// may be called from any goroutine.
type Link struct {
	cfg        Config
	look       wakeup.One       // another leader may be known
	subscriber *term.Subscriber // in this node's own terms

	mu       sync.Mutex
	up       upstream // nil: no leader is reached
	name     string   // the leader's member name and address, while up is set
	addr     string
	term     uint64 // the highest term to have served this member
	ttl      uint64 // the bound of session TTLs as last told, in milliseconds; 0 unknown
	attached map[machine.SessionID]*attachment
	changed  wakeup.All // up has changed
}

// attachment is an attached session of this member.
type attachment struct {
	mu   sync.Mutex // calls of sink do not overlap
	sink func(machine.Event)
}

// New returns a Link without an upstream.
func New(cfg Config) *Link {
	k := &Link{cfg: cfg, look: wakeup.NewOne(), attached: make(map[machine.SessionID]*attachment)}
	k.subscriber = &term.Subscriber{Event: k.deliver, Bound: k.setBound}
	return k
}

// Wake has Run look at once for a leader, or for a newer leader. Wake does not
// block.
func (k *Link) Wake() { k.look.Wake() }

// Changed returns a channel, closed as soon as a leader is found or lost.
func (k *Link) Changed() <-chan struct{} { return k.changed.Wait() }

// Leader returns the name and address of the leader that serves this member. Ok
// is false if there is none at the moment.
func (k *Link) Leader() (name, addr string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.name, k.addr, k.up != nil
}

// Run finds the leader and keeps an upstream, again and again until ctx ends.
func (k *Link) Run(ctx context.Context) {
	backoff := timing.LeastBackoff
	alone, lost := time.Now(), false // since when without a leader; whether QuorumLost was called
	for ctx.Err() == nil {
		gossiped := k.cfg.Gossiped()
		up := k.connect(ctx)
		if up == nil {
			if !lost && time.Since(alone) > timing.QuorumPatience && k.inCluster() {
				lost = true
				k.cfg.QuorumLost(k.cfg.Explain())
			}
			t := time.NewTimer(jitter(backoff))
			select {
			case <-t.C:
			case <-gossiped:
			case <-k.look:
			case <-ctx.Done():
			}
			t.Stop()
			backoff = min(2*backoff, timing.MostBackoff)
			continue
		}
		backoff = timing.LeastBackoff
		if lost {
			lost = false
			k.cfg.QuorumRegained()
		}
		k.stay(ctx, up)
		alone = time.Now()
		k.mu.Lock()
		k.up, k.name, k.addr = nil, "", ""
		k.mu.Unlock()
		k.changed.Wake()
		up.Quit(k.subscriber)
	}
}

// jitter returns half of d to all of d, so that members do not move in step.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

// stay returns when up has ended or does not answer, when a newer leader is known,
// or when ctx has ended.
func (k *Link) stay(ctx context.Context, up upstream) {
	t := time.NewTicker(timing.EstablishedLook)
	defer t.Stop()
	for {
		gossiped := k.cfg.Gossiped()
		if k.newerKnown(up) {
			return
		}
		select {
		case <-up.Done():
			return
		case <-ctx.Done():
			return
		case <-k.look:
		case <-gossiped:
		case now := <-t.C:
			if r, ok := up.(*remote); ok && r.stalled(now) {
				return
			}
		}
	}
}

// newerKnown reports whether a newer leader than up's is known.
func (k *Link) newerKnown(up upstream) bool {
	own := k.cfg.Leading()
	r, ok := up.(*remote)
	if !ok {
		return own != up
	}
	if own != nil {
		return own.Number() >= r.term
	}
	for _, m := range k.cfg.Members() {
		if m.Meta.Leads > r.term {
			return true
		}
	}
	return false
}

// install makes up the upstream of all calls, and reports the leader.
func (k *Link) install(up upstream, name, addr string, a wire.AttachAnswer) {
	k.mu.Lock()
	k.up, k.name, k.addr = up, name, addr
	k.term, k.ttl = max(k.term, a.Term), a.TTL
	k.mu.Unlock()
	k.changed.Wake()
	k.cfg.LeaderChanged(member.Process{Name: name, Addr: addr}, a.Term)
}

// current returns the upstream, or nil. The channel is closed when the upstream
// changes.
func (k *Link) current() (upstream, <-chan struct{}) {
	changed := k.changed.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.up, changed
}

func (k *Link) servedTerm() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.term
}

func (k *Link) inCluster() bool { return k.cfg.Cluster() != machine.ClusterID{} }

func (k *Link) noQuorum() error {
	return fmt.Errorf("%w: %s", replica.ErrNoQuorum, k.cfg.Explain())
}

// setBound stores the bound of session TTLs, as told by the leader.
func (k *Link) setBound(a wire.AttachAnswer) {
	k.mu.Lock()
	k.ttl = a.TTL
	k.mu.Unlock()
}

// sessions lists the attached sessions.
func (k *Link) sessions() []machine.SessionID {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.attached))
}

// deliver tells a session's client an event.
func (k *Link) deliver(e machine.Event) {
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
