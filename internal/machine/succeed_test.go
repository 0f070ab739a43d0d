package machine

import "testing"

// A successor goes on from the table: nothing is held, nothing was forgotten that a
// reader may rely on, and every later token is higher.
func TestASuccessorGoesOnFromTheTable(t *testing.T) {
	s := founded()
	a, b := SessionID{1}, SessionID{2}
	for _, id := range []SessionID{b, a} {
		apply(t, s, Open{Session: id, Client: "c" + string(id[0]+'0'), Node: "n", TTL: 1000}, OK)
	}
	granted, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "held"}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "held"}, Queued)
	apply(t, s, Acquire{Session: a, Seq: 2, Key: "delayed", Spec: Spec{Delay: 50}}, Granted)
	gone, _ := apply(t, s, Acquire{Session: b, Seq: 2, Key: "past"}, Granted)
	first, past := granted.Token, gone.Token
	apply(t, s, Release{Session: b, Token: past}, OK)
	last := s.LastToken()

	apply(t, s, Found{Cluster: ClusterID{1}, Floor: 1, TTL: 2000}, Founded)
	apply(t, s, Found{Cluster: ClusterID{2}, Floor: 0, TTL: 2000}, BadCommand)
	apply(t, s, Found{Cluster: ClusterID{2}, Floor: 100, TTL: 2000}, OK)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	// The bound of the table stays: sessions may have been opened with it.
	if id, _ := s.Cluster(); id != (ClusterID{2}) || s.Lifted() || s.Bound() != 10_000 || s.LastToken() != 99 {
		t.Errorf("cluster %v, lifted %v, bound %d, token %d", id, s.Lifted(), s.Bound(), s.LastToken())
	}
	if _, open := s.Session(a); open {
		t.Error("a session of the former cluster is open")
	}
	apply(t, s, Open{Session: a, Client: "c1", Node: "n", TTL: 1000}, OK)
	apply(t, s, Acquire{Session: a, Seq: 2, Key: "held"}, Queued)
	apply(t, s, LeaderStart{Term: 9}, OK)
	apply(t, s, Lift{Term: 9}, OK)
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "past", Spec: Spec{Conditional: true, IfToken: past}}, TooOld)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if s.LastToken() < 100 || first > last {
		t.Errorf("token %d after %d", s.LastToken(), last)
	}
}
