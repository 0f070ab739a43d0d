package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
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
	colours bool
	latest  []string
	page    *frontPage
	keys    chan byte
	waiting []byte       // pressed keys that wait, in order
	done    map[byte]int // how often each key has had its effect
	shown   string       // the screen as it is

	recovery <-chan time.Time // ends the fault of the member
	recover  func() error
}

const maxLatest = 100

func playLive(ctx context.Context, keep bool) (exit int) {
	d, err := newDemo(keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		return 1
	}
	defer d.close() // also after a panic
	l := &live{demo: d, keys: make(chan byte), done: make(map[byte]int), colours: inColour(os.Stdout, os.Getenv)}
	d.say, d.tick, d.interactive = l.say, l.draw, true
	if l.page, err = newFrontPage(); err == nil {
		err = l.run(ctx)
		l.page.server.Close()
	}
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
	ticks := time.NewTicker(frame)
	defer ticks.Stop()
	for {
		l.draw()
		var err error
		select {
		case e := <-l.events:
			err = l.handle(e)
		case <-l.recovery:
			l.recovery = nil
			err = l.recover()
		case key := <-l.keys:
			if key == 'q' {
				return nil
			}
			l.press(key)
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
		if err == nil {
			err = l.act(ctx)
		}
		if err != nil {
			return err
		}
	}
}

const escape = 0x1b

// press puts a key behind the keys that wait.
func (l *live) press(key byte) {
	const most = 4
	switch {
	case key == escape:
		l.waiting = nil
	case key == 'p' && !canPause:
		l.say("p: this system has no signal that stops a process", false)
	case key == 'r' && l.dead() == nil && !slices.Contains(l.waiting, 'k'):
		l.say("r: nobody is dead", false)
	case strings.IndexByte("kpir", key) >= 0 && len(l.waiting) < most:
		l.waiting = append(l.waiting, key)
	}
}

// act runs the first key that can have its effect now.
func (l *live) act(ctx context.Context) error {
	for i, key := range l.waiting {
		if l.obstacle(key) != "" {
			continue
		}
		l.waiting = slices.Delete(slices.Clone(l.waiting), i, i+1)
		l.done[key]++
		return l.effect(ctx, key)
	}
	return nil
}

// obstacle returns the state for which a key must wait, or "".
func (l *live) obstacle(key byte) string {
	up := l.board.votersUp()
	switch {
	case key == 'r' && l.dead() == nil:
		return "a process to restart"
	case key == 'r':
		return ""
	case l.board.scheduler.member == "":
		return "a scheduler"
	case up < len(names) && l.dead() != nil:
		return fmt.Sprintf("three voters (%d are up: press r)", up)
	case up < len(names):
		return fmt.Sprintf("three voters (%d are up)", up)
	case !l.board.allOwned(""):
		return "owners of all shards"
	}
	return ""
}

// effect runs the command of a key.
func (l *live) effect(ctx context.Context, key byte) error {
	name := l.board.scheduler.member
	switch key {
	case 'k':
		l.say("kill -9 "+name+". Its locks are free when its trust has run down", false)
		return l.kill(ctx, name)
	case 'p':
		if err := l.pauseMidWrite(ctx, name); err != nil {
			l.say("p: "+err.Error(), false)
			return ctx.Err()
		}
		l.say(fmt.Sprintf("SIGSTOP %s for %v, in the middle of its writes to shards %s", name, pauseFor, summed(l.board.shardsOf(name))), false)
		l.recoverLater(func() error {
			l.say("SIGCONT: "+name+" goes on in the middle of its writes", false)
			return l.resume(name)
		})
	case 'i':
		l.say(fmt.Sprintf("%s is cut off for %v: it runs, and reaches nobody", name, pauseFor), false)
		l.recoverLater(func() error {
			l.say(name+" reaches the others again", false)
			return l.heal(name)
		})
		return l.cut(name)
	case 'r':
		return l.restartDead(ctx)
	}
	return nil
}

func (l *live) recoverLater(recover func() error) {
	l.recovery, l.recover = time.After(pauseFor), recover
}

func (l *live) dead() (dead []string) {
	for _, r := range l.board.rows {
		if r.state == "dead" {
			dead = append(dead, r.name)
		}
	}
	return dead
}

// restartDead restarts the dead members. If a majority is dead, restartDead kills
// the last member too and founds a new cluster.
func (l *live) restartDead(ctx context.Context) error {
	dead := l.dead()
	if len(dead) == 1 {
		l.say("restart "+dead[0]+": it joins the others", false)
		return l.restart(dead[0])
	}
	// The keys do not cause this state, but a kill from another terminal can.
	l.say("two of three voters are dead, and the cluster has lost its state: found a new cluster", false)
	l.recovery = nil
	for _, r := range l.board.rows {
		if !slices.Contains(dead, r.name) {
			if err := l.kill(ctx, r.name); err != nil {
				return err
			}
		}
	}
	return l.foundCluster(ctx)
}

// hint returns the next thing to try.
func (l *live) hint() string {
	b := l.board
	for _, r := range b.rows {
		switch r.state {
		case paused:
			return r.name + " stands still and cannot notice. Others get its shards, and then it wakes up."
		case cutOff:
			return r.name + " ends its own locks when its trust has run down, and only then do others get them."
		}
	}
	dead := l.dead()
	switch {
	case len(l.waiting) > 0:
	case b.firstGrant.IsZero():
		return "A new cluster grants nothing for its first TTL, in case members of an earlier cluster still trust their locks."
	case dead != nil && b.allOwned(dead[0]) && b.scheduler.member != "":
		return "Others have taken over. Press r: " + dead[0] + " comes back and takes its share."
	case dead != nil:
		return "Nobody else is granted " + dead[0] + "'s locks while it could still trust them."
	case l.obstacle('k') != "":
	case l.done['k'] == 0:
		return "Press k: kill -9 the scheduler, and see others take over."
	case l.done['p'] == 0 && canPause:
		return "Press p: the scheduler stops in the middle of its writes. No lock can help then. The fence can."
	case l.done['i'] == 0:
		return "Press i: cut the scheduler off, and see it give up its locks before others get them."
	}
	return ""
}

// waits returns the waiting keys and the reason of the first.
func (l *live) waits() string {
	if len(l.waiting) == 0 {
		return ""
	}
	return fmt.Sprintf("waiting: %s, for %s. Esc forgets it", strings.Join(strings.Split(string(l.waiting), ""), " "), l.obstacle(l.waiting[0]))
}

// say adds a line to the latest events.
func (l *live) say(text string, _ bool) {
	l.latest = append(l.latest, fmt.Sprintf("%7s  %s", elapsed(l.board, time.Now()), text))
	if over := len(l.latest) - maxLatest; over > 0 {
		l.latest = l.latest[over:]
	}
}

func (l *live) draw() {
	now := time.Now()
	if text := l.board.changedOwners(now); text != "" {
		l.say(text, true)
	}
	l.page.follow(l.board)
	width, height := screenSize()
	s := screen{latest: l.latest, page: "http://" + l.page.addr + "/", hint: l.hint(), waiting: l.waits()}
	var b strings.Builder
	b.WriteString(home)
	for _, line := range renderTable(l.board, s, now, width, height) {
		b.WriteString(line.text(l.colours) + restOfLine)
	}
	b.WriteString(restOfAll)
	if l.shown != b.String() {
		l.shown = b.String()
		fmt.Print(l.shown)
	}
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
	broken := l.brokenPromise(f)
	s := green
	if broken != nil {
		s = red
	}
	width, _ := screenSize()
	for _, text := range []string{
		fmt.Sprintf("%d writes to %d ledgers, read back: %d stale writes accepted, %d times two owners at once, %d updates lost.",
			f.Writes, shards, f.Stale, f.Overlaps+f.Shared, f.Lost),
		fmt.Sprintf("The fence refused %d stale writes.", len(l.board.refusals)),
	} {
		for _, part := range wrapped(text, width, 0) {
			fmt.Println(styled(s, part).text(l.colours))
		}
	}
	return broken
}
