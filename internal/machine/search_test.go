package machine

import (
	"fmt"
	"testing"
	"time"
)

// slow is far above what the commands here take, and below what they took once:
// seconds, for which every voter stood still.
const slow = 3 * time.Second

// soon applies a command that has much to look at.
func soon(t *testing.T, s *State, c Command, want Code) {
	t.Helper()
	start := time.Now()
	apply(t, s, c, want)
	if took := time.Since(start); took > slow {
		t.Errorf("%T took %v", c, took)
	}
}

// nested returns a table where b holds l, under token 2, and a holds k.
func nested(t *testing.T) *State {
	s := withA(t)
	apply(t, s, Open{Session: session16("b"), Client: "b", TTL: 1000}, OK)
	apply(t, s, Acquire{Session: session16("a"), Seq: 1, Key: "k"}, Granted)
	apply(t, s, Acquire{Session: session16("b"), Seq: 1, Key: "l"}, Granted)
	return s
}

// Who waits behind thousands of readers while it holds another lock is queued soon.
func TestTheSearchIsLinearInReaders(t *testing.T) {
	s := nested(t)
	for i := range uint64(MaxWaiters - 2) {
		apply(t, s, Acquire{Session: session16("a"), Seq: i + 2, Key: "k", Mode: Shared}, Queued)
	}
	soon(t, s, Acquire{Session: session16("b"), Seq: 2, Key: "k", Under: []Token{2}}, Queued)
}

// So is who waits behind thousands of readers and writers in turn.
func TestTheSearchIsLinearInTurns(t *testing.T) {
	s := nested(t)
	for i := range uint64(MaxWaiters - 2) {
		apply(t, s, Acquire{Session: session16("a"), Seq: i + 2, Key: "k", Mode: Mode(i % 2)}, Queued)
	}
	soon(t, s, Acquire{Session: session16("b"), Seq: 2, Key: "k", Under: []Token{2}}, Queued)
}

// So is a tree where thousands wait under grants that have ended, or never were:
// whose they are is not looked for in all sessions again and again.
func TestGrantsThatEndedAreNotLookedForAgain(t *testing.T) {
	s := nested(t)
	const sessions, waiters, names = 2000, 20, 100
	for i := range sessions {
		apply(t, s, Open{Session: session16(fmt.Sprint("s", i)), Client: "c", TTL: 1000}, OK)
	}
	a, seq := session16("a"), uint64(1)
	var ended []Token
	for range waiters * names {
		seq++
		out, _ := apply(t, s, Acquire{Session: a, Seq: seq, Key: "x"}, Granted)
		apply(t, s, Release{Session: a, Token: out.Token}, OK)
		ended = append(ended, out.Token)
	}
	apply(t, s, Acquire{Session: a, Seq: seq + 1, Key: "t/1"}, Granted)
	for i := range waiters {
		c := Acquire{Session: a, Seq: seq + 2 + uint64(i), Key: "t/1", Under: ended[i*names : (i+1)*names]}
		apply(t, s, c, Queued)
	}
	search := func(seq uint64) {
		apply(t, s, Acquire{Session: session16("b"), Seq: seq, Key: "t", Tree: true, Under: []Token{2}}, Queued)
	}
	search(2) // looks for each once
	start := time.Now()
	for i := range uint64(100) {
		search(3 + i)
	}
	if took := time.Since(start); took > slow {
		t.Errorf("100 searches took %v", took)
	}
}

// A release of many keys looks at a request for as many that cannot be granted yet
// once for each of them, and not at all of its keys each time.
func TestManyKeysAreNotLookedAtForEachOther(t *testing.T) {
	s := nested(t)
	var keys []string
	for i := range MaxKeys - 1 {
		keys = append(keys, fmt.Sprintf("k%04d", i))
	}
	b := session16("b")
	out, _ := apply(t, s, Acquire{Session: b, Seq: 2, Keys: keys, Mode: Shared}, Granted)
	apply(t, s, Acquire{Session: session16("a"), Seq: 2, Key: "z"}, Granted)
	for i := range uint64(40) {
		apply(t, s, Acquire{Session: b, Seq: 3 + i, Keys: append(keys, "z"), Mode: Shared}, Queued)
	}
	soon(t, s, Release{Session: b, Token: out.Token}, OK)
	_, events := apply(t, s, Withdraw{Session: session16("a"), Seq: 2}, OK)
	if granted := count(events, EventGranted); granted != 40 {
		t.Errorf("%d of 40 are granted", granted)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func count(events []Event, kind EventKind) (n int) {
	for _, e := range events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// So is who waits behind thousands that wait for thousands of readers, while a delay
// runs for some other key.
func TestTheSearchIsLinearWhileADelayRuns(t *testing.T) {
	s := nested(t)
	a, b, c := session16("a"), session16("b"), session16("c")
	apply(t, s, Open{Session: c, Client: "c", TTL: 1000}, OK)
	apply(t, s, Acquire{Session: c, Seq: 1, Key: "x", Delay: 5}, Granted)
	apply(t, s, Expire{Session: c, Term: 1}, OK)
	const n = 2500
	for i := range uint64(n) {
		apply(t, s, Acquire{Session: a, Seq: 2 + i, Key: "m", Mode: Shared}, Granted)
	}
	for i := range uint64(n) {
		apply(t, s, Acquire{Session: a, Seq: 2 + n + i, Key: "m"}, Queued)
	}
	soon(t, s, Acquire{Session: b, Seq: 2, Key: "m", Under: []Token{2}}, Queued)
}
