package fencetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/fence"
)

var cases = []oneCase{
	{name: "token zero is refused", run: tokenZero},
	{name: "a stale token is refused", run: staleToken},
	{name: "equal tokens are admitted", run: equalTokens},
	{name: "neighbours among large tokens", run: largeTokens},
	{name: "a claim before the read", run: claimBeforeRead},
	{name: "a write without a claim", run: writeWithoutClaim},
	{name: "a race for the first claim", run: firstInsert},
	{name: "two resources", run: twoResources},
	{name: "a write stopped at every place", control: true, run: stoppedWrites},
	{name: "writers with random pauses", control: true, run: randomPauses},
	{name: "a call that is given up", run: givenUp},
	{name: "deletion and re-insert", run: deletion, needs: func(r Resource) string {
		if _, ok := r.(Deleter); !ok {
			return "Deleter"
		}
		return ""
	}},
	{name: "a lost answer", run: lostAnswer, needs: func(r Resource) string {
		if _, ok := r.(AnswerLoser); !ok {
			return "AnswerLoser"
		}
		return ""
	}},
	{name: "a second handle knows the mark", run: secondHandle, needs: func(r Resource) string {
		if _, ok := r.(Reopener); !ok {
			return "Reopener"
		}
		return ""
	}},
}

func tokenZero(p *player) error {
	r := p.open()
	return first(
		func() error { return p.claims(r, 0, fence.ErrUnfenced) },
		func() error { return p.writes(r, 0, "zero", fence.ErrUnfenced) },
		func() error { return p.reads(r, "") },
		func() error { return p.claims(r, 1, nil) },
		func() error { return p.writes(r, 1, "one", nil) },
		func() error { return p.writes(r, 0, "zero", fence.ErrUnfenced) },
		func() error { return p.reads(r, "one") },
	)
}

func staleToken(p *player) error {
	r := p.open()
	return first(
		func() error { return p.claims(r, 7, nil) },
		func() error { return p.writes(r, 7, "seven", nil) },
		func() error { return p.claims(r, 6, fence.ErrStale) },
		func() error { return p.writes(r, 6, "six", fence.ErrStale) },
		func() error { return p.reads(r, "seven") },
		func() error { return p.claims(r, 9, nil) },
		func() error { return p.writes(r, 7, "late", fence.ErrStale) }, // though 9 has not written
		func() error { return p.claims(r, 8, fence.ErrStale) },
		func() error { return p.writes(r, 9, "nine", nil) },
		func() error { return p.reads(r, "nine") },
	)
}

func equalTokens(p *player) error {
	r := p.open()
	return first(
		func() error { return p.claims(r, 5, nil) },
		func() error { return p.claims(r, 5, nil) }, // its answer was lost
		func() error { return p.writes(r, 5, "a", nil) },
		func() error { return p.writes(r, 5, "a", nil) }, // equal values too
		func() error { return p.writes(r, 5, "b", nil) },
		func() error { return p.claims(r, 5, nil) },
		func() error { return p.reads(r, "b") },
	)
}

// largeTokens tells neighbours apart beyond the 53 bits of a float and the 31 of an
// int. A guard may refuse tokens beyond a limit of its own, as long as nothing changes.
func largeTokens(p *player) error {
	for _, high := range []fence.Token{1<<31 + 1, 1<<32 + 1, 1<<53 - 1, 1<<53 + 1, 1<<63 - 1, 1<<64 - 1} {
		r := p.open()
		low := high - 1
		if err := r.Claim(p.ctx, high); err != nil {
			if high < 1<<53 {
				return fmt.Errorf("Claim(%d), which a cluster may grant: %w", high, err)
			}
			p.tb.Logf("tokens from %d on are refused: %v", high, err)
			if errors.Is(err, fence.ErrStale) {
				return fmt.Errorf("the first token of a resource is called stale: %w", err)
			}
			return first(
				func() error { return p.claims(r, 1, nil) }, // nothing was changed
				func() error { return p.writes(r, 1, "one", nil) },
				func() error { return p.reads(r, "one") },
			)
		}
		if err := first(
			func() error { return p.writes(r, high, "high", nil) },
			func() error { return p.claims(r, low, fence.ErrStale) },
			func() error { return p.writes(r, low, "low", fence.ErrStale) },
			func() error { return p.reads(r, "high") },
			func() error { return tellsFacts(r.Claim(p.ctx, low), low, high) },
			func() error { return tellsFacts(r.Write(p.ctx, low, "low"), low, high) },
		); err != nil {
			return err
		}
	}
	return nil
}

// tellsFacts checks the facts of a *fence.StaleError: the mark must be read back whole.
func tellsFacts(err error, token, mark fence.Token) error {
	var stale *fence.StaleError
	if errors.As(err, &stale) && *stale != (fence.StaleError{Token: token, Seen: mark}) {
		return fmt.Errorf("the refusal of token %d at the mark %d says: %w", token, mark, err)
	}
	return nil
}

