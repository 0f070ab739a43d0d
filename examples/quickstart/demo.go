package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"
)

// demo is the three processes and what is known of them. One goroutine drives
// it; close is the exception.
type demo struct {
	folder string
	keep   bool
	board  *board
	events chan event

	say  func(line string, minor bool) // told what happens
	tick func()                        // called four times a second while waiting
	live bool                          // processes may end that we did not end

	mu        sync.Mutex
	closed    bool
	over      chan struct{} // closed with closed
	processes map[string]*process
}

func newDemo(keep bool) (*demo, error) {
	folder, err := os.MkdirTemp("", "wardmote-quickstart-")
	if err != nil {
		return nil, err
	}
	return &demo{
		folder:    folder,
		keep:      keep,
		board:     newBoard(time.Now(), names),
		events:    make(chan event, 256),
		over:      make(chan struct{}),
		processes: make(map[string]*process),
	}, nil
}

// found starts all members as a new cluster. The first learns its port from the
// system, and the others join there: any member's address will do.
func (d *demo) found(ctx context.Context) error {
	var join []string
	for _, name := range names {
		if err := d.start(name, len(names), join); err != nil {
			return err
		}
		if join == nil {
			first := d.board.row(name)
			if err := d.until(ctx, name+" to listen", func() bool { return first.addr != "" || first.state == dead }); err != nil {
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

// restart starts a member that died, under its old name. What it knew of the
// cluster was in memory and is gone: it joins like a new one, at the others.
func (d *demo) restart(name string) error {
	var join []string
	for _, r := range d.board.rows {
		if r.name != name && r.state != dead {
			join = append(join, r.addr)
		}
	}
	return d.start(name, 0, join)
}

// until takes events until done. The error says what was waited for in vain.
func (d *demo) until(ctx context.Context, what string, done func() bool) error {
	ticks := time.NewTicker(250 * time.Millisecond)
	defer ticks.Stop()
	for !done() {
		select {
		case e := <-d.events:
			if err := d.take(e); err != nil {
				return err
			}
		case <-ticks.C:
			d.tick()
		case <-ctx.Done():
			return fmt.Errorf("waited for %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

func (d *demo) take(e event) error {
	line, minor := d.board.apply(e, time.Now())
	if line != "" {
		d.say(line, minor)
	}
	if (e.Kind == exited || e.Kind == failed) && !d.live && !d.processes[e.Member].ending {
		return fmt.Errorf("%s ended by itself: %s", e.Member, e.Detail)
	}
	return nil
}

// settledFor is how long nobody must come or go before the demo believes that
// the members have settled: a view may be some beats old.
const settledFor = 500 * time.Millisecond

// settle waits until the members are settled, and stay so.
func (d *demo) settle(ctx context.Context) error {
	var since time.Time
	return d.until(ctx, "three voters, a scheduler, and shards divided evenly", func() bool {
		if !d.board.settled() {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) >= settledFor
	})
}

// let lets the members work for a while.
func (d *demo) let(ctx context.Context, while time.Duration) error {
	end := time.Now().Add(while)
	return d.until(ctx, "time to pass", func() bool { return time.Now().After(end) })
}
