package history

import "testing"

// A request has one token, in each life of its session; two holders with one token are two
// holders.
func TestARequestIsGrantedOnce(t *testing.T) {
	grant := func(session string, seq, token uint64) Fact {
		return Fact{Kind: Granted, Session: session, Seq: seq, Keys: []string{"k"}, Token: token}
	}
	for name, tt := range map[string]struct {
		facts []Fact
		bad   int
	}{
		"told again":       {[]Fact{grant("s", 1, 5), grant("s", 1, 5), grant("s", 2, 6)}, 0},
		"twice":            {[]Fact{grant("s", 1, 5), grant("s", 2, 6), grant("s", 1, 7)}, 1},
		"another session":  {[]Fact{grant("s", 1, 5), grant("z", 1, 6)}, 0},
		"a later life":     {[]Fact{grant("s", 1, 5), {Kind: Opened, Session: "s"}, grant("s", 1, 6)}, 0},
		"a life, and once": {[]Fact{{Kind: Opened, Session: "s"}, grant("s", 1, 5), {Kind: Opened, Session: "z"}, grant("s", 1, 6)}, 1},
	} {
		h := &History{Facts: tt.facts}
		if found := grantedOnce(h); len(found) != tt.bad {
			t.Errorf("%s: %v", name, found)
		}
	}
	two := &History{Holds: []Hold{
		{ID: "a", Op: "a", Client: "a", Keys: []string{"k"}, Token: 5, From: 1, Valid: 9},
		{ID: "b", Op: "b", Client: "b", Keys: []string{"k"}, Token: 5, From: 2, Valid: 8},
	}}
	if found := overlaps(two); len(found) != 1 {
		t.Errorf("two holders with one token: %v", found)
	}
}