// twoResources: each resource has its own mark.
func twoResources(p *player) error {
	a, b := p.open(), p.open()
	return first(
		func() error { return p.claims(a, 9, nil) },
		func() error { return p.claims(b, 1, nil) },
		func() error { return p.writes(b, 1, "b", nil) },
		func() error { return p.reads(a, "") },
		func() error { return p.writes(a, 9, "a", nil) },
		func() error { return p.claims(a, 8, fence.ErrStale) },
		func() error { return p.claims(b, 2, nil) },
		func() error { return p.writes(b, 2, "more", nil) },
		func() error { return p.reads(a, "a") },
		func() error { return p.reads(b, "more") },
	)
}

func claimBeforeRead(p *player) error {
	r := p.open()
	return first(
		func() error { return p.claims(r, 1, nil) },
		func() error { return p.writes(r, 1, "100", nil) },
		func() error { return p.claims(r, 2, nil) },
		func() error { return p.reads(r, "100") },
		func() error { return p.writes(r, 1, "150", fence.ErrStale) }, // after the read of 2
		func() error { return p.writes(r, 2, "110", nil) },
		func() error { return p.reads(r, "110") },
	)
}

// writeWithoutClaim: a guard either takes a write as a claim, or refuses the write and
// leaves the mark unchanged.
func writeWithoutClaim(p *player) error {
	r := p.open()
	if err := p.claims(r, 1, nil); err != nil {
		return err
	}
	switch err := r.Write(p.ctx, 2, "two"); {
	case err == nil:
		return first(
			func() error { return p.reads(r, "two") },
			func() error { return p.writes(r, 1, "one", fence.ErrStale) },
			func() error { return p.reads(r, "two") },
		)
	case errors.Is(err, fence.ErrNotClaimed):
		return first(
			func() error { return p.reads(r, "") },
			func() error { return p.writes(r, 1, "one", nil) },
			func() error { return p.claims(r, 2, nil) },
			func() error { return p.writes(r, 2, "two", nil) },
			func() error { return p.reads(r, "two") },
		)
	default:
		return fmt.Errorf("Write(2) without a claim returned %w, want nil or an error that matches %q", err, fence.ErrNotClaimed)
	}
}

// firstInsert: a new resource has no mark yet, so a claim has nothing to lock. Each token
// is claimed twice at once, as by a holder that repeats its claim.
func firstInsert(p *player) error {
	const rounds, racers = 10, 8
	for range rounds {
		r := p.open()
		outcomes := make([]error, 2*(racers+1))
		start := make(chan struct{})
		var racing sync.WaitGroup
		for i := 2; i < len(outcomes); i++ {
			racing.Go(func() {
				<-start
				outcomes[i] = p.insist(func() error { return r.Claim(p.ctx, fence.Token(i/2)) })
			})
		}
		close(start)
		racing.Wait()
		for i := 2; i < len(outcomes); i++ {
			if err := outcomes[i]; err != nil && (i/2 == racers || !errors.Is(err, fence.ErrStale)) {
				return fmt.Errorf("Claim(%d) among others: %w", i/2, err)
			}
		}
		for t := 1; t < racers; t++ {
			if err := p.writes(r, fence.Token(t), "low", fence.ErrStale); err != nil {
				return err
			}
		}
		if err := first(
			func() error { return p.writes(r, racers, "high", nil) },
			func() error { return p.reads(r, "high") },
		); err != nil {
			return err
		}
	}
	return nil
}

// insist repeats a call until the outcome is known.
func (p *player) insist(call func() error) error {
	for {
		err := call()
		if err == nil || known(err) || p.ctx.Err() != nil {
			return err
		}
	}
}

// known reports whether err means that the call has changed nothing.
func known(err error) bool {
	return errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrUnfenced) || errors.Is(err, fence.ErrNotClaimed)
}

// patience is the time after which a later holder's call counts as waiting for the stopped
// write. A wrong guess weakens one round of the case, and fails no round.
const patience = 50 * time.Millisecond

