package stories

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

// Common locks, each with a fault for which a story is known:
//
//	table       entries with a TTL: no queue, no token, released by name
//	race        all waiters wake up, and the fastest gets the lock
//	priorities  the most urgent waiter first, without a bound
//	votes       clients collect the votes of three servers, each client alone
//	islands     servers with a majority of the reachable servers only
//	lagging     a primary whose backup learns of grants later

// world is the part of a service without effect on most naive locks: they do not
// notice the failure of a host.
type world struct{}

func (world) Kill(int)                     {}
func (world) Pause(int)                    {}
func (world) Resume(int)                   {}
func (world) Freeze(int)                   {}
func (world) Thaw(int)                     {}
func (world) Isolate(...int)               {}
func (world) Heal()                        {}
func (world) slow(int, int, time.Duration) {}

// A naiveGrant has no token and is believed for ever.
type naiveGrant struct {
	until   time.Time // as the holder counts
	release func(context.Context) error
}

func (g *naiveGrant) Token() fence.Token                { return 0 }
func (g *naiveGrant) Context() context.Context          { return context.Background() }
func (g *naiveGrant) Err() error                        { return nil }
func (g *naiveGrant) Remaining() time.Duration          { return time.Until(g.until) }
func (g *naiveGrant) Require(time.Duration) error       { return nil }
func (g *naiveGrant) Renew(context.Context) error       { return nil }
func (g *naiveGrant) Release(ctx context.Context) error { return g.release(ctx) }

// A naiveClient asks server again and again, until it is granted the lock.
type naiveClient struct {
	name   string
	server func(ctx context.Context, name, key string, opts []locks.Option) (grant, error)
	every  time.Duration // between two tries; 0: one try
}

func (c *naiveClient) TryAcquire(ctx context.Context, key string, opts ...locks.Option) (grant, error) {
	return c.server(ctx, c.name, key, opts)
}

