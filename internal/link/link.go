package link

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// Config is everything a Link needs of its node. Every field but Dir must be set. The
// functions may be called from any goroutine and must not block, except Dial.
type Config struct {
	Self member.Self
	TTL  time.Duration // of this member's sessions, until a leader tells the bound

	Signer *wire.KeySigner // of the sessions' keys
	Dir    *wire.DirKey    // of this member's directory; nil: it has none, and forgets nothing

	// Cluster returns the ID of the cluster, zero while this member is in none.
	Cluster func() machine.ClusterID

	// Leading returns the term in which this node leads, or nil.
	Leading func() Leader

	// Guess returns the leader of this node's own raft and its term, if any. Votes reports
	// whether that raft's configuration lists this node as a voter.
	Guess func() (leader member.Process, term uint64, ok bool)
	Votes func() bool

	// VoterAddrs returns addresses at which voters may be, as known without gossip or a
	// leader. OtherAddrs returns addresses at which any member may be.
	VoterAddrs func() []string
	OtherAddrs func() []string

	// Members returns the living members, and Claimants those of the others that say that they vote
	// or lead, with the number of all: each look at thousands would cost too much. The channel of
	// Gossiped is closed at the next change of Members.
	Members   func() []member.Sighting
	Claimants func() (claimants []member.Sighting, living int)
	Gossiped  func() <-chan struct{}

	// Dial opens a member stream to a member, of any name if the name is empty. Via is
	// the address of the voter that relays the stream, or "".
	Dial func(ctx context.Context, to member.Process, via string) (Way, error)

	// Voters is told the state of the voters by each leader of a cluster. Voters must
	// not block.
	Voters func(cluster machine.ClusterID, set wire.VoterSet)

	// Describe returns this member's own description, encoded, for the leader.
	Describe func() []byte

	// Explain gives the reason why there is no quorum.
	Explain func() string

	// Local is replica.Replica's.
	Local func(f func(*machine.State)) (replica.Copy, bool)

	// Guests are the sessions of this node's clients. The node stops after them.
	Guests *replica.Guests

	// AllEnd reports whether every other member has said that it ends. The result
	// may change when the channel of Gossiped or of Proved is closed: Proved tells
	// that a process has ended for certain.
	AllEnd func() bool
	Proved func() <-chan struct{}

	// Done is closed when the node stops; Cause then says why.
	Done  <-chan struct{}
	Cause func() error

	// Events, called by Run.
	LeaderChanged  func(leader member.Process, term uint64) // another leader or term serves this member
	QuorumLost     func(detail string)                      // a leader is missed for timing.QuorumPatience
	QuorumRegained func()                                   // after QuorumLost
}

// A Link is this member's way to the leader. Run finds the leader and keeps the
// upstream; calls use the present upstream, or wait for the next. Every method but Run
// may be called from any goroutine.
type Link struct {
	cfg        Config
	look       wakeup.One       // Run should look again
	news       atomic.Bool      // Wake was called: another leader may be known
	subscriber *term.Subscriber // in this node's own terms
	showFew    atomic.Bool      // sessions are shown in small requests: a large one had no answer

	mu       sync.Mutex
	up       upstream       // nil: no leader is reached
	reached  time.Time      // since when a leader is reached, or was, whichever leader
	leader   member.Process // without a boot, while up is set
	term     uint64         // the highest term to have served this member
	ttl      uint64         // the bound of session TTLs as last told, in milliseconds; 0 unknown
	members  int            // attached to the leader, as last told
	voters   []string       // addresses, as last told
	attached map[machine.SessionID]*attachment
	claims   uint64     // calls of Claim
	changed  wakeup.All // up has changed

	outcomes sync.Pool // of *verdict[machine.Outcome]

	describing sync.Mutex // descriptions leave in the order of their making

	known known // for reports

	away awayState // from the cluster: see away.go
}

// New returns a Link without an upstream.
func New(cfg Config) *Link {
	k := &Link{cfg: cfg, look: wakeup.NewOne(), attached: make(map[machine.SessionID]*attachment)}
	k.away.lost, k.away.clock = time.Now(), cfg.Self.Clock
	k.subscriber = &term.Subscriber{Node: cfg.Self.Name, Boot: cfg.Self.Boot, Dir: cfg.Dir.ID(), Event: k.deliver, Bound: k.setBound, Voters: func(set wire.VoterSet) { k.votersTold(cfg.Cluster(), set) }}
	return k
}

