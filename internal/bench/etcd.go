package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.etcd.io/etcd/server/v3/embed"
)

// etcdTTL is the sessions' lease, in seconds: wardmote's default TTL.
const etcdTTL = 10

// An etcdCluster is three etcd members in this process, over loopback.
type etcdCluster struct {
	members []*embed.Etcd
	proxies proxies
	etcdClients
}

// etcdClients is a client of each member, with their sessions.
type etcdClients struct {
	clients []*clientv3.Client

	mu       sync.Mutex
	sessions map[int]*concurrency.Session // of callers that contend, and -1-i of member i
}

// connect makes a client for each member's URL.
func (e *etcdClients) connect(urls ...string) error {
	for _, u := range urls {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{u}})
		if err != nil {
			return err
		}
		e.clients = append(e.clients, c)
	}
	return nil
}

// disconnect closes the clients, and forgets their sessions.
func (e *etcdClients) disconnect() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, c := range e.clients {
		errs = append(errs, c.Close())
	}
	e.clients = nil
	clear(e.sessions)
	return errors.Join(errs...)
}

// session returns a caller on the session of member m. etcd's Mutex does not keep
// goroutines of one session apart, so callers that contend have a session each.
func (e *etcdClients) session(m, i int, contends bool) (caller, error) {
	id := i
	if !contends {
		id = -1 - m
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[id]
	if s == nil {
		var err error
		s, err = concurrency.NewSession(e.clients[m], concurrency.WithTTL(etcdTTL))
		if err != nil {
			return nil, err
		}
		e.sessions[id] = s
	}
	return etcdCaller{s}, nil
}

// fillOne has a new session of client m hold n keys of the form that etcd's Mutex has. They
// are put 100 in a transaction: one by one would take many minutes.
func (e *etcdClients) fillOne(ctx context.Context, m, n int) (*concurrency.Session, error) {
	const batch = 100 // of the 128 that a server allows
	c := e.clients[m]
	s, err := concurrency.NewSession(c, concurrency.WithTTL(etcdTTL))
	if err != nil {
		return nil, err
	}
	for done := 0; done < n; done += batch {
		var puts []clientv3.Op
		for k := done; k < min(done+batch, n); k++ {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("/bench/held-%d-%07d/%x", m, k, s.Lease()), "", clientv3.WithLease(s.Lease())))
		}
		if _, err := c.Txn(ctx).Then(puts...).Commit(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// hold has a session of the second member's client hold n keys.
func (e *etcdCluster) hold(ctx context.Context, n int) (func(context.Context) error, error) {
	s, err := e.fillOne(ctx, 1, n)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		s.Orphan() // no more keepalives
		_, err := e.clients[1].Revoke(ctx, s.Lease())
		return err
	}, nil
}

// etcdConfig is the configuration of one member: etcd's defaults, and no log.
func etcdConfig(name, dir, listenPeer, advertisePeer, client, initial string) (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = name, dir
	cfg.LogLevel = "panic"
	cfg.LogOutputs = []string{"/dev/null"}
	for _, u := range []struct {
		to   *[]url.URL
		text string
	}{{&cfg.ListenPeerUrls, listenPeer}, {&cfg.AdvertisePeerUrls, advertisePeer}, {&cfg.ListenClientUrls, client}, {&cfg.AdvertiseClientUrls, client}} {
		parsed, err := url.Parse(u.text)
		if err != nil {
			return nil, err
		}
		*u.to = []url.URL{*parsed}
	}
	cfg.InitialCluster = initial
	return cfg, nil
}

// startEtcd starts etcd, with or without the delay of the setting delayed.
func startEtcd(late bool) func(ctx context.Context, dir string) (system, error) {
	return func(ctx context.Context, dir string) (system, error) { return embedEtcd(ctx, dir, late) }
}

func embedEtcd(ctx context.Context, dir string, late bool) (system, error) {
	e := &etcdCluster{etcdClients: etcdClients{sessions: make(map[int]*concurrency.Session)}}
	ports, err := freePorts(6)
	if err != nil {
		return nil, err
	}
	at := func(i int) string { return fmt.Sprint("127.0.0.1:", ports[i]) }
	var initial, advertised, clients []string
	for i := range 3 {
		addr := at(i)
		if late {
			p, err := e.proxies.through(addr)
			if err != nil {
				return nil, errors.Join(err, e.stop())
			}
			addr = p.addr()
		}
		advertised = append(advertised, "http://"+addr)
		initial = append(initial, fmt.Sprintf("m%d=http://%s", i, addr))
		clients = append(clients, "http://"+at(3+i))
	}
	for i := range 3 {
		name := fmt.Sprint("m", i)
		cfg, err := etcdConfig(name, filepath.Join(dir, name), "http://"+at(i), advertised[i], clients[i], strings.Join(initial, ","))
		if err != nil {
			return nil, errors.Join(err, e.stop())
		}
		m, err := embed.StartEtcd(cfg)
		if err != nil {
			return nil, errors.Join(err, e.stop())
		}
		e.members = append(e.members, m)
	}
	for _, m := range e.members {
		select {
		case <-m.Server.ReadyNotify():
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), e.stop())
		}
	}
	if err := e.connect(clients...); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}

// member returns the number of the member that caller i is connected to.
func (e *etcdCluster) member(at place, i int) (int, error) {
	switch at {
	case everywhere:
		return i % 3, nil
	case atThin:
		return 0, errNotHad
	}
	for j, m := range e.members {
		if (m.Server.Leader() == m.Server.MemberID()) == (at == atLeader) {
			return j, nil
		}
	}
	return 0, errors.New("no member leads")
}

func (e *etcdCluster) caller(_ context.Context, at place, i int, contends bool) (caller, error) {
	m, err := e.member(at, i)
	if err != nil {
		return nil, err
	}
	return e.session(m, i, contends)
}

func (e *etcdCluster) entries() uint64 {
	var most uint64
	for _, m := range e.members {
		most = max(most, m.Server.CommittedIndex())
	}
	return most
}

func (e *etcdCluster) pids() []int     { return nil }
func (e *etcdCluster) version() string { return moduleVersion("go.etcd.io/etcd/server/v3") }

func (e *etcdCluster) stop() error {
	err := e.disconnect()
	var wg sync.WaitGroup
	for _, m := range e.members {
		wg.Go(m.Close)
	}
	wg.Wait()
	return errors.Join(err, e.proxies.close())
}

type etcdCaller struct{ s *concurrency.Session }

func (e etcdCaller) acquire(ctx context.Context, key string) (func(context.Context) error, error) {
	m := concurrency.NewMutex(e.s, "/bench/"+key)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return m.Unlock, nil
}

// acquireShared uses the RWMutex of etcd's recipes, which takes no context.
func (e etcdCaller) acquireShared(ctx context.Context, key string, writer bool) (func(context.Context) error, error) {
	m := recipe.NewRWMutex(e.s, "/bench-shared/"+key)
	lock, unlock := m.RLock, m.RUnlock
	if writer {
		lock, unlock = m.Lock, m.Unlock
	}
	if err := lock(); err != nil {
		return nil, err
	}
	return func(context.Context) error { return unlock() }, ctx.Err()
}
