package testrounds

import (
	"runtime/debug"
	"testing"
)

func TestTheEnvironmentChoosesTheRounds(t *testing.T) {
	for env, want := range map[string]int{"": 3, "1": 100, "tenth": 10} {
		t.Setenv("WARDMOTE_FULL", env)
		if got := Rounds(3, 100); got != want {
			t.Errorf("WARDMOTE_FULL=%q: %d rounds, want %d", env, got, want)
		}
		if got := Rounds(30, 100); env == "tenth" && got != 30 {
			t.Errorf("a tenth of 100 rounds, but 30 in a plain run: %d", got)
		}
		if got := Whole(2, 100); got != map[bool]int{false: 100, true: 2}[env == "tenth"] {
			t.Errorf("WARDMOTE_FULL=%q: %d of 100 rounds", env, got)
		}
		if got := Bound(3, 100); got != map[bool]int{false: 3, true: 100}[env != ""] {
			t.Errorf("WARDMOTE_FULL=%q: a bound of %d", env, got)
		}
	}
}

func TestTheEnvironmentMayChooseTheCollections(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	for _, c := range []struct {
		env  string
		want int
	}{{"50", 100}, {"", 400}} {
		t.Setenv("GOGC", c.env)
		CollectRarely()
		got := debug.SetGCPercent(100)
		if got != c.want {
			t.Errorf("GOGC=%q: %d %%, want %d", c.env, got, c.want)
		}
	}
}