// Wake has Run look at once for a leader, or for a newer leader. Wake does not
// block.
func (k *Link) Wake() {
	k.news.Store(true)
	k.look.Wake()
}

// Changed returns a channel, closed as soon as a leader is found or lost.
func (k *Link) Changed() <-chan struct{} { return k.changed.Wait() }

// Leader returns the name and address of the leader that serves this member. Ok
// is false if there is none at the moment.
func (k *Link) Leader() (name, addr string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leader.Name, k.leader.Addr, k.up != nil
}

// Term returns the highest term of a leader that has served this member.
func (k *Link) Term() uint64 { return k.servedTerm() }

// Voters returns the addresses of the voters, as last told by a leader or a voter.
func (k *Link) Voters() []string { return k.told() }

// Run finds the leader and keeps an upstream, again and again until ctx ends.
func (k *Link) Run(ctx context.Context) {
	r := &run{k: k, f: newFinder(k), cluster: k.cfg.Cluster()}
	if r.cluster != (machine.ClusterID{}) {
		r.missed = time.Now() // a cluster of before has a leader
	}
	defer func() {
		r.f.stop()
		r.leave()
	}()
	for ctx.Err() == nil {
		gossiped := k.cfg.Gossiped()
		next := r.look(ctx)
		var done <-chan struct{}
		if r.f.up != nil {
			done = r.f.up.Done()
		}
		due := time.NewTimer(time.Hour) // events have all news, but for the time of the next look
		if !next.IsZero() {
			due.Reset(time.Until(next))
		}
		select {
		case reply := <-r.f.replies:
			if won := r.f.take(reply); won != nil {
				r.follow(won)
			}
		case <-r.f.aging():
		case <-done:
		case <-due.C:
		case <-gossiped:
		case <-k.look:
		case <-ctx.Done():
		}
		due.Stop()
	}
}

// run is the state of Run.
type run struct {
	k       *Link
	f       *finder
	cluster machine.ClusterID // of the upstream and the terms
	missed  time.Time         // since when a leader is missed; zero: none was reached yet
	lost    bool              // QuorumLost was called
	leaves  uint64            // calls of Leave seen
	leader  member.Process    // as told by LeaderChanged
	term    uint64
}

// look leaves an upstream that has ended, attaches to this node's own term, and has
// the finder ask. It returns the time of the next look, or zero.
func (r *run) look(ctx context.Context) (next time.Time) {
	k := r.k
	leaves, away := k.away.seen(&k.mu)
	if id := k.cfg.Cluster(); id != r.cluster || leaves != r.leaves {
		r.leaves = leaves
		r.enter(id)
	}
	if away {
		return r.tellLost()
	}
	f := r.f
	if k.news.Swap(false) {
		f.refresh()
	}
	own := k.cfg.Leading()
	if f.up != nil {
		_, elsewhere := f.up.(*remote)
		if !elsewhere && own != f.up || ended(f.up) || f.silentTooLong() || f.jury.against {
			r.leave()
		}
	}
	if won := f.judgeRival(); won != nil {
		r.follow(won)
	}
	if r.cluster == (machine.ClusterID{}) {
		return next
	}
	if own != nil && own != f.up && own.Number() >= k.servedTerm() && own.Join(k.subscriber) {
		keys, fresh, claims := k.keys()
		own.Attach(k.subscriber, keys, fresh)
		r.serve(own, member.Process{Name: k.cfg.Self.Name, Addr: k.cfg.Self.Addr}, wire.AttachAnswer{Term: own.Number(), TTL: own.Bound()}, claims)
	}
	next = f.ask(ctx)
	if due := r.tellLost(); next.IsZero() || !due.IsZero() && due.Before(next) {
		next = due
	}
	return next
}

// tellLost tells once that a leader has been missed for timing.QuorumPatience, also
// while this member is between two clusters. Before, it returns the time to tell.
func (r *run) tellLost() (due time.Time) {
	k := r.k
	if r.f.up != nil || r.lost || r.missed.IsZero() {
		return time.Time{}
	}
	due = r.missed.Add(timing.QuorumPatience(k.TTL()))
	if time.Now().Before(due) {
		return due
	}
	r.lost = true
	k.cfg.QuorumLost(k.cfg.Explain())
	return time.Time{}
}

