package locks_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// A key as callers may observe it: a mutex whose grants carry rising tokens.

type keyOp struct {
	kind opKind
	id   int // of the operation's try
}

type opKind uint8

const (
	opTry      opKind = iota // TryAcquire
	opRelease                // Release of the grant of try id
	opWithdraw               // the client's own, after a try of unknown outcome
)

type keyResult struct {
	granted fence.Token
	unknown bool
	beyond  bool // refused because of the key's capacity: see modeModel
}

type keyState struct {
	holder int // a try, or 0
	token  fence.Token
}

var keyModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{keyState{}} },
	Step: func(state, input, output any) []any {
		s, op, res := state.(keyState), input.(keyOp), output.(keyResult)
		switch op.kind {
		case opTry:
			switch {
			case res.unknown:
				// The try did nothing, or was granted a token that no caller saw.
				if s.holder == 0 {
					return []any{s, keyState{holder: op.id, token: s.token}}
				}
				return []any{s}
			case res.granted == 0:
				if s.holder == 0 {
					return nil // refused, though free
				}
				return []any{s}
			case s.holder != 0 || res.granted <= s.token:
				return nil // two holders, or a smaller token
			}
			return []any{keyState{holder: op.id, token: res.granted}}
		case opRelease, opWithdraw:
			if s.holder == op.id {
				return []any{keyState{token: s.token}}
			}
			if op.kind == opRelease && !res.unknown {
				return nil // freed by another than the holder
			}
			return []any{s}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
}

func TestModelRefusesWrongHistories(t *testing.T) {
	op := func(client int, kind opKind, id int, call, ret int64, res keyResult) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: keyOp{kind, id}, Call: call, Output: res, Return: ret}
	}
	for _, tt := range []struct {
		claim string
		legal bool
		ops   []porcupine.Operation
	}{
		{"take, let go, take", true, []porcupine.Operation{
			op(0, opTry, 1, 0, 1, keyResult{granted: 5}), op(0, opRelease, 1, 2, 3, keyResult{}), op(1, opTry, 2, 4, 5, keyResult{granted: 6}),
		}},
		{"two holders", false, []porcupine.Operation{
			op(0, opTry, 1, 0, 1, keyResult{granted: 5}), op(1, opTry, 2, 2, 3, keyResult{granted: 6}),
		}},
		{"a token falls", false, []porcupine.Operation{
			op(0, opTry, 1, 0, 1, keyResult{granted: 5}), op(0, opRelease, 1, 2, 3, keyResult{}), op(1, opTry, 2, 4, 5, keyResult{granted: 4}),
		}},
		{"refused though free", false, []porcupine.Operation{op(0, opTry, 1, 0, 1, keyResult{})}},
		{"refused by one that nobody heard of", true, []porcupine.Operation{
			op(0, opTry, 1, 0, math.MaxInt64, keyResult{unknown: true}), op(1, opTry, 2, 5, 6, keyResult{}),
		}},
	} {
		if porcupine.CheckOperations(keyModel.ToModel(), tt.ops) != tt.legal {
			t.Errorf("%s: the model is wrong", tt.claim)
		}
	}
}

// Every history of tries and releases is possible for a single mutex per key, while
// leaders are cut off and calls give up half way. No session expires: TTLs outlast
// the faults.
func TestHistoriesAreLinearizable(t *testing.T) {
	unknowns := 0
	for round := range testrounds.Rounds(2, 10) {
		synctest.Test(t, func(t *testing.T) {
			c := lockstest.New(t, 3, lockstest.TTL(time.Minute))
			const keys = 3
			var mu sync.Mutex
			histories := make([][]porcupine.Operation, keys)
			tries := 0
			start := time.Now()
			now := func() int64 { return int64(time.Since(start)) }
			record := func(k int, op porcupine.Operation) {
				mu.Lock()
				histories[k] = append(histories[k], op)
				mu.Unlock()
			}
			var wg sync.WaitGroup
			for w := range 6 {
				r := rand.New(rand.NewPCG(rand.Uint64(), 1))
				wg.Go(func() {
					client := c.Client(w % 3)
					for range 12 {
						k := r.IntN(keys)
						key := fmt.Sprint("k", k)
						mu.Lock()
						tries++
						id := tries
						mu.Unlock()
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(3000))*time.Millisecond)
						call := now()
						var opts []locks.Option
						lazy := r.IntN(3) == 0 // some time after Release returns
						if lazy {
							opts = append(opts, locks.Lazy())
						}
						l, err := client.TryAcquire(ctx, key, opts...)
						cancel()
						op := porcupine.Operation{ClientId: w, Input: keyOp{opTry, id}, Call: call, Return: now()}
						switch {
						case err == nil:
							op.Output = keyResult{granted: l.Token()}
						case errors.Is(err, locks.ErrHeld):
							op.Output = keyResult{}
						default:
							mu.Lock()
							unknowns++
							mu.Unlock()
							op.Output, op.Return = keyResult{unknown: true}, math.MaxInt64
							record(k, porcupine.Operation{ClientId: 100 + id, Input: keyOp{opWithdraw, id}, Call: now(), Output: keyResult{unknown: true}, Return: math.MaxInt64})
						}
						record(k, op)
						if l != nil {
							time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
							ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(3000))*time.Millisecond)
							op := porcupine.Operation{ClientId: w, Input: keyOp{opRelease, id}, Call: now()}
							err := l.Release(ctx)
							cancel()
							op.Output, op.Return = keyResult{}, now()
							if err != nil || lazy {
								op.Output, op.Return = keyResult{unknown: true}, math.MaxInt64
							}
							if lazy {
								op.ClientId = 1000 + id
							}
							record(k, op)
						}
						time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
					}
				})
			}
			for range 3 {
				time.Sleep(time.Duration(500+rand.IntN(2000)) * time.Millisecond)
				c.Isolate(c.Leader())
				time.Sleep(time.Duration(500+rand.IntN(3000)) * time.Millisecond)
				c.Heal()
			}
			wg.Wait()
			for k, h := range histories {
				if res := porcupine.CheckOperationsTimeout(keyModel.ToModel(), h, 20*time.Second); res == porcupine.Illegal {
					t.Errorf("round %d: the history of key %d is no mutex's:", round, k)
					for _, op := range h {
						t.Errorf("%+v", op)
					}
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d calls of unknown outcome", unknowns)
	if unknowns < testrounds.Rounds(0, 1) { // a few rounds may have none
		t.Error("no call was cut off: the faults missed")
	}
}
