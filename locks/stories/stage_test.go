package stories

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
	"github.com/wardmote/wardmote/transport"
)

// TestMain runs the stories on one thread. A bubble's clock advances only while all
// of its goroutines are blocked, so a second thread saves no time and costs 1.4
// times the CPU. With two threads the race detector crashes as well, see
// golang.org/issue/78156.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	testrounds.CollectRarely()
	os.Exit(m.Run())
}

// soon is the longest delay of a step behind its moment in the timeline: a few
// trips over the network, an entry of the log, or the leader's next look at its
// deadlines.
const soon = 250 * time.Millisecond

// A service grants locks to clients on numbered members. The cluster is one; the
// others are in naive_test.go.
type service interface {
	client(i int, opts locks.Options) client
	Kill(i int)
	// Pause stops the messages of a member, Freeze the whole member.
	Pause(i int)
	Resume(i int)
	Freeze(i int)
	Thaw(i int)
	Isolate(members ...int)
	Heal()
	// slow delays all messages from one member to another by d.
	slow(from, to int, d time.Duration)
}

// A client acquires locks of a service.
type client interface {
	Acquire(ctx context.Context, key string, opts ...locks.Option) (grant, error)
	TryAcquire(ctx context.Context, key string, opts ...locks.Option) (grant, error)
	AcquireAll(ctx context.Context, keys []string) (releaser, error)
}

type releaser interface{ Release(context.Context) error }

// A grant is a lock that a service has granted: a *locks.Lock, or a *naiveGrant.
type grant interface {
	releaser
	Token() fence.Token // 0 if the service has no tokens
	Context() context.Context
	Err() error
	Remaining() time.Duration
	Require(time.Duration) error
	Renew(context.Context) error
}

// wardmote is the service on trial: a cluster.
type wardmote struct{ *lockstest.Cluster }

func (w wardmote) client(i int, opts locks.Options) client { return member{w.NewClient(i, opts)} }

func (w wardmote) slow(from, to int, d time.Duration) {
	w.SetLink(from, to, transport.Link{Delay: d})
}

// A member is a client of wardmote.
type member struct{ *locks.Client }

func (m member) Acquire(ctx context.Context, key string, opts ...locks.Option) (grant, error) {
	l, err := m.Client.Acquire(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (m member) TryAcquire(ctx context.Context, key string, opts ...locks.Option) (grant, error) {
	l, err := m.Client.TryAcquire(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (m member) AcquireAll(ctx context.Context, keys []string) (releaser, error) {
	set, err := m.Client.AcquireAll(ctx, keys)
	if err != nil {
		return nil, err
	}
	return set, nil
}

// do holds key while f runs.
func do(ctx context.Context, c client, key string, f func(), opts ...locks.Option) error {
	if m, ok := c.(member); ok {
		return m.Do(ctx, key, func(context.Context, *locks.Lock) error { f(); return nil }, opts...)
	}
	g, err := c.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	f()
	return g.Release(ctx)
}

// A resource is changed under a lock. It refuses a write with an older token than
// the largest it has seen, unless unfenced is set or the lock has no token.
type resource struct {
	unfenced bool
	guard    fence.Guard
}

// open is the first access under a lock, before anything is read.
func (r *resource) open(g grant) error {
	if r.unfenced || g.Token() == 0 {
		return nil
	}
	return r.guard.Claim(g.Token())
}

func (r *resource) write(g grant, change func()) error {
	if r.unfenced || g.Token() == 0 {
		change()
		return nil
	}
	return r.guard.Do(g.Token(), func() error { change(); return nil })
}

// A stage is a service with a clock that starts when the timeline does. Its checks
// each name a claim.
type stage struct {
	service
	t       *testing.T
	ctx     context.Context // ends long after the timeline, should a step block
	zero    time.Time
	cluster *lockstest.Cluster // nil if a naive lock plays

	// The first leader and the two other voters.
	leader int
	others []int

	// contrast is set if a claim must fail; failed has the broken claims.
	contrast bool
	mu       sync.Mutex
	failed   map[string]bool
}

// A timeline is the sequence of steps and checks of a story.
type timeline func(s *stage)

// play plays a timeline on a cluster of so many members, whose TTL is the lease of
// the timeline. Every claim must hold.
func play(t *testing.T, members int, lease time.Duration, story timeline, opts ...lockstest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		story(clusterStage(t, members, lease, opts...))
	})
}

// contrast plays a timeline on a naive lock. The naive lock must break the claim.
func contrast(t *testing.T, name, claim string, naive func() service, story timeline) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mustBreak(t, claim, &stage{service: naive(), t: t, others: []int{1, 2}}, story)
		})
	})
}

