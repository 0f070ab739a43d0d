package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/member"
)

func TestMembersThatLackAKeyAreNamed(t *testing.T) {
	key := func(b byte) keyID { return keyID{b, b} }
	at := func(name string, boot uint64, keys ...byte) member.Sighting {
		s := member.Sighting{Process: member.Process{Name: name, Boot: boot}, Alive: true}
		var ids []keyID
		for _, k := range keys {
			ids = append(ids, key(k))
		}
		s.Meta.SetKeyIDs(ids)
		return s
	}
	self := member.Self{Name: "b", Boot: 2}
	var many []member.Sighting
	many = append(many, at("b", 2, 1))
	for i := range 9 {
		many = append(many, at(fmt.Sprint("m", i), 1))
	}
	for name, x := range map[string]struct {
		alive []member.Sighting
		want  string
	}{
		"the same":            {[]member.Sighting{at("a", 1, 1, 2), at("b", 2, 2, 1), at("c", 1, 1, 2)}, ""},
		"alone":               {[]member.Sighting{at("b", 2, 1)}, ""},
		"no secrets":          {[]member.Sighting{at("a", 1), at("b", 2)}, ""},
		"not yet everywhere":  {[]member.Sighting{at("a", 1, 1), at("b", 2, 2, 1), at("c", 1, 1)}, "2 of 3 members do not know key 0202…: a, c"},
		"not yet here":        {[]member.Sighting{at("a", 1, 2, 1), at("b", 2, 1), at("c", 1, 1, 2)}, "2 of 3 members know key 0202…, and this member does not: a, c"},
		"an earlier process":  {[]member.Sighting{at("a", 1, 1), at("a", 2, 1, 2), at("b", 2, 1, 2)}, ""},
		"many":                {many, "9 of 10 members do not know key 0101…: m0, m1, m2, m3, m4 and 4 more"},
		"this is not listed ": {[]member.Sighting{at("a", 1, 1)}, ""},
	} {
		reason, next := keyTrouble(self, x.alive)
		if reason != x.want || (next == "") != (reason == "") {
			t.Errorf("%s: %q, %q", name, reason, next)
		}
	}
}

// While members of a cluster that works know different secrets, Health says so.
func TestHealthNamesTheMembersThatLackAKey(t *testing.T) {
	inBubble(t, func(b *bubble) {
		one, two := oldSecret, newSecret
		b.form(func(c *Config) { c.Security.Secrets = [][]byte{one} })
		check := func(name, want string) {
			t.Helper()
			time.Sleep(5 * time.Second)
			if h := b.nodes[name].Health(context.Background()); !h.Quorum || !h.SafeToTakeNext || h.Reason != want && !strings.HasPrefix(h.Reason, want+" ") || (h.Next == "") != (want == "") {
				t.Errorf("%s: %+v", name, h)
			}
		}
		set := func(name string, secrets ...[]byte) {
			t.Helper()
			if err := b.nodes[name].SetSecrets(secrets...); err != nil {
				t.Fatal(err)
			}
		}
		check("n1", "")
		set("n1", one, two)
		check("n1", "2 of 3 members do not know key")
		check("n2", "1 of 3 members know key")
		set("n2", one, two)
		set("n3", one, two)
		check("n1", "")
		check("n3", "")
	})
}
