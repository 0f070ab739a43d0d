package processes

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
)

// memberEnv holds a member's settings, as JSON. With the variable set, the test
// binary is a member's program, or burns CPU if the value is busy.
const (
	memberEnv = "WARDMOTE_TEST_MEMBER"
	busy      = "busy"
)

func TestMain(m *testing.M) {
	switch text := os.Getenv(memberEnv); text {
	case "":
		// Tests that bear company spend their time waiting for processes. With all
		// rounds some have many more processes, which compete for the CPUs.
		flag.Parse()
		if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue && !testrounds.Full() {
			_ = f.Value.Set("6")
		}
		os.Exit(m.Run())
	case busy:
		for n := 0; ; n++ {
		}
	default:
		if err := runMember(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// settings configure a member.
type settings struct {
	Name, Bind, Dir string
	Join            []string
	InitialSize     int
	TTL             time.Duration
	JoinIsComplete  bool
	Ending          string // after SIGTERM; "": as end does
	Work            bool   // the member works as an application does, and reports the lock of its name as news
	FileLimit       uint64
	Insecure        bool
}

// command is a line to a member.
type command struct {
	ID   int
	Do   string // acquire, release, ready, leader, voters, stalls, report
	Key  string
	Wait time.Duration // the longest time for the answer
}

// report is a line from a member: an answer, or news if ID is 0.
type report struct {
	ID     int
	Error  string
	Key    string
	Token  uint64
	Leader bool
	Voters int    // that the member sees
	Term   uint64 // of the leader named Key, with the news leader
	Took   time.Duration
	At     int64  // wall clock, Unix nanoseconds: all members share the host's clock
	News   string // lost, event, leader, working, stalled
	Detail string
}

// A program is a running member.
type program struct {
	node   *cluster.Node
	client *locks.Client
	stalls *testrounds.Stalls

	mu    sync.Mutex
	out   *json.Encoder
	locks map[string]*locks.Lock
}

// runMember is the member's program. SIGTERM ends the member gracefully, and so
// does the end of the input.
func runMember(text string) error {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	if err := limitFiles(s.FileLimit); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := &program{out: json.NewEncoder(os.Stdout), locks: make(map[string]*locks.Lock)}
	p.stalls = testrounds.WatchStalls(func(d time.Duration) { p.tell(report{News: "stalled", Took: d}) })
	defer p.stalls.Stop()
	cfg := cluster.Config{
		Name: s.Name, Bind: s.Bind, Dir: s.Dir, Join: s.Join, InitialSize: s.InitialSize, TTL: s.TTL,
		Security: cluster.Security{Insecure: s.Insecure},
		Recovery: cluster.Recovery{JoinIsComplete: s.JoinIsComplete},
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})),
		Events: func(_ context.Context, e cluster.Event) {
			p.tell(report{News: "event", Detail: e.String()})
			if e.Kind == cluster.LeaderChanged {
				p.tell(report{News: "leader", Key: e.Member.Name, Term: e.Term})
			}
		},
	}
	var err error
	if p.node, err = cluster.Start(ctx, cfg); err != nil {
		return err
	}
	p.client = locks.New(p.node, locks.Options{})
	var work sync.WaitGroup
	if s.Work {
		p.work(ctx, &work, s.Name)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			var c command
			if json.Unmarshal(lines.Bytes(), &c) == nil {
				go p.obey(ctx, c)
			}
		}
	}()
	select {
	case <-ctx.Done():
	case <-ended:
	}
	return p.end(s.Ending, &work)
}

// work takes a lock for the member, a lock that all members want, and shards.
func (p *program) work(ctx context.Context, work *sync.WaitGroup, name string) {
	hold := func(ctx context.Context, _ *locks.Lock) error { <-ctx.Done(); return nil }
	work.Go(func() {
		again := func(err error) bool { return errors.Is(err, locks.ErrSessionLost) || errors.Is(err, locks.ErrLost) }
		for err := error(locks.ErrLost); again(err) && ctx.Err() == nil; {
			err = p.client.Do(ctx, name, func(ctx context.Context, l *locks.Lock) error {
				p.tell(report{News: "working", Key: name, Token: uint64(l.Token())})
				return hold(ctx, l)
			})
		}
	})
	work.Go(func() { _ = p.client.Elect(ctx, "leader", hold) })
	work.Go(func() {
		_ = p.client.Spread(ctx, "shards", 8, func(ctx context.Context, _ int, l *locks.Lock) error { return hold(ctx, l) })
	})
}

// end ends the member in one of the ways that applications choose:
//
//	stop    the node alone
//	leave   the client, then the node, which leaves the cluster
//	join    after the work's functions have returned: the client, then the node
//	""      the client, then the node
func (p *program) end(ending string, work *sync.WaitGroup) error {
	bounded, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	switch ending {
	case "stop":
		return p.node.Stop()
	case "leave":
		return errors.Join(p.client.Close(bounded), p.node.Leave(bounded))
	case "join":
		work.Wait()
	}
	return errors.Join(p.client.Close(bounded), p.node.Stop())
}

func (p *program) tell(r report) {
	r.At = time.Now().UnixNano()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(r) // without a reader the program ends soon
}

// obey carries out a command and tells the result.
func (p *program) obey(ctx context.Context, c command) {
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	began := time.Now()
	r := report{ID: c.ID, Key: c.Key}
	var err error
	switch c.Do {
	case "ready":
		err = p.node.Ready(ctx)
	case "leader":
		h := p.node.Health(ctx)
		r.Leader, err = h.Quorum && h.Leader == p.node.Name(), h.Err
	case "voters":
		for _, m := range p.node.Members() {
			if m.Voter {
				r.Voters++
			}
		}
	case "acquire":
		r.Token, err = p.acquire(ctx, c.Key)
	case "stalls": // since Key, in Unix nanoseconds
		var since int64
		since, err = strconv.ParseInt(c.Key, 10, 64)
		p.tell(report{News: "stalled", Took: p.stalls.Since(time.Unix(0, since))})
	case "release":
		err = p.release(ctx, c.Key)
	case "report":
		var text []byte
		text, err = json.Marshal(p.client.Report())
		r.Detail = string(text)
	default:
		err = fmt.Errorf("unknown command %q", c.Do)
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.Took = time.Since(began)
	p.tell(r)
}

// acquire acquires a key until ctx ends. A session may end while the voters elect a
// leader or a process stands still; its client asks anew, as ErrSessionLost advises.
func (p *program) acquire(ctx context.Context, key string) (uint64, error) {
	l, err := p.client.Acquire(ctx, key)
	for errors.Is(err, locks.ErrSessionLost) && ctx.Err() == nil {
		l, err = p.client.Acquire(ctx, key)
	}
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	p.locks[key] = l
	p.mu.Unlock()
	context.AfterFunc(l.Context(), func() {
		var lost *locks.LostError
		if errors.As(context.Cause(l.Context()), &lost) {
			p.tell(report{News: "lost", Key: key, Token: uint64(l.Token()), Detail: lost.Error()})
		}
	})
	return uint64(l.Token()), nil
}

func (p *program) release(ctx context.Context, key string) error {
	p.mu.Lock()
	l := p.locks[key]
	delete(p.locks, key)
	p.mu.Unlock()
	if l == nil {
		return errors.New("not held")
	}
	err := l.Release(ctx)
	if errors.Is(err, locks.ErrSessionLost) || errors.Is(err, locks.ErrLost) {
		return nil // the key is free within a TTL all the same
	}
	return err
}
