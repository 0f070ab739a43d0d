package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// witness watches commands, outcomes and events alone, and knows the impossible
// ones. Its idea of conflicts is slow and its own, without any queue.
type witness struct {
	asked   map[requestID]Acquire   // that wait or hold
	came    map[requestID]int       // when they did
	passed  map[requestID]int       // those that wait: how often
	token   map[requestID]Token     // those that hold
	exempt  map[requestID]bool      // may pass: a waiver or a successor
	mode    map[requestID]Mode      // those that hold, as it is now
	ups     map[requestID]requestID // upgrades that wait, of what
	ghosts  map[Token]string        // clients of expired grants, whose delay runs: see ghostly
	broken  map[requestID]bool
	revoked map[SessionID]bool
	ending  map[SessionID]Reason
	linger  map[SessionID][]Acquire // for permits, of revoked and ending sessions: their waiters may be in the queues still
	lasts   map[string]Token        // of each key
	set     map[string]uint32       // the capacities set, of keys
	named   map[string]uint32       // the others, as long as there are permits
	gave    map[requestID]bool      // granted in the session's present life
	done    map[requestID]bool      // withdrawn, released or refused in it
	last    Token
	now     int

	process map[SessionID]endedBoot // of the open sessions
	forgot  map[endedBoot]uint64    // the latest ended process of a node with a directory
}

func newWitness() *witness {
	return &witness{
		asked:   make(map[requestID]Acquire),
		came:    make(map[requestID]int),
		passed:  make(map[requestID]int),
		token:   make(map[requestID]Token),
		exempt:  make(map[requestID]bool),
		mode:    make(map[requestID]Mode),
		ups:     make(map[requestID]requestID),
		ghosts:  make(map[Token]string),
		broken:  make(map[requestID]bool),
		revoked: make(map[SessionID]bool),
		ending:  make(map[SessionID]Reason),
		linger:  make(map[SessionID][]Acquire),
		lasts:   make(map[string]Token),
		set:     make(map[string]uint32),
		named:   make(map[string]uint32),
		gave:    make(map[requestID]bool),
		done:    make(map[requestID]bool),

		process: make(map[SessionID]endedBoot),
		forgot:  make(map[endedBoot]uint64),
	}
}

func (c Acquire) all() []string {
	if c.Keys != nil {
		return c.Keys
	}
	return []string{c.Key}
}

// meet reports whether two requests are for the same key, or for a tree and a key
// above or below.
func meet(a, b Acquire) bool {
	for _, x := range a.all() {
		for _, y := range b.all() {
			over := strings.HasPrefix(x+"/", y+"/") || strings.HasPrefix(y+"/", x+"/")
			if x == y || (a.Tree || b.Tree) && over {
				return true
			}
		}
	}
	return false
}

func (w *witness) grant(q requestID, token, block Token) error {
	c := w.asked[q]
	if token <= w.last {
		return fmt.Errorf("token %d granted after token %d", token, w.last)
	}
	if w.gave[q] || w.done[q] || w.revoked[q.session] || w.ending[q.session] != 0 {
		return fmt.Errorf("%v granted again, or to a revoked or ending session", q)
	}
	if c.Conditional && w.lasts[c.Key] > c.IfToken {
		return fmt.Errorf("%v granted %q after token %d, not %d", q, c.Key, w.lasts[c.Key], c.IfToken)
	}
	for _, g := range w.waivers(q) {
		w.exempt[q] = true
		w.drop(g)
		delete(w.ghosts, Token(g.seq))
	}
	for v, other := range w.asked {
		if _, holds := w.token[v]; holds || v == q || !meet(c, other) {
			continue
		}
		if _, up := w.ups[v]; up || c.Mode == Shared && other.Mode == Shared || w.came[v] > w.came[q] {
			continue
		}
		if c.Priority <= other.Priority && !w.exempt[q] {
			return fmt.Errorf("%v granted before %v, which came first", q, v)
		}
		if w.passed[v]++; w.passed[v] > MaxPassed {
			return fmt.Errorf("%v was passed %d times", v, w.passed[v])
		}
	}
	w.token[q], w.mode[q], w.gave[q], w.last = token, c.Mode, true, token+block
	for _, key := range c.all() {
		w.lasts[key] = w.last
	}
	return w.exclusion(q)
}

