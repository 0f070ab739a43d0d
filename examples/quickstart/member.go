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

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// memberCommand is the first argument of a member's process.
const memberCommand = "member"

// member is the state of one of the three processes.
type member struct {
	name   string
	folder string // the folder with the ledgers
	writes atomic.Int64
	slow   atomic.Int64 // number of commandSlow received

	network *cuttable

	holding sync.Mutex
	held    map[*locks.Lock]bool // the locks of this process

	sending sync.Mutex
	out     *json.Encoder
}

func memberMain(args []string) int {
	m := &member{out: json.NewEncoder(os.Stdout), network: newCuttable(), held: make(map[*locks.Lock]bool)}
	var join string
	var initial int
	var keep bool
	flags := flag.NewFlagSet(memberCommand, flag.ExitOnError)
	flags.StringVar(&m.name, "name", "", "")
	flags.StringVar(&m.folder, "folder", "", "")
	flags.StringVar(&join, "join", "", "addresses of other members, with commas between")
	flags.IntVar(&initial, "initial", 0, "number of members that found the cluster; 0 to join only")
	flags.BoolVar(&keep, "keep", false, "")
	flags.Parse(args)

	// The parent ends this process, so this process ignores Ctrl-C. If the parent
	// dies while this process is stopped, the system sends SIGHUP together with
	// the signal that wakes this process. Notify catches both signals, and nobody
	// reads the channel.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGHUP)
	go m.readCommands(keep)

	cfg := cluster.Config{Name: m.name, TTL: ttl, InitialSize: initial, Network: m.network}
	if join != "" {
		cfg.Join = strings.Split(join, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := wardmote.Run(ctx, cfg, m.run)
	if err != nil && ctx.Err() == nil { // SIGTERM is the normal end
		m.send(event{Kind: failed, Detail: err.Error()})
		return 1
	}
	return 0
}

// run is the part that an application copies. The parent kills the process, because
// the demo is about kills; SIGTERM ends it as an application should end. Run of
// package wardmote then releases the locks and leaves the cluster.
func (m *member) run(ctx context.Context, client *locks.Client) error {
	node := client.Node()
	m.send(event{Kind: listening, Detail: node.Addr()})
	go m.sendStatus(ctx, node)

	ended := make(chan error, 4)
	go func() {
		if err := node.Ready(ctx); err != nil {
			ended <- err
			return
		}
		m.send(event{Kind: ready})
	}()
	go func() { ended <- m.servePage(ctx, client) }()
	go func() { ended <- client.Elect(ctx, "scheduler", m.schedule) }()
	go func() { ended <- client.Spread(ctx, "shards", shards, m.work) }()
	return <-ended
}

// schedule runs while this member is the scheduler. No other member runs schedule
// at the same time.
func (m *member) schedule(ctx context.Context, l *locks.Lock) error {
	defer m.hold(l)()
	m.send(event{Kind: elected, Token: l.Token()})
	defer func() { m.send(event{Kind: deposed, Token: l.Token(), Detail: reason(ctx)}) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil // Elect tries again
		case <-tick.C:
			// After a pause both cases are ready. Err is right at once, also if
			// the context has not ended yet.
			if l.Err() != nil {
				return nil
			}
			m.send(event{Kind: job, Token: l.Token()})
		}
	}
}

// hold notes a lock for trust, until drop.
func (m *member) hold(l *locks.Lock) (drop func()) {
	m.holding.Lock()
	defer m.holding.Unlock()
	m.held[l] = true
	return func() {
		m.holding.Lock()
		defer m.holding.Unlock()
		delete(m.held, l)
	}
}

// trust returns for how long the locks of this process may be trusted if no further beat
// is confirmed. One beat renews the trust in all of them.
func (m *member) trust() (left time.Duration) {
	m.holding.Lock()
	defer m.holding.Unlock()
	for l := range m.held {
		left = max(left, l.Remaining())
	}
	return left
}

// sendStatus sends the status of this member to the parent four times a second.
func (m *member) sendStatus(ctx context.Context, node *cluster.Node) {
	for ; ; time.Sleep(250 * time.Millisecond) {
		asking, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
		h := node.Health(asking)
		cancel()
		m.send(event{
			Kind:   status,
			Voter:  h.Voter,
			Leads:  h.Leader == m.name,
			Writes: int(m.writes.Load()),
			Trust:  m.trust(),
		})
	}
}

// readCommands runs the commands of the parent. When the parent dies, readCommands
// removes the ledgers and ends this process.
func (m *member) readCommands(keep bool) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch in.Text() {
		case commandSlow:
			m.slow.Add(1)
		case commandCut, commandHeal:
			m.network.setCut(in.Text() == commandCut)
		}
	}
	// The parent has died, so the members must end and remove the folder. The
	// other members remove the folder too, and until their end they may still
	// create files in it. So try several times.
	for range 20 {
		if keep || os.RemoveAll(m.folder) == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	os.Exit(0)
}

func (m *member) send(e event) {
	e.Member = m.name
	m.sending.Lock()
	defer m.sending.Unlock()
	// Encode fails only if the parent is dead, and then readCommands ends this
	// process.
	_ = m.out.Encode(e)
}

// reason returns, in a few words, the cause of the end of ctx.
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
