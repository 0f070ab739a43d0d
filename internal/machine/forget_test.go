package machine

import (
	"fmt"
	"testing"
)

// Memory is bounded: the process that began first is dropped.
func TestEndedProcessesAreFew(t *testing.T) {
	s := founded()
	for i := range MaxEnded + 10 {
		apply(t, s, Forget{Node: fmt.Sprint("node ", i), Boot: uint64(i + 1)}, OK)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if len(s.ended) != MaxEnded {
		t.Errorf("%d ended processes", len(s.ended))
	}
	apply(t, s, Open{Session: session16("a"), Client: "a", Node: "node 9", Boot: 1, TTL: 1000}, OK)
	apply(t, s, Open{Session: session16("b"), Client: "b", Node: "node 10", Boot: 1, TTL: 1000}, NodeEnded)
}

// An image keeps its list.
func TestForgetLeavesImagesAlone(t *testing.T) {
	s := founded()
	apply(t, s, Forget{Node: "n", Boot: 1}, OK)
	image := s.Snapshot()
	before := image.Digest()
	apply(t, s, Forget{Node: "m", Boot: 1}, OK)
	apply(t, s, Forget{Node: "n", Boot: 2}, OK)
	if image.Digest() != before {
		t.Error("the image has changed")
	}
}