// exclusion compares one holder with all others.
func (w *witness) exclusion(q requestID) error {
	c, permits := w.asked[q], w.asked[q].N
	for v := range w.token {
		o := w.asked[v]
		if v == q || !meet(c, o) || w.mode[q] == Shared && w.mode[v] == Shared {
			continue
		}
		if w.mode[q] == Permit && w.mode[v] == Permit {
			permits += o.N
			continue
		}
		return fmt.Errorf("%v holds %v while %v holds %v", q, c.all(), v, o.all())
	}
	if of := w.capacity(c.Key); w.mode[q] == Permit && uint32(permits) > of {
		return fmt.Errorf("%d permits of %d", permits, of)
	}
	return nil
}

// capacity returns the capacity of a key, 0 if it has none.
func (w *witness) capacity(key string) uint32 {
	if of := w.set[key]; of != 0 {
		return of
	}
	return w.named[key]
}

// admits judges the answer to a request for permits that is no copy: ok is true if it was
// taken in. The first of a key names the capacity.
func (w *witness) admits(c Acquire, ok bool) error {
	if c.Mode != Permit {
		return nil
	}
	others := slices.ContainsFunc(slices.Collect(maps.Values(w.asked)), func(o Acquire) bool { return o.Mode == Permit && o.Key == c.Key })
	for _, waits := range w.linger {
		if slices.ContainsFunc(waits, func(o Acquire) bool { return o.Key == c.Key }) && w.set[c.Key] == 0 && !others {
			// The key has the named capacity or none: nobody was told.
			if ok && c.Of != 0 {
				w.named[c.Key] = uint32(c.Of)
			}
			return nil
		}
	}
	if !others {
		delete(w.named, c.Key)
	}
	of := w.capacity(c.Key)
	fits := of == 0 && c.N <= c.Of || c.N <= uint16(of) && (w.set[c.Key] != 0 || c.Of == 0 || uint32(c.Of) == of)
	if fits != ok {
		return fmt.Errorf("%d permits of %d at %q, of capacity %d: %t", c.N, c.Of, c.Key, of, ok)
	}
	if ok && of == 0 {
		w.named[c.Key] = uint32(c.Of)
	}
	return nil
}

func (w *witness) drop(q requestID) {
	for up, of := range w.ups {
		if of == q {
			delete(w.ups, up)
			delete(w.asked, up)
		}
	}
	delete(w.ups, q)
	delete(w.asked, q)
	delete(w.token, q)
	delete(w.mode, q)
}

// ghostly stands for an expired grant among the holders.
func ghostly(token Token) requestID { return requestID{seq: uint64(token)} }

// waivers returns the ghosts that q need not wait for.
func (w *witness) waivers(q requestID) (ghosts []requestID) {
	c := w.asked[q]
	for token, client := range w.ghosts {
		if c.Keys == nil && w.asked[ghostly(token)].Key == c.Key && client == clientOf(q.session) {
			ghosts = append(ghosts, ghostly(token))
		}
	}
	return ghosts
}

// holds returns the holder under a present or former token.
func holds(s *State, id SessionID, token Token) (q requestID) {
	if o := s.sessions.get(id); o != nil {
		if seq, _, g := s.grantOf(o, token); g != nil {
			return requestID{id, seq}
		}
	}
	return requestID{}
}

// means returns the grant named by a command, before the command is applied.
func means(s *State, c Command) requestID {
	switch c := c.(type) {
	case Upgrade:
		return holds(s, c.Session, c.Token)
	case Downgrade:
		return holds(s, c.Session, c.Token)
	case Release:
		return holds(s, c.Session, c.Token)
	case Break:
		for _, g := range s.Status(c.Key, MaxHolders).Holders {
			if g.Token == c.Token {
				return requestID{g.Session, g.Seq}
			}
		}
	}
	return requestID{}
}

// frees returns the grants that an Acquire releases first, before the command is applied.
func frees(s *State, c Command) (freed []requestID) {
	if c, ok := c.(Acquire); ok && s.usable(c.Session) != nil {
		for _, token := range c.Freed {
			if q := holds(s, c.Session, token); q != (requestID{}) {
				freed = append(freed, q)
			}
		}
	}
	return freed
}

// see judges one step. The grant named by the command, before the step, is held, and the
// command releases the grants freed before anything else.
func (w *witness) see(c Command, held requestID, freed []requestID, out Outcome, events []Event) error {
	w.now++
	forgotten := make(map[SessionID]bool) // that must end now
	// The grants are freed whatever comes of the request itself, unless it is malformed.
	if len(freed) == 0 || out.Code == BadCommand || out.Code == WrongFormat {
		if err := w.verdict(c, held, out, events, forgotten); err != nil {
			return err
		}
		return w.effects(c, events, forgotten)
	}
	for _, q := range freed {
		w.drop(q)
		w.done[q] = true
	}
	// All grants to others come from the release, so before the request's own.
	if err := w.effects(c, events, forgotten); err != nil {
		return err
	}
	return w.verdict(c, held, out, events, forgotten)
}