// enter begins anew in another cluster: terms and voters of the cluster before mean
// nothing there.
func (r *run) enter(id machine.ClusterID) {
	if r.cluster != (machine.ClusterID{}) {
		r.leave()
		r.f.stop()
		r.f = newFinder(r.k)
		r.k.mu.Lock()
		r.k.term, r.k.members, r.k.voters = 0, 0, nil
		r.k.known = known{since: r.k.known.since}
		r.k.mu.Unlock()
	}
	r.cluster = id
	r.leader, r.term = member.Process{}, 0 // the same member may lead in a term of the same number
	r.f.since = time.Now()
}

func ended(up upstream) bool {
	select {
	case <-up.Done():
		return true
	default:
		return false
	}
}

// follow makes an attached leader the upstream.
func (r *run) follow(won *reply) {
	doubts := !r.f.vouchedFor(won)
	r.serve(won.up, won.leader(), won.attach, won.claims)
	r.f.jury.doubts = doubts && !r.f.agreedOn(won.up) // the first leader may be its whole jury
}

// serve makes up the upstream of all calls, and then leaves the upstream before. The
// keys of the first so many claims were shown to up. The others are shown first: a
// call on up must not overtake the key of its session.
func (r *run) serve(up upstream, leader member.Process, a wire.AttachAnswer, claims uint64) {
	k, before := r.k, r.f.up
	r.f.dropRival()
	r.f.seatJury(leader.Name, a.Term)
	k.mu.Lock()
	for k.claims > claims {
		fresh := k.claimedSinceLocked(claims)
		claims = k.claims
		k.mu.Unlock()
		up.Show(k.subscriber, fresh...)
		k.mu.Lock()
	}
	if k.away.away || k.away.leaves != r.leaves {
		k.mu.Unlock()
		up.Quit(k.subscriber) // of the cluster that this member has left meanwhile
		return
	}
	r.f.attached(up, leader)
	if k.up == nil {
		k.reached = time.Now()
		k.known.since = k.reached
	}
	k.up, k.leader = up, leader
	k.term, k.ttl = max(k.term, a.Term), a.TTL
	k.away.noteTTL(a.TTL)
	k.members = a.Members
	k.mu.Unlock()
	k.learn(a.Voters)
	k.describeTo(up)
	k.changed.Wake()
	if before != nil {
		before.Quit(k.subscriber)
	}
	r.missed = time.Time{}
	if r.lost {
		r.lost = false
		k.cfg.QuorumRegained()
	}
	if r.leader.Name != leader.Name || r.term != a.Term { // whatever the way
		r.leader, r.term = leader, a.Term
		k.cfg.LeaderChanged(leader, a.Term)
	}
	if u, ok := up.(*remote); ok {
		k.believe(u)
	}
}

// leave leaves the upstream, if any.
func (r *run) leave() {
	k, up := r.k, r.f.up
	if up == nil {
		return
	}
	r.f.left()
	r.missed = time.Now()
	k.mu.Lock()
	if k.up != nil {
		k.away.lost, k.known.since = r.missed, r.missed
	}
	k.up, k.leader = nil, member.Process{}
	k.mu.Unlock()
	k.changed.Wake()
	up.Quit(k.subscriber)
}

// jitter returns half of d to all of d, so that members do not move in step.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

// learn takes the addresses of the voters, as told by a leader or a voter.
func (k *Link) learn(voters []string) {
	if voters = firstAddrs(voters); len(voters) == 0 {
		return
	}
	k.mu.Lock()
	k.voters = voters
	k.mu.Unlock()
}

// learnFrom takes the voters of a hint while nobody leads, if known says that the teller is a
// voter that this member knows: a false leader would tell voters of its own, for the jury that
// judges it. A leader tells its voters itself. A voter that was cut off for long may know the
// voters of the past alone, and then knows no present leader.
func (k *Link) learnFrom(h wire.Hint, known bool) {
	if up, _ := k.current(); up != nil {
		return
	}
	if known && (len(k.told()) == 0 || h.Votes && h.Leader != "" && h.Term >= k.servedTerm()) {
		k.learn(h.Voters)
	}
}

func (k *Link) told() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.voters)
}

func (k *Link) attachedMembers() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.members
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

func (k *Link) noQuorum() error {
	return &replica.NoQuorum{Reason: k.cfg.Explain()}
}
