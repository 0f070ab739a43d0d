package machine

import (
	"fmt"
	"testing"
)

// How the search for deadlocks grows, in steps: every voter stands still meanwhile.

// crossing returns a table where b holds l, under token 2, and a holds k.
func crossing(t testing.TB) *State {
	s := withA(t)
	apply(t, s, Open{Session: session16("b"), Client: "b", TTL: 1000}, OK)
	apply(t, s, Acquire{Session: session16("a"), Seq: 1, Key: "k"}, Granted)
	apply(t, s, Acquire{Session: session16("b"), Seq: 1, Key: "l"}, Granted)
	return s
}

// queuedUnder has b wait for key while it holds l, and returns the steps of the
// search that this costs.
func queuedUnder(t *testing.T, s *State, c Acquire) int {
	t.Helper()
	c.Session, c.Under = session16("b"), []Token{2}
	apply(t, s, c, Queued)
	return s.search(vertex{requestID: requestID{c.Session, c.Seq}}).steps
}

func TestTheSearchIsLinearInWhomItMeets(t *testing.T) {
	const n = MaxWaiters - 2
	a, c := session16("a"), session16("c")
	for name, fill := range map[string]func(s *State) (key string){
		"readers": func(s *State) string {
			for i := range uint64(n) {
				apply(t, s, Acquire{Session: a, Seq: i + 2, Key: "k", Spec: Spec{Mode: Shared}}, Queued)
			}
			return "k"
		},
		"readers and writers in turn": func(s *State) string {
			for i := range uint64(n) {
				apply(t, s, Acquire{Session: a, Seq: i + 2, Key: "k", Spec: Spec{Mode: Mode(i % 2)}}, Queued)
			}
			return "k"
		},
		"writers behind readers, while a delay runs elsewhere": func(s *State) string {
			apply(t, s, Open{Session: c, Client: "c", TTL: 1000}, OK)
			apply(t, s, Acquire{Session: c, Seq: 1, Key: "x", Spec: Spec{Delay: 5}}, Granted)
			apply(t, s, Expire{Session: c, Term: 1}, OK)
			for i := range uint64(n / 2) {
				apply(t, s, Acquire{Session: a, Seq: i + 2, Key: "m", Spec: Spec{Mode: Shared}}, Granted)
			}
			for i := range uint64(n / 2) {
				apply(t, s, Acquire{Session: a, Seq: i + 2 + n/2, Key: "m"}, Queued)
			}
			return "m"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := crossing(t)
			if steps := queuedUnder(t, s, Acquire{Seq: 2, Key: fill(s)}); steps < n || steps > 20*n {
				t.Errorf("%d steps for %d waiters and holders", steps, n)
			}
		})
	}
}

// Whose the grants are under which somebody waits is not looked for in all sessions
// again and again where they have ended, or never were.
func TestGrantsThatEndedAreNotLookedForAgain(t *testing.T) {
	s := crossing(t)
	const sessions, waiters, names = 500, 20, 100
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
	if steps := queuedUnder(t, s, Acquire{Seq: 2, Key: "t", Spec: Spec{Tree: true}}); steps > 50*waiters {
		t.Errorf("%d steps for %d waiters", steps, waiters)
	}
}

// manyKeys returns a table where b holds a thousand keys, and forty requests wait for
// these and for one that is held by another; and the token of the thousand.
func manyKeys(t testing.TB) (s *State, token Token, waiters int) {
	s = crossing(t)
	var keys []string
	for i := range MaxKeys - 1 {
		keys = append(keys, fmt.Sprintf("k%04d", i))
	}
	b := session16("b")
	out, _ := apply(t, s, Acquire{Session: b, Seq: 2, Keys: keys, Spec: Spec{Mode: Shared}}, Granted)
	apply(t, s, Acquire{Session: session16("a"), Seq: 2, Key: "z"}, Granted)
	for i := range uint64(40) {
		apply(t, s, Acquire{Session: b, Seq: 3 + i, Keys: append(keys, "z"), Spec: Spec{Mode: Shared}}, Queued)
	}
	return s, out.Token, 40
}

func TestOneKeyOfAThousandIsInTheWay(t *testing.T) {
	s, token, waiters := manyKeys(t)
	_, events := apply(t, s, Release{Session: session16("b"), Token: token}, OK)
	if granted := count(events, EventGranted); granted > 0 {
		t.Errorf("%d are granted with one key taken", granted)
	}
	_, events = apply(t, s, Withdraw{Session: session16("a"), Seq: 2}, OK)
	if granted := count(events, EventGranted); granted != waiters {
		t.Errorf("%d of %d are granted", granted, waiters)
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

// The release looks at each of those who wait once a key, and not at all of its keys
// each time.
func BenchmarkReleaseOfManyKeys(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		s, token, _ := manyKeys(b)
		b.StartTimer()
		s.Apply(Release{Session: session16("b"), Token: token})
	}
}
