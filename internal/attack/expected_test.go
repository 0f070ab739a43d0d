package attack

import (
	"regexp"
	"slices"
	"testing"

	"github.com/wardmote/wardmote/internal/wire"
)

// Everything that strangers, impostors and guests try is refused in every mode but
// Insecure, and a member with the voter role gains nothing but the lines below. Insecure promises
// nothing: its column has the price of an open port.

// An exception is a harm that an attacker may do, and no other.
type exception struct {
	modes   []mode
	who     []string
	attack  string
	harm    string // a regular expression for the whole of it
	because string
}

var (
	anyMode  = []mode{withSecret, withTLS, withBoth}
	secrets  = []mode{withSecret}
	anybody  = "a holder of a secret can be any member"
	lies     = "a holder of a secret can be the leader, and lie as a voter lies"
	founders = "a founding waits for processes that say they are there"
)

var exceptions = []exception{
	{secrets, []string{member}, "another's goodbye", `believed`, anybody},
	{secrets, []string{member}, "forged entries of the present term, in the leader's name", `appended`, lies},
	{secrets, []string{member}, "forged entries of a later term, in the leader's name", `appended; another leader: m\d`, lies},
	{secrets, []string{member}, "a configuration of the attacker alone, in the leader's name", `appended; another leader: m\d`, lies},
	{secrets, []string{member}, "a forged heartbeat, in the leader's name", `obeyed; another leader: m\d`, lies},
	{secrets, []string{member}, "forged votes, in the leader's name", `a vote; another leader: m\d`, lies},
	{secrets, []string{member}, "TimeoutNow, in the leader's name", `obeyed; another leader: m\d`, lies},
	{anyMode, []string{member}, "gossip of another cluster before the founding", `no founding within 15 s`, founders},
	{anyMode, []string{member}, "founders that are not there", `no founding within 15 s`, founders},
}

// allows reports whether a verdict is within the exception.
func (e exception) allows(v verdict) bool {
	return slices.Contains(e.modes, v.mode) && slices.Contains(e.who, v.who) && e.attack == v.attack &&
		regexp.MustCompile("^("+e.harm+")$").MatchString(v.harm)
}

// expect fails the test if a verdict is worse than expected.
func expect(t *testing.T, v verdict) {
	t.Helper()
	if v.mode == insecure || v.harm == "" {
		return
	}
	for _, e := range exceptions {
		if e.allows(v) {
			t.Logf("%s, %s: %s: %s: %s", v.mode, v.who, v.attack, v.harm, e.because)
			return
		}
	}
	t.Errorf("%s, %s: %s: %v", v.mode, v.who, v.attack, v)
}

// wireWho is a member as an attacker imagines it before the founding.
func wireWho(i int) wire.WhoAnswer { return wire.WhoAnswer{Name: name(i), Boot: uint64(i + 1)} }
