package term

import (
	"sync"

	"github.com/wardmote/wardmote/internal/wire"
)

// A round may take a second, and a member can ask for much with few bytes.
const (
	maxHeld         = 64 << 20
	maxHeldOfMember = maxHeld / 2
)

// heldAnswers counts the encoded bytes of the answers that wait for a round: of all, and of each
// member, so that one that asks for much has no other's answers refused.
type heldAnswers struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// full reports whether there may be no room for an answer to a member. It is asked before the answer
// costs anything.
func (h *heldAnswers) full(member string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all > maxHeld-wire.MaxFrame || h.of[member] > maxHeldOfMember-wire.MaxFrame
}

// add counts n bytes more. It reports false, and counts nothing, if they do not fit.
func (h *heldAnswers) add(member string, n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all+n > maxHeld || h.of[member]+n > maxHeldOfMember {
		return false
	}
	if h.of == nil {
		h.of = make(map[string]int)
	}
	h.all += n
	h.of[member] += n
	return true
}

// giveBack undoes add.
func (h *heldAnswers) giveBack(member string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all -= n
	if h.of[member] -= n; h.of[member] == 0 {
		delete(h.of, member)
	}
}
