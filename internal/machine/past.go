package machine

import "slices"

// What is remembered of keys that nobody holds or waits for: the token granted
// last, so that IfToken has an answer, and the value left with the key. A key
// comes to rest when its last holder or waiter goes; those longest at rest are
// forgotten first. In format 1 nothing is remembered.

// fifo is the records at rest of one kind, the longest at rest first. Records
// that came away from rest meanwhile leave stale entries, which the number of
// their rest tells.
type fifo struct {
	n     int // entries that are not stale
	queue []resting
}

type resting struct {
	key  string
	rest uint64
}

func (f *fifo) push(key string, rest uint64) {
	f.n++
	f.queue = append(f.queue, resting{key, rest})
}

// shrink drops stale entries once they are the most.
func (f *fifo) shrink(s *State) {
	if len(f.queue) > 2*f.n+1024 {
		f.queue = slices.DeleteFunc(f.queue, func(e resting) bool { return !s.rests(e) })
	}
}

func (s *State) rests(e resting) bool {
	r, ok := s.keys.get(e.key)
	return ok && r.rest == e.rest
}

// pop removes the entry longest at rest. There must be one.
func (f *fifo) pop(s *State) string {
	for {
		e := f.queue[0]
		f.queue[0] = resting{}
		f.queue = f.queue[1:]
		if s.rests(e) {
			f.n--
			return e.key
		}
	}
}

// hold notes that a value that may fade is n times more with a key that does not
// rest.
func (s *State) hold(r *record, n int) {
	if r.fade {
		s.heldFading += n
		s.heldFadingSize += n * len(r.value)
	}
}

// enter notes in the indexes a record that is at rest.
func (s *State) enter(key string, r *record) {
	switch {
	case r.value == "":
		s.past.push(key, r.rest)
	case r.fade:
		s.fading.push(key, r.rest)
		s.fadingSize += len(r.value)
	}
}

// rest puts a record to rest that is neither held nor waited for, and forgets
// what is too much then. A record of which nothing is known goes at once.
func (s *State) rest(key string, r *record) {
	if s.format < 2 || r.last == 0 && r.value == "" {
		s.drop(key)
		return
	}
	s.idles++
	r.rest = s.idles
	s.busy.remove(key)
	s.hold(r, -1)
	s.enter(key, r)
	for s.past.n > MaxPast {
		s.forgetKey(s.past.pop(s))
	}
	for s.fading.n > MaxFading || s.fadingSize > MaxFadingSize {
		key := s.fading.pop(s)
		r, _ := s.keys.get(key)
		s.fadingSize -= len(r.value)
		s.touched = append(s.touched, key)
		s.forgetKey(key)
	}
	s.past.shrink(s)
	s.fading.shrink(s)
}

// wake takes a record from its rest.
func (s *State) wake(key string, r *record) {
	if r.rest == 0 {
		return
	}
	s.busy.add(key)
	switch {
	case r.value == "":
		s.past.n--
	case r.fade:
		s.fading.n--
		s.fadingSize -= len(r.value)
	}
	r.rest = 0
	s.hold(r, 1)
}

func (s *State) forgetKey(key string) {
	r, _ := s.keys.get(key)
	s.forgotten = max(s.forgotten, r.last)
	s.drop(key)
}

// drop removes a record.
func (s *State) drop(key string) {
	s.keys.del(key)
	s.busy.remove(key)
}

// since reports what is known of grants of key after t: Granted stands for none.
func (s *State) since(key string, t Token) Outcome {
	r, ok := s.keys.get(key)
	switch {
	case ok && r.last > t:
		return Outcome{Code: Changed, Token: r.last}
	case ok && r.last > 0, t >= s.forgotten:
		return Outcome{Code: Granted}
	}
	// No record, or one made by waiters alone: it may have been forgotten before.
	return Outcome{Code: TooOld, Token: s.forgotten}
}

func (s *State) setValue(c SetValue) Outcome {
	owner, out := s.heed(c.Session, c.Seen)
	if owner == nil {
		return out
	}
	switch {
	case len(c.Value) > MaxValue:
		return bad("Value", MaxValue)
	case c.Rev == 0 || c.Rev > MaxRev:
		return bad("Rev", MaxRev)
	}
	_, at, g := s.holding(owner, c.Token)
	switch {
	case g == nil || g.broken:
		return Outcome{Code: NotHeld}
	case g.mode != Exclusive || g.set || g.token != c.Token:
		// A token before the upgrade is that of a reader: what was refused then is
		// not set by a late copy now.
		return Outcome{Code: WrongMode}
	}
	if c.Rev <= g.rev {
		// A copy. The answer counts only if nothing was set since.
		if g.full {
			return Outcome{Code: ValuesFull, Limit: MaxValues}
		}
		return Outcome{Code: OK}
	}
	r := s.edit(at.key)
	g = &r.holders[r.holder(at.token)]
	g.rev = c.Rev
	limit := s.valueLimit(r, len(c.Value), c.Fade)
	if g.full = limit > 0; g.full {
		return Outcome{Code: ValuesFull, Limit: uint64(limit)}
	}
	s.keep(r, -1)
	s.hold(r, -1)
	r.value = string(c.Value)
	r.fade = c.Fade && len(c.Value) > 0
	s.keep(r, 1)
	s.hold(r, 1)
	s.touch(at.key, r)
	return Outcome{Code: OK}
}

// valueLimit returns the limit that a value of that size, in place of r's, would
// break; 0 if none.
func (s *State) valueLimit(r *record, size int, fade bool) int {
	if size == 0 {
		return 0
	}
	n, bytes, most, mostBytes := s.kept+1, s.keptSize+size, MaxValues, MaxValuesSize
	if fade {
		n, bytes, most, mostBytes = s.heldFading+1, s.heldFadingSize+size, MaxFading, MaxFadingSize
	}
	if r.value != "" && r.fade == fade {
		n, bytes = n-1, bytes-len(r.value)
	}
	switch {
	case n > most:
		return most
	case bytes > mostBytes:
		return mostBytes
	}
	return 0
}

// keep notes that a value that may not fade is n times more.
func (s *State) keep(r *record, n int) {
	if r.keeps() {
		s.kept += n
		s.keptSize += n * len(r.value)
	}
}

// keeps reports whether the record has a value that may not fade.
func (r *record) keeps() bool { return r.value != "" && !r.fade }

// MaxChanges bounds how far back Changes looks.
const MaxChanges = 1 << 16

// changes is the latest changes of keys, oldest first, in a ring.
type changes struct {
	ring  []change
	next  int    // where the next goes
	start uint64 // versions up to this one have left the ring, or were never in it
}

type change struct {
	version uint64
	key     string
}

func (c *changes) add(version uint64, key string) {
	if len(c.ring) < MaxChanges {
		c.ring = append(c.ring, change{version, key})
		return
	}
	c.start = c.ring[c.next].version
	c.ring[c.next] = change{version, key}
	c.next = (c.next + 1) % MaxChanges
}

// i returns the i-th change, counted from the oldest.
func (c *changes) i(i int) change { return c.ring[(c.next+i)%len(c.ring)] }
