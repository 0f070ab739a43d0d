package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// Control codes of the terminal. The table uses the alternate screen, so that the
// earlier content of the terminal is visible again afterwards.
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
	latest       []string
	keys         chan byte
	resumeTimer  <-chan time.Time // ends the pause of pausedMember
	pausedMember string
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
	d.say, d.tick, d.interactive = l.say, l.draw, true
	err = l.run(ctx)
	if ctx.Err() != nil {
		err = nil // the user has pressed Ctrl-C
	}
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

// run shows the table until the user quits, and returns the first error.
func (l *live) run(ctx context.Context) error {
	restore, err := singleKeys()
	if err != nil {
		return err
	}
	defer restore()
	fmt.Print(enterScreen)
	defer fmt.Print(leaveScreen)
	go l.read()
	if err := l.foundCluster(ctx); err != nil {
		return err
	}
	ticks := time.NewTicker(250 * time.Millisecond)
	defer ticks.Stop()
	for {
		l.draw()
		var err error
		select {
		case e := <-l.events:
			err = l.handle(e)
		case <-l.resumeTimer:
			l.say("SIGCONT: "+l.pausedMember+" goes on", false)
			err = l.resume(l.pausedMember)
			l.pausedMember, l.resumeTimer = "", nil
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
			return err
		}
	}
}

// press runs the command of a key.
func (l *live) press(ctx context.Context, key byte) error {
	scheduler := l.board.scheduler.member
	why := l.obstacle(scheduler)
	switch {
	case (key == 'k' || key == 'p') && why != "":
		l.say(fmt.Sprintf("%c: not now: %s", key, why), false)
	case key == 'k':
		l.say("kill -9 "+scheduler+". One TTL later its locks are free", false)
		return l.kill(ctx, scheduler)
	case key == 'p' && !canPause:
		l.say("p: this system has no signal that stops a process", false)
	case key == 'p':
		if err := l.pauseMidWrite(ctx, scheduler); err != nil {
			l.say("p: "+err.Error(), false)
			return ctx.Err()
		}
		l.say(fmt.Sprintf("SIGSTOP %s for %v, in the middle of its writes to shards %v", scheduler, pauseFor, l.board.shardsOf(scheduler)), false)
		l.pausedMember, l.resumeTimer = scheduler, time.After(pauseFor)
	case key == 'r':
		return l.restartDead(ctx)
	}
	return nil
}

// obstacle returns the reason not to kill or pause the scheduler now, or "".
func (l *live) obstacle(scheduler string) string {
	switch {
	case scheduler == "":
		return "there is no scheduler yet"
	case l.board.votersUp() < len(names):
		return fmt.Sprintf("only %d of three voters are up, and the cluster needs two. A restarted member votes after a second or two", l.board.votersUp())
	}
	return ""
}

// restartDead restarts the dead members. If a majority is dead, restartDead kills
// the last member too and founds a new cluster.
func (l *live) restartDead(ctx context.Context) error {
	var deadNames []string
	for _, r := range l.board.rows {
		if r.state == dead {
			deadNames = append(deadNames, r.name)
		}
	}
	switch {
	case len(deadNames) == 0:
		l.say("r: nobody is dead", false)
	case len(deadNames) == 1:
		l.say("restart "+deadNames[0]+": it joins the others", false)
		return l.restart(deadNames[0])
	default:
		// The keys do not cause this state, but a kill from another terminal can.
		l.say("two of three voters are dead, and the cluster has lost its state: found a new cluster", false)
		for _, r := range l.board.rows {
			if r.state != dead {
				if err := l.kill(ctx, r.name); err != nil {
					return err
				}
			}
		}
		l.pausedMember, l.resumeTimer = "", nil
		return l.foundCluster(ctx)
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

// read sends the pressed keys to l.keys. A read from the terminal cannot be
// interrupted, so read ends with the process.
func (l *live) read() {
	in := bufio.NewReader(os.Stdin)
	for {
		key, err := in.ReadByte()
		if err != nil {
			return
		}
		select {
		case l.keys <- key:
		case <-l.ctx.Done():
			return
		}
	}
}

// summary checks the ledgers and prints the result, after the table is gone.
func (l *live) summary() error {
	f, err := checkLedgers(l.folder)
	if err != nil {
		return err
	}
	fmt.Printf("%d writes to %d ledgers, read back: %d stale writes accepted, %d times two owners at once, %d updates lost.\n",
		f.Writes, shards, f.Stale, f.Overlaps+f.Shared, f.Lost)
	fmt.Printf("The fence refused %d stale writes.\n", len(l.board.refusals))
	return l.brokenPromise(f)
}
