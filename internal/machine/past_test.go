package machine

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// a holds and lets go of key, and leaves value.
func visit(t *testing.T, s *State, seq *uint64, key, value string, fade bool) Token {
	t.Helper()
	*seq++
	a := session16("a")
	out, _ := apply(t, s, Acquire{Session: a, Seq: *seq, Key: key}, Granted)
	if value != "" {
		apply(t, s, SetValue{Session: a, Token: out.Token, Rev: 1, Value: []byte(value), Fade: fade}, OK)
	}
	apply(t, s, Release{Session: a, Token: out.Token}, OK)
	return out.Token
}

func withA(t testing.TB) *State {
	s := founded()
	apply(t, s, Open{Session: session16("a"), Client: "a", TTL: 1000}, OK)
	return s
}

// The table forgets the keys longest free, knows that it did, and says so rather
// than guess.
func TestForgottenKeysAreNoGuess(t *testing.T) {
	s, seq := withA(t), uint64(0)
	for i := range MaxPast + 3 {
		visit(t, s, &seq, fmt.Sprint("k", i), "", false)
	}
	if n := s.Counts().Keys; n != MaxPast {
		t.Fatalf("%d keys are remembered", n)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	try := func(key string, after Token) Outcome {
		seq++
		out, _ := s.Apply(Acquire{Session: session16("a"), Seq: seq, Key: key, Try: true, Spec: Spec{Conditional: true, IfToken: after}})
		return out
	}
	// Tokens 1, 2 and 3 were granted for k0, k1 and k2, which are forgotten.
	if out := try("k0", 2); out.Code != TooOld || out.Token != 3 {
		t.Fatalf("k0 after 2: %+v", out)
	}
	if st := s.Status("k0", 1); st.Last != 3 {
		t.Fatalf("k0 was last granted under %d", st.Last)
	}
	if out := try("k0", 3); out.Code != Granted {
		t.Fatalf("k0 after 3: %+v", out)
	}
	if out := try("k3", 3); out.Code != Changed || out.Token != 4 {
		t.Fatalf("k3 after 3: %+v", out)
	}
	if out := try("k3", 4); out.Code != Granted {
		t.Fatalf("k3 after 4: %+v", out)
	}
	// A key that was held again in the meantime is not among the longest free.
	if out := try("never", 2); out.Code != TooOld {
		t.Fatalf("a key not known: %+v", out)
	}
}

// Values that may fade go the longest free first, by number and by size; others
// are refused when there are too many.
func TestValuesAreBounded(t *testing.T) {
	s, seq := withA(t), uint64(0)
	for i := range MaxFading + 2 {
		visit(t, s, &seq, fmt.Sprint("f", i), "v", true)
	}
	if s.Value("f1") != "" || s.Value("f2") != "v" {
		t.Fatalf("%q, %q", s.Value("f1"), s.Value("f2"))
	}
	big := strings.Repeat("x", MaxValue)
	for i := range MaxFadingSize/MaxValue + 1 {
		visit(t, s, &seq, fmt.Sprint("g", i), big, true)
	}
	if s.Value("g0") != "" || s.Value("g1") != big || s.keys.fadingIdleBytes > MaxFadingSize {
		t.Fatalf("%d bytes in %d values", s.keys.fadingIdleBytes, s.keys.fadingIdle.n)
	}
	for i := range MaxValuesSize / MaxValue {
		visit(t, s, &seq, fmt.Sprint("v", i), big, false)
	}
	a := session16("a")
	seq++
	out, _ := apply(t, s, Acquire{Session: a, Seq: seq, Key: "one more"}, Granted)
	full, _ := apply(t, s, SetValue{Session: a, Token: out.Token, Rev: 1, Value: []byte("v")}, ValuesFull)
	if full.Limit != MaxValuesSize {
		t.Fatalf("%+v", full)
	}
	// What one takes away makes room.
	visit(t, s, &seq, "v0", "", false)
	seq++
	v1, _ := apply(t, s, Acquire{Session: a, Seq: seq, Key: "v1"}, Granted)
	apply(t, s, SetValue{Session: a, Token: v1.Token, Rev: 1}, OK)
	// A late copy of the refused one stays refused.
	apply(t, s, SetValue{Session: a, Token: out.Token, Rev: 1, Value: []byte("v")}, ValuesFull)
	apply(t, s, SetValue{Session: a, Token: out.Token, Rev: 2, Value: []byte("v")}, OK)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if _, err := restored(s); err != nil {
		t.Fatal(err)
	}
}

// A watcher that asks for what changed since it looked last misses no key, unless
// it is told that it did.
func TestChangesMissNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := founded()
		a := session16("a")
		s.Apply(Open{Session: a, Client: "a", TTL: 1000})
		seq, at := uint64(0), s.Commands()
		dirty := make(map[string]bool)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			seq++
			key := rapid.SampledFrom([]string{"p/1", "p/2", "p/3", "q"}).Draw(t, "key")
			keys := []string{key}
			if rapid.Bool().Draw(t, "more") {
				keys = []string{"p/0", "p/9"}
			}
			s.Apply(Acquire{Session: a, Seq: seq, Keys: keys})
			for _, k := range keys {
				dirty[k] = true
			}
			if rapid.IntRange(0, 3).Draw(t, "look") > 0 {
				continue
			}
			n := rapid.IntRange(2, 4).Draw(t, "n")
			for {
				keys, upTo, ok := s.Changes("p/", at, n)
				if !ok || len(keys) > n {
					t.Fatalf("%v %v", keys, ok)
				}
				for _, k := range keys {
					delete(dirty, k)
				}
				if at = upTo; at == s.Commands() {
					break
				}
			}
			delete(dirty, "q")
			if len(dirty) > 0 {
				t.Fatalf("missed %v", dirty)
			}
		}
	})
}

