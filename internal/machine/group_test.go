package machine

import (
	"math"
	"testing"
)

// The IDs of callers ascend. A group without IDs left takes no caller, until its last
// caller has gone.
func TestIDsOfCallersRunOut(t *testing.T) {
	s := withA(t)
	a := session16("a")
	apply(t, s, Enlist{Session: a, Seq: 1, Group: "g", Shards: 4}, OK)
	s.groups.get("g").ids = math.MaxUint32
	apply(t, s, Enlist{Session: a, Seq: 2, Group: "g", Shards: 4}, TooManyCallers)
	apply(t, s, Delist{Session: a, Seq: 1}, OK)
	apply(t, s, Enlist{Session: a, Seq: 3, Group: "g", Shards: 4}, OK)
	if st, _ := s.Group("g"); len(st.Callers) != 1 || st.Callers[0].ID != 1 {
		t.Errorf("%+v", st)
	}
}
