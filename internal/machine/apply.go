package machine

import (
	"slices"
)

// Apply takes one step. The outcome answers the proposer; the events are the
// step's effects on others, in an order that is part of the contract: losses,
// then the grants that follow from them, then the session's end, then one
// EventChanged for each key, sorted. Apply never panics on a command that was
// decoded; a nil or unknown one is refused as BadCommand.
//
// The caller owns the events.
func (s *State) Apply(c Command) (Outcome, []Event) {
	s.commands++
	s.events, s.touched = nil, s.touched[:0]
	out := s.apply(c)

	if len(s.touched) > 1 {
		slices.Sort(s.touched)
		s.touched = slices.Compact(s.touched)
	}
	events := slices.Grow(s.events, len(s.touched))
	for _, key := range s.touched {
		events = append(events, Event{Kind: EventChanged, Key: key})
		s.changes.add(s.commands, key)
	}
	if cap(s.touched) > maxScratch {
		s.touched = nil
	}
	clear(s.touched)
	s.events = nil
	return out, events
}

// maxScratch bounds what is kept from one command to the next.
const maxScratch = 1024

func (s *State) apply(c Command) Outcome {
	if !s.founded {
		switch c.(type) {
		case Lift, Bound, Raise, Open, Acquire, Upgrade, Downgrade, SetValue, Withdraw, Release, Ask, Break, EndDelay,
			Silence, Hear, Expire, Close:
			return Outcome{Code: NotFounded}
		}
	}
	if Format(c) > int(s.format) {
		switch c.(type) {
		case Acquire, Upgrade, Downgrade, SetValue, Release, Ask, Break, EndDelay:
			return Outcome{Code: WrongFormat, Limit: s.format}
		}
	}
	switch c := c.(type) {
	case Found:
		return s.found(c)
	case Raise:
		return s.raise(c)
	case LeaderStart:
		if c.Term <= s.term {
			return s.wrongTerm()
		}
		s.term = c.Term
		return Outcome{Code: OK}
	case Lift:
		return s.lift(c)
	case Bound:
		if out, ok := checkTTL(c.TTL, MaxTTL); !ok {
			return out
		}
		if c.Term != s.term {
			return s.wrongTerm()
		}
		// The founding wait is the bound's: nothing shortens it.
		if s.lifted || c.TTL > s.bound {
			s.bound = c.TTL
		}
		return Outcome{Code: OK}
	case Open:
		return s.open(c)
	case Acquire:
		return s.acquire(c)
	case Withdraw:
		return s.withdraw(c)
	case Release:
		return s.release(c)
	case Silence:
		return s.mark(c.Session, c.Term, true)
	case Hear:
		return s.mark(c.Session, c.Term, false)
	case Expire:
		if c.Term != s.term {
			return s.wrongTerm()
		}
		return s.finish(c.Session, Expired)
	case Close:
		return s.finish(c.Session, Closed)
	case Upgrade:
		return s.upgrade(c)
	case Downgrade:
		return s.downgrade(c)
	case SetValue:
		return s.setValue(c)
	case Ask:
		return s.ask(c)
	case Break:
		return s.breakGrant(c)
	case EndDelay:
		if c.Term != s.term {
			return s.wrongTerm()
		}
		return s.endDelay(c.Token)
	}
	return bad("Command", 0)
}

func (s *State) found(c Found) Outcome {
	if s.founded {
		return Outcome{Code: Founded}
	}
	if c.Cluster == (ClusterID{}) {
		return bad("Cluster", 0)
	}
	if c.Floor == 0 || c.Floor > MaxToken {
		return bad("Floor", uint64(MaxToken))
	}
	if out, ok := checkTTL(c.TTL, MaxTTL); !ok {
		return out
	}
	s.cluster = c.Cluster
	s.founded = true
	s.last = c.Floor - 1
	s.bound = c.TTL
	return Outcome{Code: OK}
}

func (s *State) raise(c Raise) Outcome {
	if c.Term != s.term {
		return s.wrongTerm()
	}
	if c.Format > MaxFormat {
		return bad("Format", MaxFormat)
	}
	if c.Format > s.format {
		s.format = c.Format
		// Nothing is known of keys that were held before, or in an earlier
		// cluster of that name.
		s.forgotten = s.last
	}
	return Outcome{Code: OK}
}

func (s *State) lift(c Lift) Outcome {
	if c.Term != s.term {
		return s.wrongTerm()
	}
	if s.lifted {
		return Outcome{Code: OK}
	}
	s.lifted = true
	// Every record is a queue, since nobody holds before this. In key order, so
	// that tokens do not hang on a map's.
	for key := range s.busy.from("", "") {
		s.dirty = append(s.dirty, key)
	}
	s.settle()
	return Outcome{Code: OK}
}

func (s *State) wrongTerm() Outcome { return Outcome{Code: WrongTerm, Limit: s.term} }

func bad(field string, limit uint64) Outcome {
	return Outcome{Code: BadCommand, Field: field, Limit: limit}
}

// checkTTL names the limit that ttl, in milliseconds, breaks.
func checkTTL(ttl, most uint64) (Outcome, bool) {
	if ttl < MinTTL {
		return bad("TTL", MinTTL), false
	}
	if ttl > most {
		return bad("TTL", most), false
	}
	return Outcome{}, true
}
