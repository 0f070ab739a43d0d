package machine

// A freed tree, or a freed set, may let all that a member waits for be granted: a quarter of a
// million waiters. All commands wait meanwhile, so a step grants about MaxAdmitted. The queues
// that are left are put off: the table remembers them in the list later, EventPutOff tells of
// them, and the leader proposes AdmitSlice until the list is empty. A new leader finds the list
// in the table, and goes on.
//
// # Why nobody is harmed
//
// A waiter that is put off stands in its queue, and is a waiter like any other: whoever conflicts
// with it and comes later waits behind it, except by priority, and so on, as anywhere else. So a
// grant by a later step is a grant to somebody who has waited a little longer. Shared requests do
// not conflict with each other: where MaxHolders read, later readers may take the places for
// which a reader waits that is put off. Whether a waiter is granted is found when
// its queue is looked at, from the table as it is then. A change between that frees a waiter has
// the queue looked at by itself, as always. So no waiter is forgotten, and none is granted by an
// old finding; and in which order queues are looked at is of no matter to exclusion.
//
// A step looks at the queues that it has freed itself, and not at those that were put off before.
// So a key that is released goes to the next waiter in the same step, however much is put off
// elsewhere.
//
// # The list is short
//
// Queues are put off as a whole: the queues of all keys below a tree are one visit, which goes on
// behind the last key that it has looked at. Queues that are put off already, and of which no more
// was looked at than a new visit has seen, are not put off again. Queues stay in the list when
// their waiters leave: above MaxPutOff visits, a single one to all queues takes their place.

// queues are the queues that a visit looks at: that of a key, or those around it.
type queues struct {
	key   string
	reach reach
}

// reach says which queues around a key are meant.
type reach uint8

const (
	itself     reach = iota // the queue of the key
	treesBelow              // the queues below it that may have trees
	allBelow                // all queues below it
	everywhere              // all queues of the table, in the order of the keys; the key is empty
)

// visit is a look at queues, behind the key after.
type visit struct {
	queues
	after string
}

// AdmitSlice grants waiters whose queues were put off. The outcome is Unfinished while some are
// left, and OK at the end.
type AdmitSlice struct{}

func (AdmitSlice) command() {}

func (s *State) admitSlice() Outcome {
	n := min(len(s.later), s.admits)
	for _, v := range s.later[:n] {
		s.step.revisit = append(s.step.revisit, v)
		s.forgetVisit(v)
	}
	if s.later = s.later[n:]; len(s.later) == 0 {
		s.later = nil
	}
	s.admitWaiters()
	s.step.putOff = false
	if s.HasPutOff() {
		return Outcome{Code: Unfinished}
	}
	return Outcome{Code: OK}
}

// HasPutOff reports whether an AdmitSlice has something to do.
func (s *State) HasPutOff() bool { return len(s.later) > 0 }

// visit looks at queues until all are looked at, or the work is used up. It returns the rest of
// the visit, and the work that is left. As in ending.go, a unit of work is a quarter of what it
// takes to grant a key.
func (s *State) visit(v visit, work int) (rest visit, done bool, left int) {
	if v.reach == itself {
		done, work = s.admitFrom(v.key, work)
		return v, done, work
	}
	for work > 0 {
		key, ok := s.keys.next(v)
		if !ok {
			return v, true, work
		}
		whole := true
		if len(s.keys.get(key).queue) > 0 {
			whole, work = s.admitFrom(key, work)
		} else {
			work--
		}
		if whole {
			v.after = key
		}
	}
	return v, false, work
}

// next returns the next key that v looks at.
func (t *keyTable) next(v visit) (key string, ok bool) {
	set := waitedFor
	switch v.reach {
	case itself:
		return v.key, v.after == "" && len(t.get(v.key).queue) > 0
	case everywhere:
		return t.inUse.after(v.after)
	case treesBelow:
		set = treed
	}
	if v.after != "" {
		key, ok = t.belowSet(set).after(v.after)
		return key, ok && isBelow(key, v.key)
	}
	for key := range t.keysBelow(v.key, set) {
		return key, true
	}
	return "", false
}

// any reports whether v looks at a key.
func (t *keyTable) any(v visit) bool {
	_, any := t.next(v)
	return any
}

// putOff has queues looked at by a later step, unless there are none, or they are put off
// already.
func (s *State) putOff(v visit) {
	if v.reach == itself {
		s.tidy(v.key)
	}
	if !s.keys.any(v) {
		return
	}
	for _, after := range s.awaited[v.queues] {
		if after <= v.after {
			return
		}
	}
	if len(s.later) >= MaxPutOff {
		s.later, v = nil, visit{queues: queues{reach: everywhere}}
		clear(s.awaited)
	}
	s.later = append(s.later, v)
	s.awaited[v.queues] = append(s.awaited[v.queues], v.after)
	s.step.putOff = true
}

// forgetVisit takes v, the first visit to its queues in the list, out of awaited.
func (s *State) forgetVisit(v visit) {
	if rest := s.awaited[v.queues][1:]; len(rest) > 0 {
		s.awaited[v.queues] = rest
	} else {
		delete(s.awaited, v.queues)
	}
}

// deriveAwaited fills awaited from the list.
func (s *State) deriveAwaited() {
	for _, v := range s.later {
		s.awaited[v.queues] = append(s.awaited[v.queues], v.after)
	}
}

// codeVisits codes the list, of any length.
func codeVisits(c *coder, list *[]visit) {
	for i := 0; ; i++ {
		more := i < len(*list)
		c.flag(&more)
		if !more || c.in.err != nil {
			return
		}
		c.top()
		if c.decoding {
			*list = append(*list, visit{})
		}
		v := &(*list)[i]
		c.byte((*byte)(&v.reach))
		c.texts(&v.key, &v.after)
	}
}

// checkLater verifies the list of queues to be looked at.
func (s checker) checkLater() error {
	if len(s.later) > 0 && !s.founded {
		return broken(9, "queues are to be looked at before founding")
	}
	last := make(map[queues]string)
	for _, v := range s.later {
		after, known := last[v.queues]
		switch {
		case v.reach > everywhere, v.reach == everywhere && v.key != "", v.reach != everywhere && !validKey(v.key),
			v.reach == itself && v.after != "",
			v.after != "" && !validKey(v.after),
			v.after != "" && v.reach != everywhere && !isBelow(v.after, v.key):
			return broken(10, "the queues of reach %d at %q are to be looked at behind %q", v.reach, v.key, v.after)
		case known && v.after >= after:
			return broken(11, "the queues of reach %d at %q are to be looked at behind %q, and again behind %q", v.reach, v.key, after, v.after)
		}
		last[v.queues] = v.after
	}
	return nil
}

// isAwaited reports whether the queue of one of these keys is to be looked at.
func (s checker) isAwaited(keys ...string) bool {
	for _, key := range keys {
		for _, v := range s.later {
			switch v.reach {
			case itself:
				if v.key == key {
					return true
				}
			case treesBelow:
				if isBelow(key, v.key) && key > v.after && s.keys.get(key).trees > 0 {
					return true
				}
			case allBelow:
				if isBelow(key, v.key) && key > v.after {
					return true
				}
			case everywhere:
				if key > v.after {
					return true
				}
			}
		}
	}
	return false
}
