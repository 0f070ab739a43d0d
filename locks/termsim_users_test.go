package locks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// simKeys are the keys that the users of a term simulation contend for.
var simKeys = []string{"k0", "k1", "k2"}

const counterKey = "counter"

// A simUser is a goroutine of a program on a member.
type simUser struct {
	s   *sky
	m   *simMember
	c   *Client
	rng *rand.Rand
}

func (u *simUser) upTo(d time.Duration) time.Duration { return time.Duration(u.rng.Int64N(int64(d))) }

// pause waits, and on while the process stands still.
func (u *simUser) pause(d time.Duration) {
	time.Sleep(d)
	u.m.clock.Await()
}

// live acts until the faults are over.
func (u *simUser) live() {
	for time.Now().Before(u.s.until) {
		switch n := u.rng.IntN(100); {
		case n < 70:
			u.hold()
		case n < 84:
			u.update()
		case n < 88:
			u.breakLock()
		case n < 90:
			u.endSession()
		case n < 94:
			u.ask()
		}
		u.pause(u.upTo(u.s.ttl))
	}
}

func (u *simUser) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(bg, u.upTo(6*u.s.ttl)+time.Millisecond)
}

// hold acquires a key in some way, and keeps it for some time.
func (u *simUser) hold() {
	key := simKeys[u.rng.IntN(len(simKeys))]
	var opts []Option
	shared := false
	switch u.rng.IntN(8) {
	case 0:
		opts = append(opts, Lazy())
	case 1, 2:
		opts = append(opts, Sticky())
	case 3:
		opts, shared = append(opts, Shared()), true
	case 4:
		opts = append(opts, Priority(u.rng.IntN(3)))
	case 5:
		opts = append(opts, Delay(u.upTo(u.s.ttl)))
	}
	call := u.c.Acquire
	if u.rng.IntN(4) == 0 {
		call = u.c.TryAcquire
	}
	ctx, cancel := u.bounded()
	l, err := call(ctx, key, opts...)
	cancel()
	if err != nil {
		return
	}
	if u.s.book.granted(u.m, l, shared) == nil {
		return
	}
	hold := time.NewTimer(u.upTo(2 * u.s.ttl))
	select {
	case <-hold.C:
	case <-l.ctx.Done():
	}
	hold.Stop()
	u.m.clock.Await()
	ctx, cancel = context.WithTimeout(bg, u.upTo(u.s.ttl/2)+time.Millisecond)
	defer cancel()
	if u.rng.IntN(8) == 0 && !shared {
		_ = l.HandOver(ctx, string(rune('a'+u.rng.IntN(len(u.s.clients)))))
	}
	_ = l.Release(ctx)
}

// update counts in a cell.
func (u *simUser) update() {
	ctx, cancel := u.bounded()
	defer cancel()
	err := u.c.Cell(counterKey).Update(ctx, func(old []byte) []byte {
		n := uint64(0)
		if len(old) == 8 {
			n = binary.BigEndian.Uint64(old)
		}
		return binary.BigEndian.AppendUint64(nil, n+1)
	})
	switch {
	case err == nil:
		u.s.sure.Add(1)
	case errors.Is(err, ErrUncertain):
		u.s.unsure.Add(1)
		u.s.book.see("an update is uncertain")
	}
}

// counted compares the counter with the updates.
func (b *book) counted(s *sky) {
	v, err := s.clients[0].Cell(counterKey).Get(within(time.Minute))
	n := uint64(0)
	if len(v) == 8 {
		n = binary.BigEndian.Uint64(v)
	}
	sure, unsure := uint64(s.sure.Load()), uint64(s.unsure.Load())
	if err != nil || n < sure || n > sure+unsure {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.violated("exactly once: the counter is %d after %d updates and %d uncertain ones (%v)", n, sure, unsure, err)
	}
}

// breakLock takes a key from its holder.
func (u *simUser) breakLock() {
	ctx, cancel := u.bounded()
	defer cancel()
	key := simKeys[u.rng.IntN(len(simKeys))]
	if st, err := u.c.Inspect(ctx, key); err == nil && st.Held() {
		_ = u.c.Break(ctx, key, st.Holders[0].Token)
	}
}

// endSession ends the session of any client.
func (u *simUser) endSession() {
	ctx, cancel := u.bounded()
	defer cancel()
	skip := u.rng.IntN(len(u.s.clients))
	for st, err := range u.c.Sessions(ctx) {
		if err != nil {
			return
		}
		if skip--; skip < 0 {
			_ = u.c.EndSession(ctx, st.Ref)
			return
		}
	}
}

func (u *simUser) ask() {
	ctx, cancel := u.bounded()
	defer cancel()
	_ = u.c.Ask(ctx, simKeys[u.rng.IntN(len(simKeys))])
}

// crowd holds more keys than a slice of an ending frees.
func (u *simUser) crowd() {
	for time.Now().Before(u.s.until) {
		var sets []*Set
		for part := range 2 {
			var keys []string
			for i := range 700 {
				keys = append(keys, fmt.Sprintf("crowd/%d/%03d", part, i))
			}
			ctx, cancel := u.bounded()
			if set, err := u.c.AcquireAll(ctx, keys); err == nil {
				sets = append(sets, set)
			}
			cancel()
		}
		u.pause(4*u.s.ttl + u.upTo(4*u.s.ttl)) // the session may end meanwhile
		for _, set := range sets {
			_ = set.Release(within(u.s.ttl))
		}
	}
}
