package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// demo has the three processes and the board. Only close may be called from several
// goroutines; all other methods belong to the goroutine that drives the demo.
type demo struct {
	folder string
	keep   bool
	board  *board
	events chan event

	say         func(line string, minor bool) // prints an event
	tick        func()                        // called once a frame by waitUntil
	interactive bool                          // the user may end processes, so an exit is no error

	ctx context.Context // its end kills all processes
	end context.CancelFunc

	mu        sync.Mutex
	processes map[string]*process
}

func newDemo(keep bool) (*demo, error) {
	folder, err := os.MkdirTemp("", "wardmote-quickstart-")
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	return &demo{
		ctx:       ctx,
		end:       end,
		folder:    folder,
		keep:      keep,
		board:     newBoard(time.Now(), names),
		events:    make(chan event, 256),
		processes: make(map[string]*process),
	}, nil
}

// foundCluster starts all members as a new cluster. The system chooses the port of
// the first member, and the other members join there: the address of any member is
// enough.
func (d *demo) foundCluster(ctx context.Context) error {
	var join []string
	for _, name := range names {
		if err := d.start(name, len(names), join); err != nil {
			return err
		}
		if join == nil {
			first := d.board.row(name)
			if err := d.waitUntil(ctx, name+" to listen", func() bool { return first.addr != "" || first.state == dead }); err != nil {
				return err
			}
			if first.state == dead {
				return fmt.Errorf("%s ended before it listened", name)
			}
			join = []string{first.addr}
		}
	}
	return nil
}

// restart starts a dead member again, under its old name. The member kept its
// state in memory, so it joins at the other members like a new member.
func (d *demo) restart(name string) error {
	var join []string
	for _, r := range d.board.rows {
		if r.name != name && r.state != dead {
			join = append(join, r.addr)
		}
	}
	return d.start(name, 0, join)
}

// frame is the time between two pictures of the table.
const frame = 100 * time.Millisecond

// waitUntil handles events until reached returns true or ctx ends. If ctx ends, the
// error names the awaited state.
func (d *demo) waitUntil(ctx context.Context, state string, reached func() bool) error {
	ticks := time.NewTicker(frame)
	defer ticks.Stop()
	for !reached() {
		select {
		case e := <-d.events:
			if err := d.handle(e); err != nil {
				return err
			}
		case <-ticks.C:
			d.tick()
		case <-ctx.Done():
			return fmt.Errorf("waited for %s: %w", state, context.Cause(ctx))
		}
	}
	return nil
}

func (d *demo) handle(e event) error {
	line, minor := d.board.apply(e, time.Now())
	if line != "" {
		d.say(line, minor)
	}
	if (e.Kind == exited || e.Kind == failed) && !d.interactive && !d.processes[e.Member].killed {
		return fmt.Errorf("%s ended by itself: %s", e.Member, e.Detail)
	}
	return nil
}

// balancedFor is the time for which the board must stay balanced. A shorter time
// proves nothing, because the view of a member may be some beats old.
const balancedFor = 500 * time.Millisecond

// waitUntilBalanced waits until the board has been balanced for balancedFor.
func (d *demo) waitUntilBalanced(ctx context.Context) error {
	var since time.Time
	return d.waitUntil(ctx, "three voters, a scheduler, and shards divided evenly", func() bool {
		if !d.board.balanced() {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) >= balancedFor
	})
}

// brokenPromise returns the first broken promise, found in the ledgers or seen
// on the board, or nil.
func (d *demo) brokenPromise(f findings) error {
	if text := cmp.Or(f.First, d.board.broken); text != "" {
		return errors.New(text)
	}
	return nil
}

// waitFor handles events for a while.
func (d *demo) waitFor(ctx context.Context, while time.Duration) error {
	end := time.Now().Add(while)
	return d.waitUntil(ctx, "time to pass", func() bool { return time.Now().After(end) })
}
