package machine

import "slices"

// Apply takes one step. The outcome answers the proposer. The events are the step's
// effects on others. The contract includes their order: losses, then the resulting
// grants, then the session's end, then EventPutOff, then one EventChanged for each changed key, in
// ascending order, then the parts and one EventGroup of each changed group, in ascending
// order. Apply never panics on a decoded command, and refuses a nil or
// unknown command as BadCommand.
//
// The caller owns the events.
func (s *State) Apply(c Command) (Outcome, []Event) { return s.AppendApply(nil, c) }

// AppendApply is Apply, and appends the events to dst: the commands of an entry share one
// block of memory.
func (s *State) AppendApply(dst []Event, c Command) (Outcome, []Event) {
	s.commands++
	p := &s.step
	p.events, p.touched, p.recalls = dst, p.touched[:0], 0
	out := s.apply(c)
	if p.putOff {
		p.events, p.putOff = append(p.events, Event{Kind: EventPutOff}), false
	}

	if len(p.touched) > 1 {
		slices.Sort(p.touched)
		p.touched = slices.Compact(p.touched)
	}
	events := slices.Grow(p.events, len(p.touched))
	for _, key := range p.touched {
		events = append(events, Event{Kind: EventChanged, Key: key})
		s.changes.add(s.commands, key)
	}
	if cap(p.touched) > maxScratch {
		p.touched = nil
	}
	clear(p.touched)
	p.events = nil
	if len(p.groups) > 0 {
		events = s.groupEvents(events)
	}
	return out, events
}

// maxScratch bounds the memory kept from one command for the next.
const maxScratch = 1024

func (s *State) apply(c Command) Outcome {
	switch c := c.(type) {
	case Found:
		return s.found(c)
	case LeaderStart:
		return s.leaderStart(c)
	case Raise, Lift, Bound, Open, Close, Silence, Hear, Expire, Acquire, Upgrade, Downgrade, SetValue,
		Withdraw, Release, Ask, Break, EndDelay, Forget, SetCapacity, Enlist, Delist, Decline, Resize, Assign, Dismiss, Reshard, EndSession, EndSlice, Extend, AdmitSlice:
	default:
		return bad("Command", 0)
	}
	switch {
	case !s.founded:
		return Outcome{Code: NotFounded}
	case s.formats.of(c) > int(s.format):
		return Outcome{Code: WrongFormat, Limit: s.format}
	}
	switch c := c.(type) {
	case Raise:
		return s.inTerm(c.Term, func() Outcome { return s.raise(c.Format) })
	case Lift:
		return s.inTerm(c.Term, s.lift)
	case Bound:
		return s.setBound(c)
	case Open:
		return s.open(c)
	case Close:
		return s.endSession(c.Session, Closed)
	case Silence:
		return s.inTerm(c.Term, func() Outcome { return s.markSilent(c.Session, true) })
	case Hear:
		return s.inTerm(c.Term, func() Outcome { return s.markSilent(c.Session, false) })
	case Expire:
		return s.inTerm(c.Term, func() Outcome { return s.endSession(c.Session, Expired) })
	case Acquire:
		return s.fromUsable(c.Session, c.Seen, func(o *session) Outcome { return s.acquire(o, &c) })
	case Upgrade:
		return s.fromUsable(c.Session, c.Seen, func(o *session) Outcome { return s.upgrade(o, c) })
	case Downgrade:
		return s.fromSession(c.Session, c.Seen, func(o *session) Outcome { return s.downgrade(o, c) })
	case SetValue:
		return s.fromUsable(c.Session, c.Seen, func(o *session) Outcome { return s.setValue(o, c) })
	case Withdraw:
		return s.fromSession(c.Session, c.Seen, func(o *session) Outcome { return s.withdraw(o, &c) })
	case Release:
		return s.fromSession(c.Session, c.Seen, func(o *session) Outcome { return s.release(o, c) })
	case Extend:
		return s.fromUsable(c.Session, c.Seen, func(o *session) Outcome { return s.extend(o, c) })
	case SetCapacity:
		return s.fromUsable(c.Session, c.Seen, func(o *session) Outcome { return s.setCapacity(o, c) })
	case Ask:
		return s.ask(c)
	case Break:
		return s.breakGrant(c)
	case EndSession:
		return s.revoke(c)
	case EndSlice:
		return s.endSlice(c.Session)
	case AdmitSlice:
		return s.admitSlice()
	case EndDelay:
		return s.inTerm(c.Term, func() Outcome { return s.endDelay(c.Token) })
	case Forget:
		return s.forget(c)
	}
	return s.applyToGroup(c)
}

// inTerm calls f, unless the command's term is not the present one.
func (s *State) inTerm(term uint64, f func() Outcome) Outcome {
	if term != s.term {
		return s.wrongTerm()
	}
	return f()
}

func (s *State) found(c Found) Outcome {
	if s.founded && c.Cluster == s.cluster {
		return Outcome{Code: Founded}
	}
	if c.Cluster == (ClusterID{}) {
		return bad("Cluster", 0)
	}
	if c.Floor == 0 || c.Floor > MaxToken {
		return bad("Floor", uint64(MaxToken))
	}
	if out := checkTTL(c.TTL, MaxTTL); out.Code != 0 {
		return out
	}
	bound := c.TTL
	if s.founded {
		bound = max(bound, s.LongestTTL())
		s.endForSuccessor()
	}
	s.cluster = c.Cluster
	s.founded = true
	s.last = max(s.last, c.Floor-1)
	s.bound = bound
	s.forgotten = s.last // grants of an earlier cluster are not known
	return Outcome{Code: OK}
}

func (s *State) leaderStart(c LeaderStart) Outcome {
	if c.Term <= s.term {
		return s.wrongTerm()
	}
	s.term = c.Term
	return Outcome{Code: OK}
}

func (s *State) lift() Outcome {
	if s.lifted {
		return Outcome{Code: OK}
	}
	s.lifted = true
	s.step.note(queues{reach: everywhere})
	s.admitWaiters()
	return Outcome{Code: OK}
}

func (s *State) setBound(c Bound) Outcome {
	if out := checkTTL(c.TTL, MaxTTL); out.Code != 0 {
		return out
	}
	if c.Term != s.term {
		return s.wrongTerm()
	}
	// The founding wait is as long as the bound: nothing shortens it.
	if s.lifted || c.TTL > s.bound {
		s.bound = c.TTL
	}
	return Outcome{Code: OK}
}

func (s *State) wrongTerm() Outcome { return Outcome{Code: WrongTerm, Limit: s.term} }

// bad returns the refusal of a command for a bad field.
func bad(field string, limit uint64) Outcome {
	return Outcome{Code: BadCommand, Field: field, Limit: limit}
}

// checkTTL returns the refusal of a TTL, in milliseconds, beyond its limits.
func checkTTL(ttl, most uint64) Outcome {
	if ttl < MinTTL {
		return bad("TTL", MinTTL)
	}
	if ttl > most {
		return bad("TTL", most)
	}
	return Outcome{}
}

// change has f change key's record, and counts this as a change of the key's
// holders, queue or value.
func (s *State) change(key string, f func(*record)) *record {
	return s.changeRecord(key, s.keys.get(key), f)
}

// changeRecord is change with the record at hand, which saves a search.
func (s *State) changeRecord(key string, r *record, f func(*record)) *record {
	r = s.keys.editRecord(key, r, f)
	s.touch(key, r)
	return r
}

func (s *State) touch(key string, r *record) {
	r.version = s.commands
	if n := len(s.step.touched); n == 0 || s.step.touched[n-1] != key {
		s.step.touched = append(s.step.touched, key)
	}
}
