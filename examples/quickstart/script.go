package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	pauseFor = 3 * ttl // the length of a pause: long enough to lose all locks

	scriptLimit = 52 * time.Second // then the script gives up
	hardLimit   = 58 * time.Second // then the program ends in any case
)

// verdict is the script's last line. Times are in milliseconds on the parent's
// clock, from the start, kill or stop of a process to the event of the grant.
type verdict struct {
	OK                 bool   `json:"ok"`
	Members            int    `json:"members"`
	Formed             int64  `json:"formed_ms"`               // from the start until the first grant, the wait of a new cluster included
	TakeoverAfterKill  int64  `json:"takeover_after_kill_ms"`  // until another scheduler was elected
	KilledLed          bool   `json:"killed_led"`              // the killed member was raft leader, so the voters elected a leader first
	TakeoverAfterPause int64  `json:"takeover_after_pause_ms"` // until other members owned all its shards
	PausedLed          bool   `json:"paused_led"`
	StaleAttempted     int    `json:"stale_attempted"`
	StaleAccepted      int    `json:"stale_accepted"`
	Overlaps           int    `json:"overlaps"`
	TokensRising       bool   `json:"tokens_rising"`
	LostUpdates        int    `json:"lost_updates"`
	Writes             int    `json:"writes"`
	Skipped            string `json:"skipped,omitempty"` // the part that this system cannot do
	Error              string `json:"error,omitempty"`
}

func playScript(ctx context.Context, keep bool) (exit int) {
	ctx, cancel := context.WithTimeoutCause(ctx, scriptLimit, fmt.Errorf("time is up after %v", scriptLimit))
	defer cancel()
	d, err := newDemo(keep)
	if err != nil {
		return conclude(verdict{Error: err.Error()})
	}
	defer d.close() // also after a panic

	// The script ends at scriptLimit. The watchdog is for a script that hangs.
	watchdog := time.AfterFunc(hardLimit, func() {
		go d.close()
		time.Sleep(time.Second)
		os.Exit(conclude(verdict{Error: fmt.Sprintf("stuck: ended by force after %v", hardLimit)}))
	})
	defer watchdog.Stop()

	var v verdict
	s := &script{demo: d, verdict: &v, colours: inColour(os.Stdout, os.Getenv), width: 100}
	if isTerminal(os.Stdout) {
		s.width, _ = screenSize()
	}
	d.say = s.progress
	d.tick = func() {}
	if err := s.play(ctx); err != nil {
		v.Error = err.Error()
	}
	d.close()
	if keep {
		fmt.Printf("\nThe ledgers are in %s\n", d.folder)
	}
	return conclude(v)
}

var concluded sync.Mutex

// conclude prints the verdict as the last line on standard output and returns the
// exit status. A second call blocks for ever.
func conclude(v verdict) int {
	concluded.Lock() // never unlocked: a second caller must print nothing
	v.OK = v.Error == ""
	line, err := json.Marshal(v)
	if err != nil {
		line = []byte(`{"ok":false}`)
	}
	fmt.Printf("\n%s\n", line)
	if !v.OK {
		return 1
	}
	return 0
}

// script is the demo without a terminal.
type script struct {
	*demo
	verdict *verdict
	step    int
	colours bool
	width   int // of the terminal; wide without one
}

// progress prints an event, unless it is minor.
func (s *script) progress(text string, minor bool) {
	if !minor {
		s.print(eventStyle(text), fmt.Sprintf("%7s  %s", elapsed(s.board, time.Now()), text), 9)
	}
}

// print prints text in lines that fit the terminal.
func (s *script) print(as style, text string, indent int) {
	for _, part := range wrapped(text, s.width, indent) {
		fmt.Println(styled(as, part).text(s.colours))
	}
}

func (s *script) tell(format string, args ...any) { s.progress(fmt.Sprintf(format, args...), false) }

func (s *script) chapter(format string, args ...any) {
	s.step++
	fmt.Println()
	s.print(bold, fmt.Sprintf("%d. %s", s.step, fmt.Sprintf(format, args...)), 3)
}

func (s *script) play(ctx context.Context) error {
	s.print(plain, fmt.Sprintf("wardmote: three processes on this computer become one cluster (TTL %v), elect a "+
		"scheduler, and divide %d shards, each with a ledger that its owner alone may write. "+
		"It takes about half a minute.", ttl, shards), 0)
	for _, act := range []func(context.Context) error{s.form, s.killScheduler, s.bringBack, s.pauseOwner, s.check} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) form(ctx context.Context) error {
	s.chapter("Form a cluster: start the processes. A new cluster grants nothing for its first TTL, in " +
		"case members of an earlier cluster still trust their locks")
	if err := s.foundCluster(ctx); err != nil {
		return err
	}
	if err := s.waitUntilBalanced(ctx); err != nil {
		return err
	}
	s.verdict.Members = s.board.votersUp()
	s.verdict.Formed = s.board.firstGrant.Sub(s.board.began).Milliseconds()
	s.tell("all %d shards have an owner: %s", shards, s.board.division())
	s.tell("they work for 2s")
	if err := s.waitFor(ctx, 2*time.Second); err != nil {
		return err
	}
	s.tell("%d writes so far", s.board.writes())
	return nil
}

