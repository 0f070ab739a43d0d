package main

import (
	"context"
	"errors"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

// The time to prepare a write, and to prepare a slow write.
const (
	prepare     = 60 * time.Millisecond
	prepareSlow = 1500 * time.Millisecond
)

// work is the single writer of a shard's ledger while this member owns the shard.
func (m *member) work(ctx context.Context, shard int, l *locks.Lock) error {
	defer m.hold(l)()
	book, err := openLedger(m.folder, shard)
	if err != nil {
		return locks.Final(err) // other errors would run the work again
	}
	defer book.Close()

	// Show the token before the first read: from here on no earlier owner can
	// change the ledger.
	if err := book.Claim(l.Token()); err != nil {
		return m.refusal(shard, l, err)
	}
	seq, err := book.Last()
	if err != nil {
		return locks.Final(err)
	}
	m.send(event{Kind: owns, Shard: shard, Token: l.Token()})
	defer func() { m.send(event{Kind: gaveUp, Shard: shard, Token: l.Token(), Detail: reason(ctx)}) }()

	slow := m.slow.Load()
	for ctx.Err() == nil && l.Err() == nil {
		// The lock was ours a moment ago. Between any two lines the process may
		// be stopped or swapped out, or its virtual machine moved, for any time,
		// and then the write comes late. A check right before the write makes
		// the gap smaller and never closes the gap.
		if asked := m.slow.Load(); asked > slow {
			slow = asked
			m.send(event{Kind: preparing, Shard: shard, Token: l.Token()})
			time.Sleep(prepareSlow)
		} else {
			time.Sleep(prepare)
		}
		seq++
		if err := book.Append(entry{Shard: shard, Token: l.Token(), Member: m.name, Seq: seq}); err != nil {
			return m.refusal(shard, l, err)
		}
		m.writes.Add(1)
	}
	return nil
}

// refusal reports a write that the fence refused to the parent and returns nil. Any
// other error ends the member.
func (m *member) refusal(shard int, l *locks.Lock, err error) error {
	var stale *fence.StaleError
	if !errors.As(err, &stale) {
		return locks.Final(err)
	}
	// Another member has been granted the shard. The lock must be lost by now,
	// also after a pause of any length, because Err reads the clock.
	m.send(event{Kind: refused, Shard: shard, Token: stale.Token, Seen: stale.Seen, Trusted: l.Err() == nil})
	return nil // the lock reports the loss, and Spread goes on
}
