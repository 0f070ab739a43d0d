package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// What a terminal is told. The table has a screen of its own, so that what was on
// the terminal before is there again afterwards.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	restOfLine  = "\x1b[K\r\n"
	restOfAll   = "\x1b[J"
)

// live is the demo on a terminal.
type live struct {
	*demo
	latest []string
	keys   chan byte
	wake   <-chan time.Time // when the one who is paused goes on
	asleep string
}

const maxLatest = 100

func playLive(ctx context.Context, keep bool) (exit int) {
	d, err := newDemo(keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		return 1
	}
	defer d.close() // also after a panic
	l := &live{demo: d, keys: make(chan byte)}
	d.say, d.tick, d.live = l.say, l.draw, true
	err = l.run(ctx)
	d.endAll()
	if err == nil {
		err = l.summary()
	}
	if keep {
		fmt.Println("The ledgers are in", d.folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		return 1
	}
	return 0
}

// run shows the table until the user has had enough.
func (l *live) run(ctx context.Context) error {
	restore, err := singleKeys()
	if err != nil {
		return err
	}
	defer restore()
	fmt.Print(enterScreen)
	defer fmt.Print(leaveScreen)
	go l.read()
	if err := l.found(ctx); err != nil {
		return ended(ctx, err)
	}
	ticks := time.NewTicker(250 * time.Millisecond)
	defer ticks.Stop()
	for {
		l.draw()
		var err error
		select {
		case e := <-l.events:
			err = l.take(e)
		case <-l.wake:
			l.say("SIGCONT: "+l.asleep+" goes on where it was", false)
			err = l.resume(l.asleep)
			l.asleep, l.wake = "", nil
		case key := <-l.keys:
			if key == 'q' {
				return nil
			}
			err = l.press(ctx, key)
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return ended(ctx, err)
		}
	}
}

// ended is err, unless it only says that the user pressed Ctrl-C.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// press does what a key stands for.
func (l *live) press(ctx context.Context, key byte) error {
	who := l.board.scheduler.member
	switch key {
	case 'k':
		if why := l.refuse(who); why != "" {
			l.say("k: not now: "+why, false)
			return nil
		}
		l.say("kill -9 "+who+". One TTL later its locks are free", false)
		return l.kill(ctx, who)
	case 'p':
		if why := l.refuse(who); why != "" {
			l.say("p: not now: "+why, false)
			return nil
		}
		if !canPause {
			l.say("p: this system has no signal that stops a process", false)
			return nil
		}
		if err := l.pauseMidWrite(ctx, who); err != nil {
			l.say("p: "+err.Error(), false)
			return ctx.Err()
		}
		l.say(fmt.Sprintf("SIGSTOP %s for %v, in the middle of its writes to shards %v", who, pauseFor, l.board.shardsOf(who)), false)
		l.asleep, l.wake = who, time.After(pauseFor)
	case 'r':
		return l.revive(ctx)
	}
	return nil
}

// refuse says why the scheduler must not be killed or paused now.
func (l *live) refuse(who string) string {
	switch {
	case who == "":
		return "there is no scheduler yet"
	case l.board.up() < len(names):
		return fmt.Sprintf("only %d of three voters are up, and without two nothing is granted. A restarted one votes after some 8s", l.board.up())
	}
	return ""
}

// revive restarts what is dead.
func (l *live) revive(ctx context.Context) error {
	var gone []string
	for _, r := range l.board.rows {
		if r.state == dead {
			gone = append(gone, r.name)
		}
	}
	switch {
	case len(gone) == 0:
		l.say("r: nobody is dead", false)
	case len(gone) == 1:
		l.say("restart "+gone[0]+": it joins the others", false)
		return l.restart(gone[0])
	default:
		// The keys do not do that, but another terminal can.
		l.say("two of three voters are gone, and with them what the cluster knew: found it anew", false)
		for _, r := range l.board.rows {
			if r.state != dead {
				if err := l.kill(ctx, r.name); err != nil {
					return err
				}
			}
		}
		l.asleep, l.wake = "", nil
		return l.found(ctx)
	}
	return nil
}

// say adds a line to the latest events.
func (l *live) say(line string, _ bool) {
	l.latest = append(l.latest, fmt.Sprintf("%7s  %s", elapsed(l.board, time.Now()), line))
	if over := len(l.latest) - maxLatest; over > 0 {
		l.latest = l.latest[over:]
	}
}

func (l *live) draw() {
	width, height := screenSize()
	lines := renderTable(l.board, time.Now(), l.latest, width, height)
	fmt.Print(home, strings.Join(lines, restOfLine), restOfLine, restOfAll)
}

// read hands on the keys that are pressed. It ends with the process.
func (l *live) read() {
	in := bufio.NewReader(os.Stdin)
	for {
		key, err := in.ReadByte()
		if err != nil {
			return
		}
		select {
		case l.keys <- key:
		case <-l.over:
			return
		}
	}
}

// summary says, when the table is gone, what the ledgers say.
func (l *live) summary() error {
	f, err := checkLedgers(l.folder)
	if err != nil {
		return err
	}
	fmt.Printf("%d writes to %d ledgers, read back: %d stale ones accepted, %d by two owners at once, %d updates lost.\n",
		f.Writes, shards, f.Stale, f.Overlaps+f.Shared, f.Lost)
	fmt.Printf("The fence refused %d stale writes.\n", len(l.board.refusals))
	if f.First != "" {
		return fmt.Errorf("%s", f.First)
	}
	if l.board.broken != "" {
		return fmt.Errorf("%s", l.board.broken)
	}
	return nil
}
