package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/wardmote/wardmote/internal/testaddr"
)

// manyProcesses is a system with a process for each member, which has the callers of the
// member.
type manyProcesses interface {
	// turn runs a job's workload in all processes, for a time.
	turn(j job, d time.Duration) (result, time.Duration)
}

// mortal is a system whose members are processes that events kill, stop and start again.
type mortal interface {
	leader(ctx context.Context) (int, error)
	kill(i int) // by SIGKILL
	signal(i int, s syscall.Signal) error
	start(ctx context.Context, which ...int) error // again; waits until they are ready

	// grant acquires and releases a key by member i, in attempts with a key each, and
	// returns the time of the first success.
	grant(ctx context.Context, i int, prefix string) (time.Time, error)

	// fill has the members' clients hold n keys.
	fill(ctx context.Context, n int) error
}

// members is the processes of a system's three members.
type members [3]*memberProcess

func (m *members) startAll(specs [3]memberSpec) error {
	for i, s := range specs {
		p, err := startMember(s)
		if err != nil {
			return errors.Join(err, m.stop())
		}
		m[i] = p
	}
	return m.each(func(_ int, p *memberProcess) error { return p.up() })
}

// each calls f for all members at once.
func (m *members) each(f func(i int, p *memberProcess) error) error {
	var errs [3]error
	var wg sync.WaitGroup
	for i, p := range m {
		wg.Go(func() { errs[i] = f(i, p) })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

func (m *members) stop() error {
	var wg sync.WaitGroup
	for _, p := range m {
		if p != nil {
			wg.Go(p.stop)
		}
	}
	wg.Wait()
	return nil
}

func (m *members) pids() (pids []int) {
	for _, p := range m {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

func (m *members) entries() uint64 {
	var most atomic.Uint64
	m.each(func(_ int, p *memberProcess) error {
		a, err := p.do(memberJob{Do: "look"})
		for old := most.Load(); err == nil && a.Entries > old && !most.CompareAndSwap(old, a.Entries); old = most.Load() {
		}
		return nil
	})
	return most.Load()
}

// leader returns the member that all three take for the leader.
func (m *members) leader(ctx context.Context) (int, error) {
	return agreed(ctx, func() (int, bool) {
		leads, first := -1, ""
		for i, p := range m {
			a, err := p.do(memberJob{Do: "look"})
			if err != nil || first != "" && a.Leader != first {
				return 0, false
			}
			first = a.Leader
			if a.Self == a.Leader {
				leads = i
			}
		}
		return leads, leads >= 0
	})
}

// agreed asks for the leader until there is an agreement: a member that stood still takes
// itself for the leader for a moment.
func agreed(ctx context.Context, ask func() (int, bool)) (int, error) {
	for {
		if i, ok := ask(); ok {
			return i, nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("the members do not agree on a leader: %w", ctx.Err())
		case <-time.After(attemptEvery):
		}
	}
}

func (m *members) kill(i int)                           { m[i].kill() }
func (m *members) signal(i int, s syscall.Signal) error { return m[i].signal(s) }

func (m *members) start(_ context.Context, which ...int) error {
	for _, i := range which {
		p, err := startMember(m[i].spec)
		if err != nil {
			return err
		}
		m[i] = p
	}
	errs := make([]error, len(which))
	var wg sync.WaitGroup
	for n, i := range which {
		wg.Go(func() { errs[n] = m[i].up() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// wardmoteProcesses is three members of wardmote with their callers, a process each.
type wardmoteProcesses struct{ members }

func startWardmoteProcesses(c class) func(ctx context.Context, dir string) (system, error) {
	return func(_ context.Context, dir string) (system, error) {
		var specs [3]memberSpec
		var join []string
		for i := range specs {
			addr, err := testaddr.Free(testaddr.Host(), nil)
			if err != nil {
				return nil, err
			}
			join = append(join, addr)
			specs[i] = memberSpec{System: "wardmote", Name: fmt.Sprint("m", i), Addr: addr}
			if c == durable {
				specs[i].Dir = filepath.Join(dir, specs[i].Name)
			}
		}
		for i := range specs {
			specs[i].Join = join
		}
		w := new(wardmoteProcesses)
		if err := w.startAll(specs); err != nil {
			return nil, errors.Join(err, w.stop())
		}
		return w, nil
	}
}

func (w *wardmoteProcesses) caller(context.Context, place, int, bool) (caller, error) {
	return nil, errNotHad // they are in the members' processes
}

func (w *wardmoteProcesses) version() string { return "this tree" }

func (w *wardmoteProcesses) turn(j job, d time.Duration) (result, time.Duration) {
	var answers [3]memberAnswer
	begun := time.Now()
	err := w.each(func(i int, p *memberProcess) (err error) {
		answers[i], err = p.do(memberJob{Do: "turn", Workload: j.Workload, For: d, PerSecond: j.PerSecond, Part: i, Parts: len(w.members)})
		return err
	})
	r := result{err: err}
	for _, a := range answers {
		r.each = append(r.each, a.Each...)
		part := histogram{longest: a.Longest}
		for bucket, n := range a.Buckets {
			part.buckets[bucket] = n
			part.n += n
		}
		r.acquires.merge(&part)
	}
	return r, time.Since(begun)
}

func (w *wardmoteProcesses) grant(_ context.Context, i int, prefix string) (time.Time, error) {
	a, err := w.members[i].do(memberJob{Do: "grant", Key: prefix})
	return a.At, err
}

func (w *wardmoteProcesses) fill(_ context.Context, n int) error {
	return w.each(func(i int, p *memberProcess) error {
		_, err := p.do(memberJob{Do: "fill", Key: fmt.Sprintf("held-%d-", i), Keys: n / len(w.members)})
		return err
	})
}

// etcdProcesses is three members of etcd, a process each, and their callers here.
type etcdProcesses struct {
	members
	etcdClients
}

func startEtcdProcesses(ctx context.Context, dir string) (system, error) {
	ports, err := freePorts(6)
	if err != nil {
		return nil, err
	}
	var specs [3]memberSpec
	initial := ""
	for i := range specs {
		name := fmt.Sprint("m", i)
		specs[i] = memberSpec{
			System: "etcd", Name: name, Dir: filepath.Join(dir, name),
			Peer: fmt.Sprint("http://127.0.0.1:", ports[i]), Client: fmt.Sprint("http://127.0.0.1:", ports[3+i]),
		}
		if i > 0 {
			initial += ","
		}
		initial += name + "=" + specs[i].Peer
	}
	for i := range specs {
		specs[i].Initial = initial
	}
	e := &etcdProcesses{etcdClients: etcdClients{sessions: make(map[int]*concurrency.Session)}}
	if err := e.startAll(specs); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	if err := e.connect(specs[0].Client, specs[1].Client, specs[2].Client); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}

func (e *etcdProcesses) caller(ctx context.Context, at place, i int, contends bool) (caller, error) {
	if at != everywhere {
		return nil, errNotHad
	}
	return e.session(i%3, i, contends)
}

func (e *etcdProcesses) version() string { return moduleVersion("go.etcd.io/etcd/server/v3") }

func (e *etcdProcesses) stop() error {
	return errors.Join(e.disconnect(), e.members.stop())
}

// start starts members again. After a start of all, new clients take the place of the old
// ones, which may be in a long pause before their next attempt.
func (e *etcdProcesses) start(ctx context.Context, which ...int) error {
	if err := e.members.start(ctx, which...); err != nil || len(which) < len(e.members) {
		return err
	}
	e.disconnect()
	return e.connect(e.members[0].spec.Client, e.members[1].spec.Client, e.members[2].spec.Client)
}

func (e *etcdProcesses) grant(ctx context.Context, i int, prefix string) (time.Time, error) {
	c, err := e.session(i, i, false)
	if err != nil {
		return time.Time{}, err
	}
	return grantBy(ctx, c, prefix)
}

// grantBy is a grant by a caller that several goroutines may use.
func grantBy(ctx context.Context, c caller, prefix string) (time.Time, error) {
	return attempts(ctx, func(ctx context.Context, n int) error {
		release, err := c.acquire(ctx, fmt.Sprint(prefix, n))
		if err != nil {
			return err
		}
		return release(ctx)
	})
}

func (e *etcdProcesses) fill(ctx context.Context, n int) error {
	errs := make([]error, len(e.clients))
	var wg sync.WaitGroup
	for m := range e.clients {
		wg.Go(func() { _, errs[m] = e.fillOne(ctx, m, n/len(e.clients)) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
