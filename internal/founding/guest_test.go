package founding

import (
	"strings"
	"testing"
	"time"
)

// Texts of others reach terminals: no control character passes.
func TestTextsOfOthersArePrintable(t *testing.T) {
	got := clip("a\x1b[2Jb\n\xffc" + strings.Repeat("d", 2*longestText))
	if !strings.HasPrefix(got, "a?[2Jb??cd") || len(got) > longestText {
		t.Errorf("%.40q, %d bytes", got, len(got))
	}
}

// A process without the voter role spends no tokens: its word raises the first token of a
// first founding by a day at most.
func TestAGuestSpendsNoTokens(t *testing.T) {
	inMoot(t, func(m *moot) {
		four := complete("a", "b", "c", "d")
		d := m.start("d", nil, four)
		d.mere.Store(true)
		d.stop() // answers, and proposes nothing
		d.spend(mostFloor - 2)
		for _, name := range abc {
			m.start(name, nil, four)
		}
		time.Sleep(30 * time.Second)
		if a := m.alive["a"]; a.Value() != nil {
			t.Errorf("founded %+v", a.Value())
		}
		d.spend(tokenOf(time.Now().Add(time.Hour)))
		time.Sleep(30 * time.Second)
		if a := m.alive["a"]; a.Value() == nil || a.Value().Floor > tokenOf(time.Now().Add(2*time.Hour)) {
			t.Errorf("founded %+v: %s", a.Value(), a.Progress())
		}
	})
}