// contrastOnCluster plays a timeline with a mistake of the user on a cluster. The
// mistake must break the claim.
func contrastOnCluster(t *testing.T, name, claim string, members int, lease time.Duration, story timeline) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mustBreak(t, claim, clusterStage(t, members, lease), story)
		})
	})
}

func clusterStage(t *testing.T, members int, lease time.Duration, opts ...lockstest.Option) *stage {
	c := lockstest.New(t, members, append(opts, lockstest.TTL(lease))...)
	s := &stage{service: wardmote{c}, t: t, cluster: c}
	s.leader = c.Leader()
	for i := range 3 {
		if i != s.leader {
			s.others = append(s.others, i)
		}
	}
	s.begin()
	return s
}

func mustBreak(t *testing.T, claim string, s *stage, story timeline) {
	s.contrast = true
	s.begin()
	story(s)
	if !s.failed[claim] {
		t.Errorf("the contrast keeps the promise %q, so that the story shows nothing; broken are %v", claim, s.failed)
	}
}

func (s *stage) begin() {
	ctx, cancel := context.WithTimeout(s.t.Context(), 15*time.Minute)
	s.t.Cleanup(cancel)
	s.ctx, s.zero, s.failed = ctx, time.Now(), make(map[string]bool)
}

// check notes a broken claim unless ok.
func (s *stage) check(claim string, ok bool, format string, args ...any) {
	s.t.Helper()
	if ok {
		return
	}
	if !s.contrast {
		s.t.Errorf("at %v, broken: %s: %s", s.now(), claim, fmt.Sprintf(format, args...))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[claim] = true
}

// ok checks that a step of the timeline did not fail.
func (s *stage) ok(step string, err error) {
	s.t.Helper()
	s.check(step, err == nil, "%v", err)
}

// now is the time since the timeline began.
func (s *stage) now() time.Duration { return time.Since(s.zero) }

// at waits until the time d of the timeline.
func (s *stage) at(d time.Duration) { time.Sleep(d - s.now()) }

// named returns a client on member i, called name.
func (s *stage) named(i int, name string) client {
	return s.client(i, locks.Options{Name: name})
}

// member returns a client of the cluster. Stories without a naive lock use it.
func (s *stage) member(i int, name string) *locks.Client {
	return s.cluster.NewClient(i, locks.Options{Name: name})
}

// acquire acquires key, or ends the test. Call it from the test's own goroutine.
func (s *stage) acquire(c client, key string, opts ...locks.Option) grant {
	s.t.Helper()
	g, err := c.Acquire(s.ctx, key, opts...)
	if err != nil {
		s.t.Fatalf("at %v: %v", s.now(), err)
	}
	return g
}

// near checks that an event happened at the time want, or soon after.
func (s *stage) near(claim string, got, want time.Duration) {
	s.t.Helper()
	s.between(claim, got, want, want+soon)
}

func (s *stage) between(claim string, got, from, to time.Duration) {
	s.t.Helper()
	// Two observations of the same event may be a trip apart.
	ok := got >= from-10*time.Millisecond && got <= to
	s.check(claim, ok, "at %v, want between %v and %v", got, from, to)
}

// live checks that a lock is held.
func (s *stage) live(claim string, g grant) {
	s.t.Helper()
	s.check(claim, g.Err() == nil && g.Context().Err() == nil, "%v, context: %v", g.Err(), context.Cause(g.Context()))
}

// lost checks that a lock was lost for this reason, by Err and by the context.
func (s *stage) lost(claim string, g grant, why locks.Reason) {
	s.t.Helper()
	for _, err := range []error{g.Err(), context.Cause(g.Context())} {
		var lost *locks.LostError
		ok := errors.As(err, &lost) && errors.Is(err, locks.ErrLost) && lost.Reason == why && lost.Token == g.Token()
		s.check(claim, ok, "%v, want lost by %v", err, why)
	}
}

// heldBy checks that the asker finds the key held, by this holder and grant.
func (s *stage) heldBy(claim string, asker client, key, holder string, g grant) {
	s.t.Helper()
	_, err := asker.TryAcquire(s.ctx, key)
	var held *locks.HeldError
	ok := errors.As(err, &held) && held.Client == holder && held.Token == g.Token()
	s.check(claim, ok, "%v, want held by %s under token %d", err, holder, g.Token())
}

// stale checks that a guard refused token because of the later token seen.
func (s *stage) stale(claim string, err error, token, seen fence.Token) {
	s.t.Helper()
	var refused *fence.StaleError
	ok := errors.As(err, &refused) && errors.Is(err, fence.ErrStale) && *refused == fence.StaleError{Token: token, Seen: seen}
	s.check(claim, ok, "%v, want token %d refused after %d", err, token, seen)
}
