package machine

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSetValueIsTold: a new value is a change of the key.
func TestSetValueIsTold(t *testing.T) {
	s := withA(t)
	a := session16("a")
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k"}, Granted)
	_, events := apply(t, s, SetValue{Session: a, Rev: 1, Token: 1, Value: []byte("v")}, OK)
	if !slices.Contains(events, Event{Kind: EventChanged, Key: "k"}) || s.Version("k") != s.Commands() {
		t.Error(events)
	}
}

// TestChangesMissNothing: a watcher asks again and again for the changes since its
// last version. No changed key is missing, unless Changes says so.
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
		use(t, s, &seq, fmt.Sprint("k", i%7), "", false)
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

// TestChangedIsToldWhenHolderOrQueueChange: then Version moves too, and otherwise
// neither.
func TestChangedIsToldWhenHolderOrQueueChange(t *testing.T) {
	s := founded()
	a, b := session16("a"), session16("b")
	for _, step := range []struct {
		c       Command
		changed bool
	}{
		{Open{Session: a, Client: "a", TTL: 1000}, false},
		{Open{Session: b, Client: "b", TTL: 1000}, false},
		{Acquire{Session: a, Seq: 1, Key: "k"}, true},
		{Acquire{Session: a, Seq: 1, Key: "k"}, false},
		{Acquire{Session: b, Seq: 1, Key: "k"}, true},
		{Acquire{Session: b, Seq: 1, Key: "k"}, false},
		{Acquire{Session: b, Seq: 2, Key: "k", Try: true, Seen: []uint64{1}}, false},
		{Withdraw{Session: a, Seq: 99, Seen: []uint64{1}}, false},
		{Release{Session: b, Token: 1}, false},
		{Release{Session: a, Token: 1}, true},
		{Release{Session: a, Token: 1}, false},
		{Withdraw{Session: b, Seq: 1}, true},
		{Ask{Session: a, Key: "k"}, false},
	} {
		before := s.Version("k")
		_, events := s.Apply(step.c)
		told := slices.Contains(events, Event{Kind: EventChanged, Key: "k"})
		if moved := s.Version("k") != before; told != step.changed || moved != step.changed {
			t.Errorf("%#v: told %t, version moved %t, want %t", step.c, told, moved, step.changed)
		}
		if v := s.Version("k"); v != 0 && moved(events) && v != s.Commands() {
			t.Errorf("%#v: version %d after command %d", step.c, v, s.Commands())
		}
	}
}

func moved(events []Event) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return e.Kind == EventChanged })
}
