package term

import (
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// FoundingWait returns how long a new cluster still waits with its first grant, as far
// as this voter's clock and table tell: the leader's may be a moment apart. Waits is
// false before the founding and after the wait.
func (t *Table) FoundingWait() (rest time.Duration, waits bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.founded.IsZero() || t.m.Lifted() {
		return 0, false
	}
	return max(0, foundingWait(time.Duration(t.m.Bound())*time.Millisecond)-t.Clock.Now().Sub(t.founded)), true
}

// foundingWait is the whole wait under the bound of TTLs.
func foundingWait(bound time.Duration) time.Duration { return max(bound, timing.LeastFounding) }