// stoppedWrites stops the write of token 1 at its first place, then at its second, and
// so on; each time the holder of token 2 claims, reads and writes meanwhile.
func stoppedWrites(p *player) error {
	for place := 1; ; place++ {
		r := p.open()
		if err := first(
			func() error { return p.claims(r, 1, nil) },
			func() error { return p.writes(r, 1, "100", nil) },
		); err != nil {
			return err
		}
		var reached atomic.Int32
		stopped := make(chan string)
		goOn := make(chan struct{})
		var once sync.Once
		resume := func() { once.Do(func() { close(goOn) }) }
		ctx := context.WithValue(p.ctx, pauseKey{}, func(name string) {
			if int(reached.Add(1)) == place {
				stopped <- name
				<-goOn
			}
		})
		early := make(chan error, 1)
		go func() { early <- r.Write(ctx, 1, "150") }()
		var name string
		select {
		case name = <-stopped:
		case err := <-early: // there is no such place
			if place == 1 {
				p.tb.Log("the resource never calls Pause: its writes are stopped at random only")
			}
			if err != nil {
				return fmt.Errorf("Write(1) of the only holder: %w", err)
			}
			return nil
		}

		// The later holder may have to wait for the stopped write, and must not block the
		// write afterwards.
		type later struct {
			read string
			err  error
		}
		done := make(chan later, 1)
		go func() {
			var l later
			if l.err = p.insist(func() error { return r.Claim(p.ctx, 2) }); l.err == nil {
				if l.read, l.err = r.Read(p.ctx); l.err == nil {
					l.err = p.insist(func() error { return r.Write(p.ctx, 2, l.read+"+10") })
				}
			}
			done <- l
		}()
		var l later
		select {
		case l = <-done:
			resume()
		case <-time.After(patience):
			resume()
			l = <-done
		}
		outcome := <-early
		if l.err != nil {
			return fmt.Errorf("stopped at place %d (%s): the later holder failed: %w", place, name, l.err)
		}
		if l.read != "100" && l.read != "150" {
			return fmt.Errorf("stopped at place %d (%s): the later holder read %q", place, name, l.read)
		}
		if outcome == nil && l.read != "150" {
			return fmt.Errorf("stopped at place %d (%s): the write of token 1 was admitted after the holder of token 2 had read %q", place, name, l.read)
		}
		if err := first(
			func() error { return p.reads(r, l.read+"+10") },
			func() error { return p.writes(r, 1, "late", fence.ErrStale) },
			func() error { return p.reads(r, l.read+"+10") },
		); err != nil {
			return fmt.Errorf("stopped at place %d (%s): %w", place, name, err)
		}
	}
}

// randomPauses lets eight writers work for a moment.
func randomPauses(p *player) error {
	result, err := storm(p.ctx, p.open(), 8, 300*time.Millisecond)
	if err != nil {
		return err
	}
	p.tb.Log(result)
	return result.Err()
}

// givenUp: after the end of its ctx a call has happened or not, and blocks nobody.
func givenUp(p *player) error {
	r := p.open()
	if err := p.claims(r, 1, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	err := r.Write(ctx, 1, "given up")
	want := []string{"", "given up"}
	if err == nil {
		want = want[1:]
	} else if errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("a write that was given up is called stale: %w", err)
	}
	got, err := r.Read(p.ctx)
	if err != nil {
		return fmt.Errorf("Read: %w", err)
	}
	for _, w := range want {
		if got == w {
			return first(
				func() error { return p.writes(r, 1, "again", nil) },
				func() error { return p.claims(r, 2, nil) },
				func() error { return p.writes(r, 1, "late", fence.ErrStale) },
				func() error { return p.reads(r, "again") },
			)
		}
	}
	return fmt.Errorf("after a write that was given up Read returned %q", got)
}

// deletion: the mark outlives the value.
func deletion(p *player) error {
	r := p.open().(Deleter)
	return first(
		func() error { return p.claims(r, 1, nil) },
		func() error { return p.writes(r, 1, "one", nil) },
		func() error { return p.claims(r, 2, nil) },
		func() error { return wants("Delete(1)", r.Delete(p.ctx, 1), fence.ErrStale) },
		func() error { return p.reads(r, "one") },
		func() error { return wants("Delete(2)", r.Delete(p.ctx, 2), nil) },
		func() error { return p.reads(r, "") },
		func() error { return p.writes(r, 1, "one", fence.ErrStale) },
		func() error { return p.claims(r, 1, fence.ErrStale) },
		func() error { return p.reads(r, "") },
		func() error { return p.writes(r, 2, "two", nil) },
		func() error { return p.reads(r, "two") },
	)
}

// lostAnswer: a write has happened and seems to have failed. No call may report the token
// as stale, and the guard admits the same write again.
func lostAnswer(p *player) error {
	r := p.open().(AnswerLoser)
	if err := first(
		func() error { return p.claims(r, 1, nil) },
		func() error { return p.writes(r, 1, "before", nil) },
	); err != nil {
		return err
	}
	r.LoseAnswer()
	if err := r.Write(p.ctx, 1, "lost"); err != nil && known(err) {
		return fmt.Errorf("a write whose answer was lost counts as refused: %w", err)
	}
	return first(
		func() error { return p.reads(r, "lost") },
		func() error { return p.writes(r, 1, "lost", nil) },
		func() error { return p.writes(r, 1, "after", nil) },
		func() error { return p.reads(r, "after") },
	)
}

// secondHandle: another process, or the same after a restart.
func secondHandle(p *player) error {
	r := p.open().(Reopener)
	if err := first(
		func() error { return p.claims(r, 3, nil) },
		func() error { return p.writes(r, 3, "three", nil) },
	); err != nil {
		return err
	}
	again := r.Reopen(p.tb)
	return first(
		func() error { return p.reads(again, "three") },
		func() error { return p.writes(again, 2, "two", fence.ErrStale) },
		func() error { return p.claims(again, 2, fence.ErrStale) },
		func() error { return p.writes(again, 3, "more", nil) },
		func() error { return p.claims(again, 4, nil) },
		func() error { return p.writes(r, 3, "late", fence.ErrStale) },
		func() error { return p.reads(r, "more") },
	)
}