func (c *naiveClient) Acquire(ctx context.Context, key string, opts ...locks.Option) (grant, error) {
	for {
		g, err := c.server(ctx, c.name, key, opts)
		if err == nil || c.every == 0 {
			return g, err
		}
		select {
		case <-time.After(c.every):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// AcquireAll acquires the keys in the order of the caller. If a key is taken it
// gives back the others, and begins again.
func (c *naiveClient) AcquireAll(ctx context.Context, keys []string) (releaser, error) {
	for ctx.Err() == nil {
		var set naiveSet
		for _, key := range keys {
			g, err := c.TryAcquire(ctx, key)
			if err == nil {
				set = append(set, g)
			}
			time.Sleep(c.every)
		}
		if len(set) == len(keys) {
			return set, nil
		}
		_ = set.Release(ctx)
		time.Sleep(c.every)
	}
	return nil, ctx.Err()
}

type naiveSet []grant

func (s naiveSet) Release(ctx context.Context) error {
	for _, g := range s {
		_ = g.Release(ctx)
	}
	return nil
}

func taken(key, holder string) error { return &locks.HeldError{Key: key, Client: holder} }

// A table has an entry for each key: the holder, and the end of its lease. Every
// client releases by the name of the key, and counts its lease from the answer.
type table struct {
	world
	ttl   time.Duration // 0: for ever
	every time.Duration // a client tries so often; 0: once

	mu      sync.Mutex
	entries map[string]entry
	paused  map[int]chan struct{} // closed by Resume
	answers map[int]time.Duration // that an answer takes to a member
}

type entry struct {
	holder string
	until  time.Time // zero: for ever
}

func newTable(ttl, every time.Duration) func() service {
	return func() service { return table0(ttl, every) }
}

func table0(ttl, every time.Duration) *table {
	return &table{
		ttl: ttl, every: every,
		entries: make(map[string]entry), paused: make(map[int]chan struct{}), answers: make(map[int]time.Duration),
	}
}

func (x *table) Pause(i int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.paused[i] = make(chan struct{})
}

func (x *table) Resume(i int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	close(x.paused[i])
	delete(x.paused, i)
}

func (x *table) slow(from, to int, d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if from == 0 { // the server is on member 0
		x.answers[to] = d
	}
}

func (x *table) client(i int, opts locks.Options) client {
	server := func(_ context.Context, name, key string, _ []locks.Option) (grant, error) {
		if err := x.take(name, key); err != nil {
			return nil, err
		}
		x.mu.Lock()
		answer := x.answers[i]
		x.mu.Unlock()
		time.Sleep(answer)
		return &naiveGrant{
			until:   time.Now().Add(x.ttl),
			release: func(ctx context.Context) error { return x.release(ctx, i, key) },
		}, nil
	}
	return &naiveClient{name: opts.Name, server: server, every: x.every}
}

// take enters name for key, unless another entry is valid.
func (x *table) take(name, key string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.entries[key]; ok && (e.until.IsZero() || time.Now().Before(e.until)) {
		return taken(key, e.holder)
	}
	e := entry{holder: name}
	if x.ttl > 0 {
		e.until = time.Now().Add(x.ttl)
	}
	x.entries[key] = e
	return nil
}

func (x *table) free(key string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.entries, key)
}

// release frees key even if another client holds key by now. The message of a
// paused member arrives when the member resumes.
func (x *table) release(ctx context.Context, i int, key string) error {
	x.mu.Lock()
	paused := x.paused[i]
	x.mu.Unlock()
	if paused == nil {
		x.free(key)
		return nil
	}
	arrived := make(chan struct{})
	go func() {
		<-paused
		x.free(key)
		close(arrived)
	}()
	select {
	case <-arrived:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A race wakes all waiters when the lock is freed, and the first request to arrive
// gets the lock.
type race struct {
	world
	distance map[int]time.Duration // of a member

	mu    sync.Mutex
	taken bool
	freed chan struct{} // closed when the lock is
}

func (r *race) slow(from, to int, d time.Duration) {
	if from == 0 { // the server is on member 0
		r.distance[to] = d
	}
}

func (r *race) client(i int, opts locks.Options) client {
	distance := max(r.distance[i], time.Millisecond)
	return &naiveClient{name: opts.Name, every: time.Nanosecond, server: func(ctx context.Context, name, key string, _ []locks.Option) (grant, error) {
		for ctx.Err() == nil {
			time.Sleep(distance)
			r.mu.Lock()
			if !r.taken {
				r.taken, r.freed = true, make(chan struct{})
				r.mu.Unlock()
				return &naiveGrant{release: r.release}, nil
			}
			freed := r.freed
			r.mu.Unlock()
			select {
			case <-freed:
			case <-ctx.Done():
			}
		}
		return nil, ctx.Err()
	}}
}

func (r *race) release(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = false
	close(r.freed)
	return nil
}

// priorities grants the lock to the most urgent waiter, and to the first of these.
// Every option counts as one step of urgency.
type priorities struct {
	world
	mu    sync.Mutex
	taken bool
	queue []*ticket
}

type ticket struct {
	urgency int
	turn    chan struct{}
}

func (p *priorities) client(_ int, opts locks.Options) client {
	return &naiveClient{name: opts.Name, server: func(_ context.Context, _, _ string, opts []locks.Option) (grant, error) {
		mine := &ticket{len(opts), make(chan struct{})}
		p.mu.Lock()
		p.queue = append(p.queue, mine)
		p.next()
		p.mu.Unlock()
		<-mine.turn
		return &naiveGrant{release: func(context.Context) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.taken = false
			p.next()
			return nil
		}}, nil
	}}
}

func (p *priorities) next() {
	if p.taken || len(p.queue) == 0 {
		return
	}
	first := slices.MaxFunc(p.queue, func(a, b *ticket) int { return cmp.Compare(a.urgency, b.urgency) })
	p.queue = slices.DeleteFunc(p.queue, func(w *ticket) bool { return w == first })
	p.taken = true
	close(first.turn)
}

// votes has three servers. A client asks one after the other, beginning with the
// server of its own number. Without a majority it gives back its votes and begins
// again after a while, the same while for all.
type votes struct {
	world
	servers [3]*table
}

func newVotes() service {
	v := new(votes)
	for i := range v.servers {
		v.servers[i] = table0(0, 0)
	}
	return v
}

func (v *votes) client(i int, opts locks.Options) client {
	return &naiveClient{name: opts.Name, every: 10 * time.Millisecond, server: func(_ context.Context, name, key string, _ []locks.Option) (grant, error) {
		var mine []*table
		for j := range v.servers {
			server := v.servers[(i+j)%len(v.servers)]
			if server.take(name, key) == nil {
				mine = append(mine, server)
			}
			time.Sleep(time.Millisecond)
		}
		giveBack := func(context.Context) error {
			for _, server := range mine {
				server.free(key)
			}
			return nil
		}
		if len(mine) <= len(v.servers)/2 {
			_ = giveBack(nil)
			return nil, taken(key, "another")
		}
		return &naiveGrant{release: giveBack}, nil
	}}
}

// islands has three servers. A majority of the servers in reach of a client's own
// server grants the lock.
type islands struct {
	world
	mu      sync.Mutex
	servers [3]*table
	dead    [3]bool
	cut     [3]bool
}

func newIslands() service {
	s := new(islands)
	for i := range s.servers {
		s.servers[i] = table0(0, 0)
	}
	return s
}

func (s *islands) Kill(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead[i] = true
}

func (s *islands) Isolate(members ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range members {
		s.cut[i] = true
	}
}

func (s *islands) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = [3]bool{}
}

func (s *islands) reached(from int) (reached []*table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, server := range s.servers {
		if i == from || !s.dead[i] && !s.cut[i] && !s.cut[from] {
			reached = append(reached, server)
		}
	}
	return reached
}

func (s *islands) client(i int, opts locks.Options) client {
	return &naiveClient{name: opts.Name, every: 10 * time.Millisecond, server: func(_ context.Context, name, key string, _ []locks.Option) (grant, error) {
		reached := s.reached(i)
		var mine []*table
		var err error
		for _, server := range reached {
			if refused := server.take(name, key); refused != nil {
				err = refused
				continue
			}
			if mine = append(mine, server); len(mine) > len(s.servers)/2 {
				break // enough
			}
		}
		giveBack := func(context.Context) error {
			for _, server := range mine {
				server.free(key)
			}
			return nil
		}
		if len(mine) <= len(reached)/2 {
			_ = giveBack(nil)
			return nil, cmp.Or(err, taken(key, "nobody reached"))
		}
		return &naiveGrant{release: giveBack}, nil
	}}
}

// lagging grants from the table of a primary. A backup learns of each change a
// while later, and serves once the primary is dead.
type lagging struct {
	world
	lag             time.Duration
	mu              sync.Mutex
	primary, backup *table
}

func newLagging(lag time.Duration) func() service {
	return func() service { return &lagging{lag: lag, primary: table0(0, 0), backup: table0(0, 0)} }
}

// Kill kills the primary for every i: stories kill only the leader.
func (l *lagging) Kill(int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.primary = l.backup
}

func (l *lagging) client(_ int, opts locks.Options) client {
	change := func(f func(*table) error) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		now := l.primary
		if err := f(now); err != nil {
			return err
		}
		time.AfterFunc(l.lag, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.primary == now && now != l.backup {
				_ = f(l.backup)
			}
		})
		return nil
	}
	return &naiveClient{name: opts.Name, every: time.Millisecond, server: func(_ context.Context, name, key string, _ []locks.Option) (grant, error) {
		if err := change(func(x *table) error { return x.take(name, key) }); err != nil {
			return nil, err
		}
		return &naiveGrant{release: func(context.Context) error {
			return change(func(x *table) error { x.free(key); return nil })
		}}, nil
	}}
}
