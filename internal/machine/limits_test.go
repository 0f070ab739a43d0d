package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestSharedHoldersAreBounded: beyond MaxHolders a reader waits.
func TestSharedHoldersAreBounded(t *testing.T) {
	s := withA(t)
	a := session16("a")
	for i := range uint64(MaxHolders) {
		apply(t, s, Acquire{Session: a, Seq: i + 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	}
	apply(t, s, Acquire{Session: a, Seq: MaxHolders + 1, Key: "k", Spec: Spec{Mode: Shared}}, Queued)
	_, events := apply(t, s, Withdraw{Session: a, Seq: 5}, OK)
	if events[0].Kind != EventGranted {
		t.Error(events)
	}
}

// TestSizesOfRequestsAreBounded: a command over a size limit is refused.
func TestSizesOfRequestsAreBounded(t *testing.T) {
	s := withA(t)
	a := session16("a")
	var keys []string
	for i := range MaxKeyBytes/MaxKey + 1 {
		keys = append(keys, fmt.Sprintf("%04d", i)+strings.Repeat("x", MaxKey-4))
	}
	if out, _ := apply(t, s, Acquire{Session: a, Seq: 1, Keys: keys}, BadCommand); out.Field != "Keys" || out.Limit != MaxKeyBytes {
		t.Error(out)
	}
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	if out, _ := apply(t, s, Upgrade{Session: a, Seq: 2, Token: 1, Under: make([]Token, MaxUnder+1)}, BadCommand); out.Field != "Under" {
		t.Error(out)
	}
}

func TestQueueHoldsMaxWaiters(t *testing.T) {
	s := founded()
	a := session16("a")
	apply(t, s, Open{Session: a, Client: "a", TTL: 1000}, OK)
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k"}, Granted)
	for i := range uint64(MaxWaiters) {
		out, _ := apply(t, s, Acquire{Session: a, Seq: i + 2, Key: "k", MaxWaiters: 1 << 31}, Queued)
		if out.Behind != uint32(i+1) {
			t.Fatalf("behind %d, want %d", out.Behind, i+1)
		}
	}
	out, _ := apply(t, s, Acquire{Session: a, Seq: 20_000, Key: "k", MaxWaiters: 1 << 31}, TooManyWaiters)
	if out.Limit != MaxWaiters {
		t.Errorf("limit %d", out.Limit)
	}
	apply(t, s, Withdraw{Session: a, Seq: 5000}, OK)
	apply(t, s, Acquire{Session: a, Seq: 20_001, Key: "k"}, Queued)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	events := end(t, s, Close{Session: a}, a)
	lost := slices.DeleteFunc(events, func(e Event) bool { return e.Kind != EventLost && e.Kind != EventEnded })
	if len(lost) != 2 || s.Counts() != (Counts{Keys: 1}) {
		t.Errorf("%d events, left %+v", len(events), s.Counts())
	}
}

// TestUnseenOutcomesAreBounded: beyond MaxUnseen a request is refused, and so is a
// late copy when there is room again. The test sets the count by hand: a million
// refusals would take seconds, and minutes under the race detector.
func TestUnseenOutcomesAreBounded(t *testing.T) {
	s := founded()
	a := session16("a")
	apply(t, s, Open{Session: a, Client: "a", TTL: 1000}, OK)
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k"}, Granted)
	o := s.sessions.get(a)
	before := o.index.unseen
	o.index.unseen = MaxUnseen - 1
	apply(t, s, Acquire{Session: a, Seq: 2, Key: "k", Try: true}, Held)
	if out, _ := apply(t, s, Acquire{Session: a, Seq: 3, Key: "free"}, TooManyUnseen); out.Limit != MaxUnseen {
		t.Errorf("%+v", out)
	}
	apply(t, s, Acquire{Session: a, Seq: 3, Key: "free"}, Withdrawn)
	apply(t, s, Acquire{Session: a, Seq: 4, Key: "free", Seen: []uint64{2}}, Granted)
	apply(t, s, Acquire{Session: a, Seq: 3, Key: "k"}, Withdrawn)
	o.index.unseen -= MaxUnseen - 1 - before
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// TestGapsAreBounded: a client with a gap at every other seq is refused at MaxGaps
// gaps, and goes on after closing some.
func TestGapsAreBounded(t *testing.T) {
	s := founded()
	a := session16("a")
	apply(t, s, Open{Session: a, Client: "a", TTL: 1000}, OK)
	seq := uint64(0)
	for n := 0; n <= MaxGaps; {
		var seen []uint64
		for range min(MaxSeen, MaxGaps+1-n) {
			seq += 2
			seen = append(seen, seq)
			n++
		}
		apply(t, s, Withdraw{Session: a, Seq: seq, Seen: seen}, OK)
	}
	if out, _ := apply(t, s, Acquire{Session: a, Seq: seq + 2, Key: "k"}, BadCommand); out.Field != "Seq" || out.Limit != MaxGaps {
		t.Errorf("%+v", out)
	}
	if out, _ := apply(t, s, Withdraw{Session: a, Seq: seq + 2}, BadCommand); out.Field != "Seq" {
		t.Errorf("%+v", out)
	}
	if out, _ := apply(t, s, Withdraw{Session: a, Seq: 1, Seen: []uint64{seq + 2}}, BadCommand); out.Field != "Seen" {
		t.Errorf("%+v", out)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	apply(t, s, Acquire{Session: a, Seq: 3, Key: "k"}, Granted)
	apply(t, s, Acquire{Session: a, Seq: seq + 2, Key: "l"}, Granted)
	r, err := restored(s)
	if err != nil || r.Digest() != s.Digest() {
		t.Errorf("restored: %v", err)
	}
}

// TestKeysOfASessionAreBounded: beyond MaxHeld keys, held or waited for, a request is
// refused, and so is a late copy when there is room again. Another session has room.
func TestKeysOfASessionAreBounded(t *testing.T) {
	s := withA(t)
	a := session16("a")
	seq := uint64(0)
	next := func() uint64 { seq++; return seq }
	set := func(n int) (keys []string) {
		for i := range n {
			keys = append(keys, fmt.Sprintf("%d/%04d", seq+1, i))
		}
		return keys
	}
	for range MaxHeld / MaxKeys {
		apply(t, s, Acquire{Session: a, Seq: next(), Keys: set(MaxKeys)}, Granted)
	}
	rest := MaxHeld % MaxKeys
	token, _ := apply(t, s, Acquire{Session: a, Seq: next(), Keys: set(rest - 1)}, Granted)
	apply(t, s, Acquire{Session: a, Seq: next(), Key: "waited"}, Granted)
	late := next()
	for range 2 { // the second copy finds the seq spent
		before := s.Counts()
		want := TooManyKeys
		if seq > late {
			want = Withdrawn
		}
		out, events := apply(t, s, Acquire{Session: a, Seq: late, Key: "more"}, want)
		if want == TooManyKeys && out.Limit != MaxHeld || len(events) > 0 || s.Counts() != before {
			t.Errorf("%+v, %v: %+v became %+v", out, events, before, s.Counts())
		}
		seq++
	}
	apply(t, s, Acquire{Session: a, Seq: next(), Key: "waited", Try: true}, TooManyKeys)
	b := session16("b")
	apply(t, s, Open{Session: b, Client: "b", TTL: 1000}, OK)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "more"}, Granted)
	apply(t, s, Release{Session: a, Token: token.Token}, OK)
	apply(t, s, Acquire{Session: a, Seq: late, Key: "elsewhere"}, Withdrawn)
	apply(t, s, Acquire{Session: a, Seq: next(), Key: "more"}, Queued)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	r, err := restored(s)
	if err != nil || r.sessions.get(a).index.weight != s.sessions.get(a).index.weight {
		t.Errorf("restored: %v", err)
	}
	end(t, s, Close{Session: a}, a)
	if s.Counts().Grants != 1 {
		t.Errorf("%+v", s.Counts())
	}
}

// TestBytesOfASessionAreBounded: metas and lineages weigh as much as keys.
func TestBytesOfASessionAreBounded(t *testing.T) {
	s := withA(t)
	a := session16("a")
	meta := strings.Repeat("m", MaxMeta)
	seq, code := uint64(0), Granted
	for ; code == Granted; seq++ {
		out, _ := s.Apply(Acquire{Session: a, Seq: seq + 1, Key: fmt.Sprint("k", seq), Spec: Spec{Meta: meta}})
		code = out.Code
		if code == TooManyKeys && out.Limit != MaxHeldBytes {
			t.Errorf("%+v", out)
		}
	}
	if code != TooManyKeys || seq < MaxHeldBytes/(MaxMeta+8) || seq > MaxHeldBytes/MaxMeta {
		t.Errorf("%v after %d grants", code, seq)
	}
	var under []Token
	for token := range uint64(MaxUnder) {
		under = append(under, Token(token+1))
	}
	b := session16("b")
	apply(t, s, Open{Session: b, Client: "b", TTL: 1000}, OK)
	for i := uint64(1); ; i++ {
		out, _ := s.Apply(Acquire{Session: b, Seq: i, Key: fmt.Sprint("k", 1000+i), Under: under})
		if out.Code == TooManyKeys {
			if i < 1500 || i > MaxHeldBytes/MaxUnder/lineageBytes+1 {
				t.Errorf("refused at %d", i)
			}
			break
		}
		if out.Code != Queued {
			t.Fatalf("%+v", out)
		}
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}
