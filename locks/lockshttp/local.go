package lockshttp

import (
	"time"

	"github.com/wardmote/wardmote/locks"
)

// localKeys returns the first n keys after a key, as this member knows them by itself.
func (h *handler) localKeys(prefix, after string, n int) (keys []locks.Status, source locks.Source) {
	from := ""
	if after != "" {
		from = after + "\x00" // the least key that sorts after after
	}
	for {
		page := h.c.LocalKeys(prefix, from, n-len(keys))
		keys, source = append(keys, page.Keys...), page.Source
		if page.Next == "" || len(keys) >= n {
			return keys, source
		}
		from = page.Next
	}
}

// localSessions returns the first n sessions after a Ref.
func (h *handler) localSessions(after string, n int) (sessions []locks.Session, source locks.Source) {
	from := after
	for {
		page := h.c.LocalSessions(from, 0)
		source = page.Source
		for _, s := range page.Sessions {
			if s.Ref > after && len(sessions) < n {
				sessions = append(sessions, s)
			}
		}
		if page.Next == "" || len(sessions) == n {
			return sessions, source
		}
		from = page.Next
	}
}

// localStates reads the states of all keys, as far as that goes in readPatience.
func (h *handler) localStates() (*states, locks.Source) {
	t := newStates()
	until := time.Now().Add(readPatience)
	from := ""
	for {
		page := h.c.LocalKeys("", from, 0)
		for _, st := range page.Keys {
			t.add(st)
		}
		from = page.Next
		t.cut = from != "" && time.Now().After(until)
		if from == "" || t.cut {
			return t, page.Source
		}
	}
}
