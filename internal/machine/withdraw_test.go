package machine

import "testing"

// TestAWithdrawThatMeetsAnUpgradeChangesNothing: a waiting upgrade among the further
// requests stays, and no watcher is told of a change of its key.
func TestAWithdrawThatMeetsAnUpgradeChangesNothing(t *testing.T) {
	s := withA(t)
	a, b := session16("a"), session16("b")
	apply(t, s, Open{Session: b, Client: "client", TTL: 5000}, OK)
	out, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	apply(t, s, Upgrade{Session: a, Seq: 2, Token: out.Token}, Queued)
	_, events := apply(t, s, Withdraw{Session: a, Seq: 3, More: []uint64{2}}, OK)
	if len(events) > 0 {
		t.Errorf("%+v", events)
	}
	before := content(s)
	apply(t, s, Withdraw{Session: a, Seq: 3, More: []uint64{2}}, OK)
	if content(s) != before {
		t.Error("a copy changes the table")
	}
}
