package machine

func (s *State) setValue(owner *session, c SetValue) Outcome {
	switch {
	case len(c.Value) > MaxValue:
		return bad("Value", MaxValue)
	case c.Rev == 0 || c.Rev > MaxRev:
		return bad("Rev", MaxRev)
	}
	_, at, g := s.grantOf(owner, c.Token)
	switch {
	case g == nil || g.is(markBroken):
		return Outcome{Code: NotHeld}
	case g.Mode != Exclusive || g.is(markSet) || g.token != c.Token:
		// A token before the upgrade is that of a reader: a late copy of a SetValue,
		// refused then, does not set the value now.
		return Outcome{Code: WrongMode}
	}
	if c.Rev <= g.rev {
		// A late copy. Only the answer to a copy of the last SetValue matters.
		if g.is(markFull) {
			return Outcome{Code: ValuesFull, Limit: MaxValues}
		}
		return Outcome{Code: OK}
	}
	r := s.keys.get(at.key)
	limit := s.valueLimit(r, len(c.Value), c.Fade)
	r = s.keys.edit(at.key, func(r *record) {
		g := r.grant(at.token)
		g.mark(markFull, limit > 0)
		g.amend(func(t *terms) { t.rev = c.Rev })
		if !g.is(markFull) {
			r.value, r.fade = string(c.Value), c.Fade && len(c.Value) > 0
		}
	})
	if limit > 0 {
		return Outcome{Code: ValuesFull, Limit: uint64(limit)}
	}
	s.touch(at.key, r)
	return Outcome{Code: OK}
}

// valueLimit returns the limit that a value of size bytes in place of r's would
// break; 0 if none.
func (s *State) valueLimit(r *record, size int, fade bool) int {
	if size == 0 {
		return 0
	}
	sum := s.keys.sums
	n, bytes, most, mostBytes := sum.lasting+1, sum.lastingBytes+size, MaxValues, MaxValuesSize
	if fade {
		n, bytes, most, mostBytes = sum.fadingInUse+1, sum.fadingInUseBytes+size, MaxFading, MaxFadingSize
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