// verdict judges the outcome of a command, and adds to forgotten the sessions that must
// end in the same step.
func (w *witness) verdict(c Command, held requestID, out Outcome, events []Event, forgotten map[SessionID]bool) error {
	switch c := c.(type) {
	case Acquire:
		q := requestID{c.Session, c.Seq}
		switch out.Code {
		case Granted:
			if t, ok := w.token[q]; ok || w.gave[q] {
				if ok && t != out.Token {
					return fmt.Errorf("%v granted again", q)
				}
				break // told again, or an upgrade of that seq
			}
			if out.Block > uint32(c.Block) {
				return fmt.Errorf("%v reserves %d tokens of %d", q, out.Block, c.Block)
			}
			if err := w.admits(c, true); err != nil {
				return err
			}
			w.asked[q], w.came[q] = c, w.now
			if err := w.grant(q, out.Token, Token(out.Block)); err != nil {
				return err
			}
		case Queued:
			if w.gave[q] || w.done[q] {
				return fmt.Errorf("%v queued again", q)
			}
			if _, ok := w.asked[q]; !ok {
				if err := w.admits(c, true); err != nil {
					return err
				}
				w.asked[q], w.came[q], w.passed[q] = c, w.now, 0
				w.exempt[q] = len(w.waivers(q)) > 0
			}
		case Held, Deadlock, Changed, TooOld, NeverGranted, WrongCapacity:
			if w.gave[q] {
				return fmt.Errorf("%v refused, and granted before", q)
			}
			if !w.done[q] && out.Code == WrongCapacity {
				if err := w.admits(c, false); err != nil {
					return err
				}
			}
			w.done[q] = true
		case TooManyWaiters, Founding, Withdrawn:
			w.done[q] = true
		}
	case Upgrade:
		q := requestID{c.Session, c.Seq}
		switch {
		case out.Code == Granted && !w.gave[q] && w.token[q] == 0:
			if err := w.upgraded(q, held, out.Token); err != nil {
				return err
			}
		case out.Code == Queued:
			if _, ok := w.asked[q]; !ok {
				w.ups[q], w.asked[q] = held, Acquire{Key: w.asked[held].Key}
			}
		case out.Code == Deadlock:
			w.done[q] = true
		}
	case SetCapacity:
		q := requestID{c.Session, c.Seq}
		if set := w.set[c.Key]; !w.done[q] && c.Compare && (out.Code == OK && c.From != set && c.Of != set || out.Code == WrongCapacity && c.From == set) {
			return fmt.Errorf("the capacity of %q is set to %d: %+v has outcome %+v", c.Key, set, c, out)
		}
		if out.Code == OK && !w.done[q] {
			if c.Of == 0 && w.set[c.Key] != 0 {
				w.named[c.Key] = w.set[c.Key]
			}
			w.set[c.Key] = c.Of
		}
		// Every later command of this number is a copy, and the answer is the first one's.
		w.done[q] = w.done[q] || out.Code == OK || out.Code == WrongCapacity || out.Code == TooManyCapacities
	case Downgrade:
		if out.Code == OK {
			w.mode[held] = Shared
		}
	case Withdraw:
		if out.Code == OK {
			q := requestID{c.Session, c.Seq}
			if out.Token != 0 { // an upgrade's
				for v, t := range w.token {
					if t == out.Token {
						w.mode[v] = Shared
					}
				}
			}
			w.drop(q)
			w.done[q] = true
			for _, seq := range c.More {
				q := requestID{c.Session, seq}
				_, asks := w.asked[q]
				if _, up := w.ups[q]; !up && (asks || !w.gave[q]) {
					w.drop(q)
					w.done[q] = true
				}
			}
		}
	case Release:
		if out.Code == OK {
			if _, ok := w.token[held]; !ok {
				return fmt.Errorf("release of token %d freed nothing known", c.Token)
			}
			if c.To != "" {
				for q := range w.asked {
					w.exempt[q] = w.exempt[q] || clientOf(q.session) == c.To
				}
			}
			w.drop(held)
			w.done[held] = true
		}
	case Expire:
		if out.Code == OK || out.Code == Unfinished {
			w.leave(c.Session)
		}
	case Close:
		if out.Code == OK || out.Code == Unfinished {
			w.leave(c.Session)
		}
	case EndSlice:
		if out.Code == OK && w.ending[c.Session] == 0 { // a revoked session waits no more
			delete(w.linger, c.Session)
		}
	case Open:
		_, open := w.process[c.Session]
		latest := w.forgot[endedBoot{node: c.Node, dir: c.Dir}]
		if dead := latest != 0 && c.Boot <= latest; !open && (out.Code == OK && dead || out.Code == NodeEnded && !dead) {
			return fmt.Errorf("opened with code %d, the process has ended: %t", out.Code, dead)
		}
		if out.Code == OK && !open {
			w.process[c.Session] = endedBoot{node: c.Node, dir: c.Dir, boot: c.Boot}
		}
	case Forget:
		if out.Code == OK || out.Code == Unfinished {
			process := endedBoot{node: c.Node, dir: c.Dir}
			w.forgot[process] = max(w.forgot[process], c.Boot)
			process.boot = c.Boot
			for _, e := range events {
				if (e.Kind == EventEnding || e.Kind == EventEnded) && w.process[e.Session] == process {
					w.leave(e.Session)
					forgotten[e.Session] = true
				}
			}
			for id, p := range w.process {
				if p != process || forgotten[id] {
					continue
				}
				for first := range forgotten {
					if out.Code == OK || compareSessions(id, first) < 0 {
						return fmt.Errorf("the forget with code %d left %v, and not %v", out.Code, id, first)
					}
				}
				if len(forgotten) == 0 {
					return fmt.Errorf("the forget with code %d left %v, and ended none", out.Code, id)
				}
			}
		}
	case EndDelay:
		if out.Code == OK {
			w.drop(ghostly(c.Token))
			delete(w.ghosts, c.Token)
		}
	case Break:
		if _, ok := w.ghosts[c.Token]; ok && out.Code == OK {
			w.drop(ghostly(c.Token))
			delete(w.ghosts, c.Token)
		} else if out.Code == OK {
			for v := range w.ups {
				if w.ups[v] == held {
					w.drop(v)
				}
			}
		}
	}
	return nil
}

