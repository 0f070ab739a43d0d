package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// memberCommand, as the first argument, makes this program a member.
const memberCommand = "member"

// member is one of the three processes.
type member struct {
	name   string
	folder string // of the ledgers
	writes atomic.Int64
	slow   atomic.Int64 // how often commandSlow came

	telling sync.Mutex
	out     *json.Encoder
}

func memberMain(args []string) int {
	m := &member{out: json.NewEncoder(os.Stdout)}
	var join string
	var initial int
	var keep bool
	flags := flag.NewFlagSet(memberCommand, flag.ExitOnError)
	flags.StringVar(&m.name, "name", "", "")
	flags.StringVar(&m.folder, "folder", "", "")
	flags.StringVar(&join, "join", "", "addresses of other members, with commas between")
	flags.IntVar(&initial, "initial", 0, "how many members found the cluster; 0 only joins")
	flags.BoolVar(&keep, "keep", false, "")
	flags.Parse(args)

	// A member's life is its parent's to end: Ctrl-C is for the parent. If that
	// dies while this process is stopped, the system sends a hang-up with the
	// signal that wakes it. Both are caught, and nobody reads of them.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGHUP)
	go m.obey(keep)

	cfg := cluster.Config{Name: m.name, TTL: ttl, InitialSize: initial}
	if join != "" {
		cfg.Join = strings.Split(join, ",")
	}
	if err := m.run(context.Background(), cfg); err != nil {
		m.tell(event{Kind: failed, Detail: err.Error()})
		return 1
	}
	return 0
}

// run is what an application does with wardmote. It does not return while all is
// well: the parent ends the process, and not gently, since that is what the demo
// is about. The other examples show how to leave.
func (m *member) run(ctx context.Context, cfg cluster.Config) error {
	node, err := cluster.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer node.Stop()
	m.tell(event{Kind: listening, Detail: node.Addr()})
	go m.report(ctx, node)

	client := locks.New(node, locks.Options{})
	ended := make(chan error, 3)
	go func() {
		if err := node.Ready(ctx); err != nil {
			ended <- err
			return
		}
		m.tell(event{Kind: ready})
	}()
	go func() { ended <- client.Elect(ctx, "scheduler", m.schedule) }()
	go func() { ended <- client.Spread(ctx, "shards", shards, m.work) }()
	return <-ended
}

// schedule runs while this member is the scheduler, and nowhere else.
func (m *member) schedule(ctx context.Context, l *locks.Lock) error {
	m.tell(event{Kind: elected, Token: l.Token()})
	defer func() { m.tell(event{Kind: deposed, Token: l.Token(), Detail: reason(ctx)}) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil // Elect stands again
		case <-tick.C:
			// After a pause both cases are ready. Err is right at once, even if
			// the context has not been told yet.
			if l.Err() != nil {
				return nil
			}
			m.tell(event{Kind: job, Token: l.Token()})
		}
	}
}

// report tells the parent four times a second how this member is.
func (m *member) report(ctx context.Context, node *cluster.Node) {
	for ; ; time.Sleep(250 * time.Millisecond) {
		asking, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
		h := node.Health(asking)
		cancel()
		m.tell(event{
			Kind:   status,
			Voter:  h.Voter,
			Leads:  h.Leader == m.name,
			Writes: int(m.writes.Load()),
		})
	}
}

// obey does what the parent says, until it says no more.
func (m *member) obey(keep bool) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if in.Text() == commandSlow {
			m.slow.Add(1)
		}
	}
	// The parent died. Without this the three would go on for ever, and nobody
	// would clean up. The others are at it too, and until they have ended they
	// may put a file where one was removed.
	for range 20 {
		if keep || os.RemoveAll(m.folder) == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	os.Exit(0)
}

func (m *member) tell(e event) {
	e.Member = m.name
	m.telling.Lock()
	defer m.telling.Unlock()
	// If the parent does not hear, it is dead, and obey ends this process.
	_ = m.out.Encode(e)
}

// reason says, in a few words, why a work's context ended.
func reason(ctx context.Context) string {
	cause := context.Cause(ctx)
	var lost *locks.LostError
	switch {
	case cause == nil:
		return "done"
	case errors.As(cause, &lost):
		return lost.Reason.String()
	case errors.Is(cause, locks.ErrHandedOver):
		return "handed over"
	}
	return cause.Error()
}
