package fencetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// A Result counts the calls of Storm. Lost and Late are the faults: both are zero for
// a guard.
type Result struct {
	Claims  int // claims admitted
	Writes  int // writes admitted
	Refused int // claims and writes refused as stale
	Unknown int // claims and writes whose outcome is not known

	Lost int // admitted writes that another write has undone
	Late int // writes admitted after the write of a higher token
}

func (r Result) String() string {
	return fmt.Sprintf("%d claims and %d writes admitted, %d refused, %d unknown; %d updates lost, %d out of token order",
		r.Claims, r.Writes, r.Refused, r.Unknown, r.Lost, r.Late)
}

// Err returns an error if the resource has lost an update or admitted a late write, and
// also if no write was admitted, because then the storm proves nothing.
func (r Result) Err() error {
	if r.Lost > 0 || r.Late > 0 || r.Writes == 0 {
		return fmt.Errorf("fencetest: %s", r)
	}
	return nil
}

// Storm lets writers hold the resource for the time d, as if the lock's holders were
// paused again and again: each takes a new token whenever it likes, claims, reads a
// counter, and adds to it a few times with random pauses. Storm fails if the resource
// cannot be read. Results are judged by Result.Err; Run has a short Storm as one case.
func Storm(tb testing.TB, r Resource, writers int, d time.Duration) (Result, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d+bound)
	defer cancel()
	return storm(ctx, r, writers, d)
}

// A record is an admitted write of count under token. If sure is false, the outcome is
// unknown.
type record struct {
	count int
	token fence.Token
	sure  bool
}

func storm(ctx context.Context, r Resource, writers int, d time.Duration) (Result, error) {
	var (
		tokens atomic.Uint64
		mu     sync.Mutex
		result Result
		wrote  []record
		failed error
	)
	end := time.Now().Add(d)
	hold := func() {
		// The others' grants last a few milliseconds, on average.
		sleep(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
		t := fence.Token(tokens.Add(1))
		err := r.Claim(ctx, t)
		mu.Lock()
		switch {
		case err == nil:
			result.Claims++
		case known(err):
			result.Refused++
		default:
			result.Unknown++
		}
		mu.Unlock()
		if err != nil {
			return
		}
		text, err := r.Read(ctx)
		if err != nil {
			mu.Lock()
			failed = errors.Join(failed, err)
			mu.Unlock()
			return
		}
		count, _ := parse(text)
		for range 1 + rand.IntN(6) {
			pause(ctx)
			count++
			ctx := context.WithValue(ctx, pauseKey{}, func(string) { pause(ctx) })
			err := r.Write(ctx, t, format(count, t))
			mu.Lock()
			switch {
			case err == nil:
				result.Writes++
				wrote = append(wrote, record{count, t, true})
			case known(err):
				result.Refused++
			default:
				result.Unknown++
				wrote = append(wrote, record{count, t, false})
			}
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}
	var working sync.WaitGroup
	for range writers {
		working.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil {
				hold()
			}
		})
	}
	working.Wait()
	text, err := r.Read(ctx)
	if err = errors.Join(failed, err); err != nil {
		return result, fmt.Errorf("fencetest: the resource cannot be read: %w", err)
	}
	judge(&result, wrote, text)
	return result, nil
}

// judge finds the faults in the writes of a storm. The value at the end is text. Each
// holder adds one to the count read after its claim, and one more with each further write.
// So no two admitted writes have equal counts, the last admitted write has the count in
// text, and in the order of the counts the tokens never fall.
func judge(result *Result, wrote []record, text string) {
	last, _ := parse(text)
	sort.SliceStable(wrote, func(i, j int) bool { return wrote[i].count < wrote[j].count })
	highest := fence.Token(0)
	for i, w := range wrote {
		if !w.sure {
			continue
		}
		if w.count > last || i > 0 && wrote[i-1].sure && wrote[i-1].count == w.count {
			result.Lost++
		}
		if w.token < highest {
			result.Late++
		}
		highest = max(highest, w.token)
	}
}

func format(count int, t fence.Token) string { return fmt.Sprintf("%d %d", count, t) }

func parse(text string) (count int, t fence.Token) {
	_, _ = fmt.Sscanf(text, "%d %d", &count, &t) // no value yet: zero
	return count, t
}

// pause stops the writer for a random moment, as a scheduler or a debugger would.
func pause(ctx context.Context) {
	switch rand.IntN(8) {
	case 0:
		sleep(ctx, time.Duration(rand.IntN(5000))*time.Microsecond)
	case 1, 2, 3:
		sleep(ctx, time.Duration(rand.IntN(500))*time.Microsecond)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