// effects judges the events of a command.
func (w *witness) effects(c Command, events []Event, forgotten map[SessionID]bool) error {
	ended := make(map[SessionID]bool)
	stage := EventKind(0)
	var changed []string
	for _, e := range events {
		q := requestID{e.Session, e.Seq}
		switch e.Kind {
		case EventLost:
			if w.token[q] != e.Token {
				return fmt.Errorf("%v lost token %d, which it does not hold", q, e.Token)
			}
			if e.Reason == Broken {
				w.broken[q] = true
				break
			}
			if (e.Reason == Revoked) != w.revoked[e.Session] {
				return fmt.Errorf("%v lost for reason %d", q, e.Reason)
			}
			if c := w.asked[q]; e.Reason != Closed && e.Reason != Revoked && c.Delay > 0 && !w.broken[q] {
				g := ghostly(e.Token)
				w.asked[g], w.token[g], w.mode[g] = c, e.Token, w.mode[q]
				w.ghosts[e.Token] = clientOf(q.session)
			}
			w.drop(q)
			w.leave(e.Session)
			ended[e.Session] = true
		case EventGranted:
			if ended[e.Session] || forgotten[e.Session] {
				return fmt.Errorf("granted to the session that ends")
			}
			if of, ok := w.ups[q]; ok {
				if err := w.upgraded(q, of, e.Token); err != nil {
					return err
				}
				break
			}
			if _, ok := w.asked[q]; !ok {
				return fmt.Errorf("granted %v, which does not wait", q)
			}
			if err := w.grant(q, e.Token, Token(e.Block)); err != nil {
				return err
			}
		case EventRevoked:
			if c, ok := c.(EndSession); !ok || e.Session.Ref() != c.Ref || e.Reason != Revoked || w.revoked[e.Session] {
				return fmt.Errorf("session %v revoked by %#v", e.Session, c)
			}
			w.leave(e.Session)
			w.revoked[e.Session] = true
		case EventRefused:
			w.drop(q)
			w.done[q] = true
		case EventEnding, EventEnded:
			revoked, before := w.revoked[e.Session], w.ending[e.Session]
			switch {
			case before != 0 && (e.Kind == EventEnding || e.Reason != before),
				before == 0 && ((e.Reason == Revoked) != revoked || !revoked && (e.Reason == Ended) != forgotten[e.Session]):
				return fmt.Errorf("session %v ended for reason %d, and %d before", e.Session, e.Reason, before)
			}
			delete(forgotten, e.Session)
			delete(w.process, e.Session)
			w.leave(e.Session)
			if e.Kind == EventEnding {
				w.ending[e.Session] = e.Reason
				break
			}
			delete(w.revoked, e.Session)
			delete(w.ending, e.Session)
			delete(w.linger, e.Session)
			for _, m := range []map[requestID]bool{w.gave, w.done, w.exempt, w.broken} {
				for q := range m {
					if q.session == e.Session {
						delete(m, q)
					}
				}
			}
			for q := range w.token {
				if q.session == e.Session {
					return fmt.Errorf("session ended, %v still holds", q)
				}
			}
		case EventChanged:
			changed = append(changed, e.Key)
		case EventPart, EventGroup, EventPutOff:
			continue // see groupWitness
		}
		if e.Kind == EventEnding {
			e.Kind = EventEnded
		}
		if last := stage == EventEnded || stage == EventChanged; last && e.Kind != EventChanged && e.Kind != EventEnded || stage == EventChanged && e.Kind == EventEnded {
			return fmt.Errorf("event %d after %d", e.Kind, stage)
		}
		stage = e.Kind
	}
	if len(forgotten) > 0 {
		return fmt.Errorf("sessions of an ended process are open: %v", forgotten)
	}
	if !slices.IsSorted(changed) || len(slices.Compact(slices.Clone(changed))) != len(changed) {
		return fmt.Errorf("changed keys %v", changed)
	}
	return nil
}

