package testrounds

import "testing"

func TestTheEnvironmentChoosesTheRounds(t *testing.T) {
	for env, want := range map[string]int{"": 3, "1": 100} {
		t.Setenv("WARDMOTE_FULL", env)
		if got := Rounds(3, 100); got != want {
			t.Errorf("WARDMOTE_FULL=%q: %d rounds, want %d", env, got, want)
		}
	}
}
