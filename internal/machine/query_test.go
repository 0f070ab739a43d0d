package machine

import (
	"slices"
	"testing"
)

// TestKeysAreThoseInUse: idle keys are not listed, even if remembered.
func TestKeysAreThoseInUse(t *testing.T) {
	s, seq := withA(t), uint64(0)
	use(t, s, &seq, "p/rests", "", false)
	apply(t, s, Acquire{Session: session16("a"), Seq: 9, Key: "p/held"}, Granted)
	if k := s.Keys("p/", "", 5); !slices.Equal(k, []string{"p/held"}) {
		t.Error(k)
	}
}

func TestQueriesStopWhenToldTo(t *testing.T) {
	s := rich(t)
	n := 0
	s.Sessions(func(SessionStatus) bool { n++; return false })
	if n != 1 {
		t.Errorf("called %d times", n)
	}
	if st, ok := s.Session(SessionID{9}); ok || s.Pending(SessionID{9}) != nil {
		t.Errorf("%+v", st)
	}
	if id, token := s.Owner("nothing"); id != (SessionID{}) || token != 0 {
		t.Errorf("%v %d", id, token)
	}
	if st := s.Status("invoices", -1); st.Queue == 0 || len(st.Waiters) != 0 {
		t.Errorf("%+v", st)
	}
}