func (w *witness) upgraded(q, of requestID, token Token) error {
	if token <= w.last || w.gave[q] || w.done[q] || w.revoked[q.session] {
		return fmt.Errorf("%v upgraded %v to token %d after %d", q, of, token, w.last)
	}
	w.drop(q)
	w.token[of], w.mode[of], w.gave[q], w.last = token, Exclusive, true, token
	w.lasts[w.asked[of].Key] = token
	return w.exclusion(of)
}

// leave takes a session's waiters out of all queues.
func (w *witness) leave(id SessionID) {
	for q := range w.asked {
		if _, holds := w.token[q]; q.session == id && !holds {
			if c := w.asked[q]; c.Mode == Permit {
				w.linger[id] = append(w.linger[id], c)
			}
			w.drop(q)
		}
	}
}

// asks returns the session of a client's command about a grant, and the Seen list.
func asks(c Command) (id SessionID, seen []uint64) {
	switch c := c.(type) {
	case Acquire:
		return c.Session, c.Seen
	case Withdraw:
		return c.Session, c.Seen
	case Release:
		return c.Session, c.Seen
	case Upgrade:
		return c.Session, c.Seen
	case Downgrade:
		return c.Session, c.Seen
	case SetValue:
		return c.Session, c.Seen
	case Enlist:
		return c.Session, c.Seen
	case Delist:
		return c.Session, c.Seen
	case Decline:
		return c.Session, c.Seen
	case Resize:
		return c.Session, c.Seen
	case SetCapacity:
		return c.Session, c.Seen
	case Break:
		return c.Session, nil
	}
	return SessionID{}, nil
}

// refusals knows the refusals of each session: a late copy of a refused command must
// not be granted or done, since the client has the refusal. Requests with the same
// seq do not count: the answer to a copy of one is the truth about the other.
type refusals map[SessionID]map[string]Code // by the command as the log has it

// see judges one step, and reports whether c is refused for the first time and for
// the moment.
func (r refusals) see(c Command, out Outcome, events []Event) (moment bool, err error) {
	for _, e := range events {
		if e.Kind == EventEnded {
			delete(r, e.Session) // another one of that ID begins anew
		}
	}
	id, _ := asks(c)
	if id == (SessionID{}) {
		return false, nil
	}
	same := string(EncodeCommands([]Command{c}))
	before := r[id][same]
	switch out.Code {
	case OK, Granted, Queued:
		if before != 0 {
			err = fmt.Errorf("refused with code %d, and done by a late copy", before)
		}
	case NotFounded, NoSession, WrongFormat, NoSuccessor:
		// Not remembered: the reason may pass.
	case ValuesFull:
		// A copy is answered as done once another value was set, but does nothing.
	default:
		if r[id] == nil {
			r[id] = make(map[string]Code)
		}
		r[id][same] = out.Code
		moment = before == 0 && out.Code != NotHeld && out.Code != Withdrawn && out.Code != BadCommand
	}
	return moment, err
}
