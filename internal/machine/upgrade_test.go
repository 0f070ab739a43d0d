package machine

import (
	"testing"
)

// TestAnUpgradeNeedsAToken: an upgrade goes on waiting when the tokens are spent.
func TestAnUpgradeNeedsAToken(t *testing.T) {
	s := New()
	a, b := session16("a"), session16("b")
	for _, c := range []Command{Found{Cluster: ClusterID{1}, Floor: MaxToken - 1, TTL: 1000}, LeaderStart{Term: 1}, Raise{Term: 1, Format: MaxFormat}, Lift{Term: 1},
		Open{Session: a, Client: "a", TTL: 1000}, Open{Session: b, Client: "b", TTL: 1000}} {
		apply(t, s, c, OK)
	}
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	apply(t, s, Upgrade{Session: a, Seq: 2, Token: MaxToken - 1}, TokensSpent)
	// One token is left: the upgrade waits, and another request takes the token.
	s = New()
	for _, c := range []Command{Found{Cluster: ClusterID{1}, Floor: MaxToken - 2, TTL: 1000}, LeaderStart{Term: 1}, Raise{Term: 1, Format: MaxFormat}, Lift{Term: 1},
		Open{Session: a, Client: "a", TTL: 1000}, Open{Session: b, Client: "b", TTL: 1000}} {
		apply(t, s, c, OK)
	}
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	apply(t, s, Upgrade{Session: a, Seq: 2, Token: MaxToken - 2}, Queued)
	apply(t, s, Acquire{Session: b, Seq: 2, Key: "l"}, Granted)
	_, events := apply(t, s, Release{Session: b, Token: MaxToken - 1}, OK)
	if s.LastToken() > MaxToken || s.Check() != nil {
		t.Error(s.LastToken(), s.Check(), events)
	}
}
