package machine

import (
	"fmt"
	"strings"
	"testing"
)

// TestFadingValuesThatAreHeldAreNotCounted: a fading value counts as idle only while
// the key is idle.
func TestFadingValuesThatAreHeldAreNotCounted(t *testing.T) {
	s, seq := withA(t), uint64(0)
	use(t, s, &seq, "k", "value", true)
	apply(t, s, Acquire{Session: session16("a"), Seq: 9, Key: "k"}, Granted)
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// TestValuesAreBounded: the table forgets the fading values of the longest idle
// keys, by number and by size, and refuses a lasting value too many.
func TestValuesAreBounded(t *testing.T) {
	s, seq := withA(t), uint64(0)
	for i := range MaxFading + 2 {
		use(t, s, &seq, fmt.Sprint("f", i), "v", true)
	}
	if s.Value("f1") != "" || s.Value("f2") != "v" {
		t.Fatalf("%q, %q", s.Value("f1"), s.Value("f2"))
	}
	big := strings.Repeat("x", MaxValue)
	for i := range MaxFadingSize/MaxValue + 1 {
		use(t, s, &seq, fmt.Sprint("g", i), big, true)
	}
	if s.Value("g0") != "" || s.Value("g1") != big || s.keys.fadingIdleBytes > MaxFadingSize {
		t.Fatalf("%d bytes in %d values", s.keys.fadingIdleBytes, s.keys.fadingIdle.n)
	}
	for i := range MaxValuesSize / MaxValue {
		use(t, s, &seq, fmt.Sprint("v", i), big, false)
	}
	a := session16("a")
	seq++
	out, _ := apply(t, s, Acquire{Session: a, Seq: seq, Key: "one more"}, Granted)
	full, _ := apply(t, s, SetValue{Session: a, Token: out.Token, Rev: 1, Value: []byte("v")}, ValuesFull)
	if full.Limit != MaxValuesSize {
		t.Fatalf("%+v", full)
	}
	// A deleted value makes room.
	use(t, s, &seq, "v0", "", false)
	seq++
	v1, _ := apply(t, s, Acquire{Session: a, Seq: seq, Key: "v1"}, Granted)
	apply(t, s, SetValue{Session: a, Token: v1.Token, Rev: 1}, OK)
	// A late copy of the refused command stays refused.
	apply(t, s, SetValue{Session: a, Token: out.Token, Rev: 1, Value: []byte("v")}, ValuesFull)
	apply(t, s, SetValue{Session: a, Token: out.Token, Rev: 2, Value: []byte("v")}, OK)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if _, err := restored(s); err != nil {
		t.Fatal(err)
	}
}

// TestFadingValuesOfKeysInUseAreBounded: the table cannot forget a fading value of a
// held key, so refuses a fading value too many, by size and by number.
func TestFadingValuesOfKeysInUseAreBounded(t *testing.T) {
	for name, tc := range map[string]struct{ bytes, most, limit int }{
		"size":   {MaxValue, MaxFadingSize / MaxValue, MaxFadingSize},
		"number": {1, MaxFading, MaxFading},
	} {
		t.Run(name, func(t *testing.T) {
			s, a := withA(t), session16("a")
			value := make([]byte, tc.bytes)
			for i := range tc.most {
				out, _ := apply(t, s, Acquire{Session: a, Seq: uint64(i + 1), Key: fmt.Sprint("k", i)}, Granted)
				apply(t, s, SetValue{Session: a, Token: out.Token, Rev: 1, Value: value, Fade: true}, OK)
			}
			out, _ := apply(t, s, Acquire{Session: a, Seq: uint64(tc.most + 1), Key: "one more"}, Granted)
			full, _ := apply(t, s, SetValue{Session: a, Token: out.Token, Rev: 1, Value: value, Fade: true}, ValuesFull)
			if full.Limit != uint64(tc.limit) {
				t.Errorf("limit %d, want %d", full.Limit, tc.limit)
			}
			apply(t, s, Release{Session: a, Token: 1}, OK)
			apply(t, s, SetValue{Session: a, Token: out.Token, Rev: 2, Value: value, Fade: true}, OK)
			if err := s.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}