func TestChangesForgetAndSaySo(t *testing.T) {
	s, seq := withA(t), uint64(0)
	at := s.Commands()
	for i := range MaxChanges/2 + 1 {
		visit(t, s, &seq, fmt.Sprint("k", i%7), "", false)
	}
	if _, _, ok := s.Changes("", at, 100); ok {
		t.Fatal("changes that left the ring are said to be all")
	}
	if keys, upTo, ok := s.Changes("", s.Commands()-2, 100); !ok || len(keys) != 1 || upTo != s.Commands() {
		t.Fatal(keys, upTo, ok)
	}
	r, err := restored(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok := r.Changes("", r.Commands()-1, 100); ok {
		t.Fatal("a restored table says that it knows what changed before")
	}
}

// TestOrderedIsASet compares ordered with a map and a sort.
func TestOrderedIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o ordered
		in := make(map[string]bool)
		for range rapid.IntRange(1, 3000).Draw(t, "n") {
			k := fmt.Sprint(rapid.IntRange(0, 1500).Draw(t, "k"))
			if rapid.IntRange(0, 3).Draw(t, "out") == 0 {
				o.remove(k)
				delete(in, k)
			} else {
				o.add(k)
				in[k] = true
			}
		}
		var want []string
		for k := range in {
			want = append(want, k)
		}
		slices.Sort(want)
		if got := o.all(); !slices.Equal(got, want) || o.n != len(want) {
			t.Fatalf("%q\n%q", got, want)
		}
		first, prefix := fmt.Sprint(rapid.IntRange(0, 1500).Draw(t, "first")), fmt.Sprint(rapid.IntRange(0, 15).Draw(t, "prefix"))
		want = slices.DeleteFunc(want, func(k string) bool { return k < first || !strings.HasPrefix(k, prefix) })
		if got := slices.Collect(o.from(first, prefix)); !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
			t.Fatalf("from %q with %q: %q\n%q", first, prefix, got, want)
		}
	})
}

// A tree over a million keys is asked for and granted without a look at them.
func BenchmarkTreeOverMany(b *testing.B) {
	s := founded()
	a := session16("a")
	s.Apply(Open{Session: a, Client: "a", TTL: 1000})
	seq := uint64(0)
	for i := range 100_000 {
		seq++
		s.Apply(Acquire{Session: a, Seq: seq, Key: fmt.Sprint("t/", i)})
	}
	b.ReportAllocs()
	for b.Loop() {
		seq++
		if out, _ := s.Apply(Acquire{Session: a, Seq: seq, Key: "t", Spec: Spec{Tree: true}}); out.Code != Queued {
			b.Fatal(out)
		}
		s.Apply(Withdraw{Session: a, Seq: seq})
	}
}
