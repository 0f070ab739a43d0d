package machine

import "slices"

// A key that is neither held nor waited for is idle. The table remembers the
// last token of an idle key, so that IfToken has an answer, and its value. When
// there are too many idle keys, the table forgets those that are idle longest,
// except keys with a lasting value.

// idleList is the idle keys of one kind, those that are idle longest first. A key
// that came into use since leaves a stale entry: its record has another number.
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

// oldest drops the stale entries at the front, and returns the first other one.
// There must be one.
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
	r, ok := t.get(e.key)
	return ok && r.idle == e.idle
}

// makeIdle makes idle a key that is neither held nor waited for, and forgets the
// keys that are too many then. A key about which nothing is known is forgotten at
// once.
func (s *State) makeIdle(key string) {
	t := &s.keys
	if r, _ := t.get(key); r.last == 0 && r.value == "" {
		t.drop(key)
		return
	}
	s.idles++
	t.edit(key, func(r *record) { r.idle = s.idles })
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

// forgetKey drops an idle key.
func (s *State) forgetKey(key string) {
	r, _ := s.keys.get(key)
	s.forgotten = max(s.forgotten, r.last)
	s.keys.drop(key)
}

// grantedSince returns Granted if key was not granted after token, and otherwise
// the refusal: Changed, or TooOld if the table does not remember.
func (s *State) grantedSince(key string, token Token) Outcome {
	r, ok := s.keys.get(key)
	switch {
	case ok && r.last > token:
		return Outcome{Code: Changed, Token: r.last}
	case ok && r.last > 0, token >= s.forgotten:
		return Outcome{Code: Granted}
	}
	// There is no record, or one made by waiters alone: an earlier one may have been
	// forgotten.
	return Outcome{Code: TooOld, Token: s.forgotten}
}
