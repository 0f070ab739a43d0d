package history

import (
	"fmt"
	"strconv"
)

// watched checks what sequences of Watch and Observe have yielded: no value that is older than
// the one before, no token below an earlier one, and no holder that the log does not know.
// That each value was the key's at some moment is the matter of cells.
func watched(h *History) (found []Violation) {
	granted := grantedTokens(h)
	last := make(map[string]*Show) // by watch
	top := make(map[string]uint64)
	for i := range h.Shows {
		x := &h.Shows[i]
		wrong := func(format string, args ...any) {
			found = append(found, Violation{Check: "watch", Key: x.Key, At: x.At, IDs: []string{x.Watch}, Text: fmt.Sprintf(format, args...)})
		}
		before := last[x.Watch]
		last[x.Watch] = x
		switch x.Kind {
		case ShowValue:
			if before != nil && number(x.Value) <= number(before.Value) && !h.succeeded(before.After, x.At) {
				wrong("%s was shown %q after %q", x.Process, x.Value, before.Value)
			}
		case ShowHolder:
			if x.Token == 0 {
				continue
			}
			if x.Token < top[x.Watch] {
				wrong("%s was shown token %d after token %d", x.Process, x.Token, top[x.Watch])
			}
			top[x.Watch] = max(top[x.Watch], x.Token)
			if at, known := granted[x.Key][x.Token]; len(granted) > 0 && (!known || at > x.At) {
				wrong("%s was shown a holder with token %d, which was not granted", x.Process, x.Token)
			}
		}
	}
	return found
}

// number reads a value: 0 for none.
func number(value string) uint64 {
	n, _ := strconv.ParseUint(value, 10, 64)
	return n
}

// grantedTokens returns the tokens of the log by key, and when they were granted; nothing if
// the log of a successor is unknown.
func grantedTokens(h *History) map[string]map[uint64]int64 {
	granted := make(map[string]map[uint64]int64)
	if h.succeeded(0, 1<<62) {
		return granted
	}
	for i := range h.Facts {
		f := &h.Facts[i]
		if f.Kind != Granted {
			continue
		}
		for _, k := range f.Keys {
			if granted[k] == nil {
				granted[k] = make(map[uint64]int64)
			}
			granted[k][f.Token] = f.At
		}
	}
	return granted
}
