package machine

import (
	"fmt"
	"testing"
)

// TestForgottenKeysAreNoGuess: the table forgets the longest idle keys, and says so
// rather than guess.
func TestForgottenKeysAreNoGuess(t *testing.T) {
	s, seq := withA(t), uint64(0)
	for i := range MaxPast + 3 {
		use(t, s, &seq, fmt.Sprint("k", i), "", false)
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
	// Tokens 1, 2 and 3 were granted for k0, k1 and k2, now forgotten.
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
	// A key held again in the meantime is not among the longest idle.
	if out := try("never", 2); out.Code != TooOld {
		t.Fatalf("a key not known: %+v", out)
	}
}
