package machine

import (
	"fmt"
	"testing"
)

// Memory is bounded: the process that began first is dropped.
func TestEndedProcessesAreFew(t *testing.T) {
	s := founded()
	for i := range MaxEnded + 10 {
		apply(t, s, Forget{Node: fmt.Sprint("node ", i), Boot: uint64(i + 1), Dir: DirID{1}}, OK)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if len(s.ended) != MaxEnded {
		t.Errorf("%d ended processes", len(s.ended))
	}
	apply(t, s, Open{Session: session16("a"), Client: "a", Node: "node 9", Boot: 1, Dir: DirID{1}, TTL: 1000}, OK)
	apply(t, s, Open{Session: session16("b"), Client: "b", Node: "node 10", Boot: 1, Dir: DirID{1}, TTL: 1000}, NodeEnded)
}

// An image keeps its list.
func TestForgetLeavesImagesAlone(t *testing.T) {
	s := founded()
	apply(t, s, Forget{Node: "n", Boot: 1, Dir: DirID{1}}, OK)
	image := s.Snapshot()
	before := image.Digest()
	apply(t, s, Forget{Node: "m", Boot: 1, Dir: DirID{1}}, OK)
	apply(t, s, Forget{Node: "n", Boot: 2, Dir: DirID{1}}, OK)
	if image.Digest() != before {
		t.Error("the image has changed")
	}
}

// A Forget of many sessions ends some, the first by ID, and the next ones go on, with the
// same result for a table restored on the way. No process of theirs opens another one.
func TestAForgetEndsSomeSessionsAtATime(t *testing.T) {
	s := founded()
	s.slice = 3
	const n = 8
	for i := range n {
		apply(t, s, Open{Session: SessionID{1, byte(i * 7 % n)}, Client: "client", Node: "n", Boot: 6, Dir: DirID{1}, TTL: 1000}, OK)
	}
	for left := n - s.slice; left > 0; left -= s.slice {
		c, err := restored(s)
		if err != nil {
			t.Fatal(err)
		}
		c.slice = s.slice
		apply(t, s, Forget{Node: "n", Boot: 6, Dir: DirID{1}}, Unfinished)
		apply(t, c, Forget{Node: "n", Boot: 6, Dir: DirID{1}}, Unfinished)
		if s.Digest() != c.Digest() {
			t.Error("a restored table differs")
		}
		if got := s.Counts().Sessions; got != left || !s.IsLeft(Forget{Node: "n", Boot: 6, Dir: DirID{1}}) {
			t.Errorf("%d sessions are left, want %d", got, left)
		}
		if s.Opened(SessionID{1, byte(n - left - 1)}) || !s.Opened(SessionID{1, byte(n - left)}) {
			t.Error("not the first by ID")
		}
		apply(t, s, Open{Session: SessionID{2}, Client: "client", Node: "n", Boot: 6, Dir: DirID{1}, TTL: 1000}, NodeEnded)
		if s, err = restored(s); err != nil {
			t.Fatal(err)
		}
		s.slice = 3
	}
	apply(t, s, Forget{Node: "n", Boot: 6, Dir: DirID{1}}, OK)
	if s.Counts().Sessions != 0 || s.IsLeft(Forget{Node: "n", Boot: 6, Dir: DirID{1}}) {
		t.Errorf("left %+v", s.Counts())
	}
}
