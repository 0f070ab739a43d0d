package link

import (
	"slices"
	"testing"
)

func TestTheLeaderIsToldTheOwnDescription(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		told := func(h *host) []string {
			h.mu.Lock()
			defer h.mu.Unlock()
			return slices.Clone(h.described)
		}
		s.set(func() { s.description = "young" })
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		s.set(func() { s.description = "leaving" })
		s.k.Describe()
		s.settle()
		if got := told(a); !slices.Equal(got, []string{"young", "leaving"}) {
			t.Errorf("the leader was told %q", got)
		}
		b := s.host("b", 6)
		s.gossip("b", leads(6))
		s.attachedTo("b")
		s.settle()
		if got := told(b); !slices.Equal(got, []string{"leaving"}) {
			t.Errorf("the next leader was told %q", got)
		}
	})
}
