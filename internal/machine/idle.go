package machine

import (
	"cmp"
	"slices"
)

// A key without holders and waiters is idle. The table remembers the last token of
// an idle key, as an answer to IfToken, and the value. When there are too many idle
// keys, the table forgets the longest idle first, except keys with a lasting value or
// a set capacity.

// idleList is the idle keys of one kind, the longest idle first. An entry is stale
// if the key came into use since: then the record has another number.
type idleList struct {
	n     int // entries that are not stale
	queue []idleKey
}

type idleKey struct {
	key  string
	idle uint64 // the record's number
}

func (l *idleList) push(key string, idle uint64) {
	l.n++
	l.queue = append(l.queue, idleKey{key, idle})
}

func (l *idleList) sort() {
	slices.SortFunc(l.queue, func(a, b idleKey) int { return cmp.Compare(a.idle, b.idle) })
}

// oldest drops the stale entries at the front, and returns the first other key.
// There must be such a key.
func (l *idleList) oldest(t *keyTable) string {
	for !t.isIdle(l.queue[0]) {
		l.queue[0] = idleKey{}
		l.queue = l.queue[1:]
	}
	return l.queue[0].key
}

// shrink drops the stale entries once they are the most.
func (l *idleList) shrink(t *keyTable) {
	if len(l.queue) > 2*l.n+1024 {
		l.queue = slices.DeleteFunc(l.queue, func(e idleKey) bool { return !t.isIdle(e) })
	}
}

// isIdle reports whether the entry is not stale.
func (t *keyTable) isIdle(e idleKey) bool {
	return t.get(e.key).idle == e.idle
}

// makeIdle makes a key without holders and waiters idle, and then forgets the
// longest idle keys if there are too many. A key without a last token, a value and a
// set capacity is forgotten at once.
func (s *State) makeIdle(key string, r *record) {
	t := &s.keys
	if r.last == 0 && r.value == "" && !r.fixed {
		t.drop(key)
		return
	}
	s.idles++
	t.editRecord(key, r, func(r *record) { r.idle = s.idles })
	for t.past.n > MaxPast {
		s.forgetKey(t.past.oldest(t))
	}
	for t.fadingIdle.n > MaxFading || t.fadingIdleBytes > MaxFadingSize {
		key := t.fadingIdle.oldest(t)
		s.step.touched = append(s.step.touched, key)
		s.forgetKey(key)
	}
	t.past.shrink(t)
	t.fadingIdle.shrink(t)
}

// forgetKey drops an idle key, or only the fading value of a key with a set capacity.
func (s *State) forgetKey(key string) {
	r := s.keys.get(key)
	if r.fixed {
		s.forgetValue(key)
		return
	}
	s.forgotten = max(s.forgotten, r.last)
	s.keys.dropRecord(r)
}

// grantedSince returns Granted if key was not granted after token, and otherwise
// the refusal: Changed, TooOld if the table does not remember, or NeverGranted if
// the token is of the future: a token of another cluster, whose grants this table
// does not know.
func (s *State) grantedSince(key string, token Token) Outcome {
	switch r := s.keys.get(key); {
	case token > s.last:
		return Outcome{Code: NeverGranted, Token: s.last}
	case r.last > token:
		return Outcome{Code: Changed, Token: r.last}
	case r.last > 0, token >= s.forgotten:
		return Outcome{Code: Granted}
	}
	// The record is missing, or only waiters made it: the table may have forgotten
	// an earlier record.
	return Outcome{Code: TooOld, Token: s.forgotten}
}
