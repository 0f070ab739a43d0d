package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// findings is what is wrong with ledgers; nothing, if only Writes is not zero.
type findings struct {
	Writes   int
	Stale    int    // writes accepted after one under a larger token
	Overlaps int    // grants that wrote before an earlier one was done, by file order or by the clock
	Shared   int    // grants under whose token more than one member wrote
	Lost     int    // updates that another overwrote: their number comes twice, or is missing
	First    string // what was found first, for people
}

func (f *findings) found(count *int, format string, args ...any) {
	*count++
	if f.First == "" {
		f.First = fmt.Sprintf(format, args...)
	}
}

func (f findings) clean() bool { return f.Stale+f.Overlaps+f.Shared+f.Lost == 0 }

// checkLedgers reads all ledgers of the folder. It trusts nothing but them: not
// the locks, not the fence, not what the members said.
func checkLedgers(folder string) (findings, error) {
	var f findings
	for shard := range shards {
		entries, err := readLedger(ledgerPath(folder, shard))
		if errors.Is(err, fs.ErrNotExist) {
			continue // nobody has owned it yet
		}
		if err != nil {
			return f, err
		}
		f.check(shard, entries)
	}
	return f, nil
}

// span is what one grant wrote: from its first entry to its last, by their places
// in the file and by the clock. All of the processes are on one host, so that
// they read the same clock.
type span struct {
	token       fence.Token
	member      string
	from, to    int
	first, last time.Time
}

func (f *findings) check(shard int, entries []entry) {
	spans := make(map[fence.Token]*span)
	var highest fence.Token
	for i, e := range entries {
		f.Writes++
		if e.Token < highest {
			f.found(&f.Stale, "shard %d, entry %d: %s wrote under token %d after token %d", shard, i+1, e.Member, e.Token, highest)
		}
		highest = max(highest, e.Token)
		if e.Seq != i+1 {
			f.found(&f.Lost, "shard %d, entry %d: %s gave it the number %d", shard, i+1, e.Member, e.Seq)
		}
		s := spans[e.Token]
		if s == nil {
			s = &span{token: e.Token, member: e.Member, from: i, first: e.At}
			spans[e.Token] = s
		}
		if s.member != e.Member {
			f.found(&f.Shared, "shard %d, entry %d: %s wrote under token %d, which is %s's", shard, i+1, e.Member, e.Token, s.member)
		}
		s.to = i
		if e.At.After(s.last) {
			s.last = e.At
		}
		if e.At.Before(s.first) {
			s.first = e.At
		}
	}

	// In the order of tokens, each grant must begin after all before it ended.
	inOrder := make([]*span, 0, len(spans))
	for _, s := range spans {
		inOrder = append(inOrder, s)
	}
	slices.SortFunc(inOrder, func(a, b *span) int { return cmp.Compare(a.token, b.token) })
	for i, s := range inOrder {
		for _, before := range inOrder[:i] {
			if before.to > s.from || before.last.After(s.first) {
				f.found(&f.Overlaps, "shard %d: %s wrote under token %d until %s, and %s under token %d from %s", shard,
					before.member, before.token, before.last.Format(clock), s.member, s.token, s.first.Format(clock))
				break
			}
		}
	}
}

const clock = "15:04:05.000000"
