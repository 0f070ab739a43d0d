package main

import (
	"context"
	"errors"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

// How long it takes to prepare a write, and a slow one.
const (
	prepare     = 60 * time.Millisecond
	prepareSlow = 1500 * time.Millisecond
)

// work is the single writer of one shard's ledger, for as long as this member
// owns the shard.
func (m *member) work(ctx context.Context, shard int, l *locks.Lock) error {
	book, err := openLedger(m.folder, shard)
	if err != nil {
		return err
	}
	defer book.Close()

	// The fence must know of this owner before it reads: from here on no earlier
	// one can change what was read.
	if err := book.Claim(l.Token()); err != nil {
		return m.refusal(shard, l, err)
	}
	seq, err := book.Last()
	if err != nil {
		return err
	}
	m.tell(event{Kind: owns, Shard: shard, Token: l.Token()})
	defer func() { m.tell(event{Kind: gave, Shard: shard, Token: l.Token(), Detail: reason(ctx)}) }()

	slow := m.slow.Load()
	for ctx.Err() == nil && l.Err() == nil {
		// The lock is ours: it was a moment ago. Now the process may be stopped,
		// or swapped out, or its virtual machine moved, for any time and between
		// any two lines, and then the write comes late. To check again before the
		// write makes the gap smaller, and never closes it.
		if asked := m.slow.Load(); asked > slow {
			slow = asked
			m.tell(event{Kind: preparing, Shard: shard, Token: l.Token()})
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

// refusal tells of a write that the fence refused. It returns other errors,
// which end the member.
func (m *member) refusal(shard int, l *locks.Lock, err error) error {
	var stale *fence.StaleError
	if !errors.As(err, &stale) {
		return err
	}
	// Somebody was granted the shard after us. The lock must know that it is
	// over, however long this process was stopped: Err reads the clock.
	m.tell(event{Kind: refused, Shard: shard, Token: stale.Token, Seen: stale.Seen, Trusted: l.Err() == nil})
	return nil // the loss is the lock's to report, and Spread goes on
}
