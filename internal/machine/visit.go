package machine

// Admission in slices. The release of a tree or of a set may make every waiter of a member
// grantable: 262,144 waiters. All commands wait during a step, so a step grants at most
// about MaxAdmitted keys and puts the remaining queues off:
//
//  1. The remaining visits go to State.later, and EventPutOff tells the leader.
//  2. The leader proposes AdmitSlice until the list is empty. A new leader finds the list in the
//     table.
//
// # Why a waiter is neither forgotten nor granted wrongly
//
// A waiter in a queue that was put off is a waiter like any other: a conflicting request that
// comes later waits behind it, unless a priority, a delay's waiver, a named successor or an
// upgrade lets the request pass, as always. A visit judges each waiter by the table at the time of
// the visit, so no grant rests on an old finding. A change in the meantime that frees a waiter notes
// the queue again by itself. So a visit may come at any time and in any order.
//
// One rule is weaker: shared requests do not conflict with each other, so while MaxHolders hold
// a key, a later reader may take a free place before a reader whose queue was put off.
//
// A step visits the queues that its own command has freed, and never those in the list. So a
// released key goes to its next waiter in the same step, however long the list is.
//
// # Why the list is short
//
// The queues of all keys below a tree are one visit with a cursor. A visit is not added if the
// list has the same queues with a cursor that is not further. A queue stays in the list after its
// waiters have left; when the list has MaxPutOff visits, one visit to all queues replaces them.

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

// visit is a look at queues, from the key behind after on.
type visit struct {
	queues
	after string
}

// AdmitSlice grants waiters in queues that were put off. The outcome is Unfinished while the list
// has further visits, and OK at the end.
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

// visit looks at queues until the last of them, or until the work is used up. The results are
// the rest of the visit and of the work. As in ending.go, to grant a key takes four units of work.
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

// putOff adds a visit to the list, unless its queues are empty or in the list.
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
