package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// findings counts the errors in ledgers. Sound ledgers have zero in all fields
// except Writes.
type findings struct {
	Writes   int
	Stale    int    // writes accepted after one under a larger token
	Overlaps int    // grants that wrote before an earlier grant had ended, in the file or by the clock
	Shared   int    // writes under the token of another member
	Lost     int    // entries with a wrong Seq: an update was overwritten, or an entry is missing
	First    string // the first error, as text
}

func (f *findings) add(count *int, format string, args ...any) {
	*count++
	if f.First == "" {
		f.First = fmt.Sprintf(format, args...)
	}
}

// checkLedgers checks all ledgers of the folder. It trusts only the ledgers: not
// the locks, not the fence, not the events of the members.
func checkLedgers(folder string) (findings, error) {
	var f findings
	for shard := range shards {
		entries, err := readLedger(ledgerPath(folder, shard))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the shard had no owner yet
		}
		if err != nil {
			return f, err
		}
		f.check(shard, entries)
	}
	return f, nil
}

// span has the first and the last entry of a grant, by position in the file and by
// the clock. All processes are on one host and read the same clock.
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
			f.add(&f.Stale, "shard %d, entry %d: %s wrote under token %d after token %d", shard, i+1, e.Member, e.Token, highest)
		}
		highest = max(highest, e.Token)
		if e.Seq != i+1 {
			f.add(&f.Lost, "shard %d, entry %d: %s gave it the number %d", shard, i+1, e.Member, e.Seq)
		}
		s := spans[e.Token]
		if s == nil {
			s = &span{token: e.Token, member: e.Member, from: i, first: e.At}
			spans[e.Token] = s
		}
		if s.member != e.Member {
			f.add(&f.Shared, "shard %d, entry %d: %s wrote under token %d, which is %s's", shard, i+1, e.Member, e.Token, s.member)
		}
		s.to = i
		if e.At.After(s.last) {
			s.last = e.At
		}
		if e.At.Before(s.first) {
			s.first = e.At
		}
	}

	// In the order of tokens, each grant must begin after the end of all earlier
	// grants.
	inOrder := slices.SortedFunc(maps.Values(spans), func(a, b *span) int { return cmp.Compare(a.token, b.token) })
	for i, s := range inOrder {
		for _, before := range inOrder[:i] {
			if before.to > s.from || before.last.After(s.first) {
				f.add(&f.Overlaps, "shard %d: %s wrote under token %d until %s, and %s under token %d from %s", shard,
					before.member, before.token, before.last.Format(clock), s.member, s.token, s.first.Format(clock))
				break
			}
		}
	}
}

const clock = "15:04:05.000000"