func (s *script) killScheduler(ctx context.Context) error {
	old := s.board.scheduler.member
	s.verdict.KilledLed = s.board.row(old).leads
	s.chapter("Kill the scheduler: kill -9 %s%s", old, alsoLeads(s.verdict.KilledLed))
	killed := time.Now()
	if err := s.kill(ctx, old); err != nil {
		return err
	}
	s.tell("waiting for the cluster to notice: a dead process's locks are free after one TTL")
	if err := s.waitUntil(ctx, "another scheduler", func() bool { return s.board.scheduler.member != "" }); err != nil {
		return err
	}
	took := time.Since(killed)
	s.verdict.TakeoverAfterKill = took.Milliseconds()
	s.tell("%s took over %.1fs after the kill", s.board.scheduler.member, took.Seconds())
	if err := s.waitUntil(ctx, "owners of "+old+"'s shards", func() bool { return s.board.allOwned(old) }); err != nil {
		return err
	}
	s.tell("all %d shards have an owner: %s", shards, s.board.division())
	return nil
}

func (s *script) bringBack(ctx context.Context) error {
	for _, r := range s.board.rows {
		if r.state != dead {
			continue
		}
		s.chapter("Restart %s, under its old name: it joins and takes its share of the shards. It must be "+
			"a voter again before the next fault, or the cluster would lose its majority", r.name)
		if err := s.restart(r.name); err != nil {
			return err
		}
	}
	s.tell("waiting until there are three voters again")
	if err := s.waitUntilBalanced(ctx); err != nil {
		return err
	}
	s.tell("three voters, and all %d shards have an owner: %s", shards, s.board.division())
	return nil
}

func (s *script) pauseOwner(ctx context.Context) error {
	if !canPause {
		s.chapter("Pause an owner: SKIPPED, this system has no signal that stops a process")
		s.verdict.Skipped = "pause: this system has no signal that stops a process"
		return nil
	}
	// Not the scheduler, because the script has shown its loss already.
	var r *row
	for _, r = range s.board.rows {
		if r.name != s.board.scheduler.member {
			break
		}
	}
	s.verdict.PausedLed = r.leads
	pending, before := s.board.shardsOf(r.name), len(s.board.refusals)
	s.chapter("Pause %s for three TTLs, in the middle of a write to each of its shards %s%s", r.name, summed(pending), alsoLeads(r.leads))
	if err := s.pauseMidWrite(ctx, r.name); err != nil {
		return err
	}
	stopped := time.Now()
	s.tell("SIGSTOP: %s stands still and does not notice. Waiting until others own its shards", r.name)
	if err := s.waitUntil(ctx, "owners of "+r.name+"'s shards", func() bool { return s.board.allOwned(r.name) }); err != nil {
		return err
	}
	took := time.Since(stopped)
	s.verdict.TakeoverAfterPause = took.Milliseconds()
	s.tell("others own all its shards %.1fs after the stop: %s. The new owners write", took.Seconds(), s.board.division())
	if err := s.waitFor(ctx, pauseFor-time.Since(stopped)); err != nil {
		return err
	}
	s.tell("SIGCONT: %s goes on and finishes its writes, with tokens of the past", r.name)
	if err := s.resume(r.name); err != nil {
		return err
	}
	each := func() bool { return len(s.board.refusals)-before >= len(pending) }
	if err := s.waitUntil(ctx, fmt.Sprintf("%d stale writes to be refused", len(pending)), each); err != nil {
		return err
	}
	fmt.Println()
	for _, l := range climax(s.board, s.width) {
		fmt.Println(l.text(s.colours))
	}
	s.tell("waiting until %s has its share of the shards again", r.name)
	if err := s.waitUntilBalanced(ctx); err != nil {
		return err
	}
	s.tell("all %d shards have an owner: %s", shards, s.board.division())
	s.tell("they work for 1s")
	return s.waitFor(ctx, time.Second)
}

func (s *script) check(ctx context.Context) error {
	s.chapter("Check: end all processes and read the %d ledgers back", shards)
	s.endAll()
	f, err := checkLedgers(s.folder)
	if err != nil {
		return err
	}
	v := s.verdict
	v.Writes = f.Writes
	v.StaleAccepted = f.Stale
	v.StaleAttempted = len(s.board.refusals) + f.Stale
	v.Overlaps = f.Overlaps + f.Shared
	v.LostUpdates = f.Lost
	v.TokensRising = f.Stale == 0
	s.tell("%d writes: %d stale writes accepted, %d times two owners at once, %d updates lost", f.Writes, f.Stale, v.Overlaps, f.Lost)
	s.tell("%d stale writes were attempted, and the fence refused %d", v.StaleAttempted, len(s.board.refusals))
	broken := s.brokenPromise(f)
	switch {
	case broken != nil:
		return broken
	case f.Writes == 0:
		return errors.New("nothing was written, so nothing is proved")
	case canPause && len(s.board.refusals) == 0:
		return errors.New("no stale write was attempted, so nothing is proved")
	}
	return nil
}

func alsoLeads(leads bool) string {
	if leads {
		return ". It is also the raft leader, so the voters must elect a leader first"
	}
	return ""
}
