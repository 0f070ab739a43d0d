package machine

import (
	"fmt"
	"unicode/utf8"
)

func (sc *script) event(e Event) {
	p := func(format string, args ...any) { fmt.Fprintf(&sc.out, format, args...) }
	switch e.Kind {
	case EventGranted:
		p("granted %s %s token=%d", name(e.Session), e.Key, e.Token)
		sc.left(e.Value, e.Unclean)
	case EventLost:
		p("lost    %s %s token=%d reason=%s", name(e.Session), e.Key, e.Token, reason(e.Reason))
	case EventEnded:
		p("ended   %s reason=%s", name(e.Session), reason(e.Reason))
	case EventRefused:
		p("refused %s %s seq=%d code=%d token=%d%s", name(e.Session), e.Key, e.Seq, e.Code, e.Token, limitText(e.Limit))
	case EventAsked:
		p("asked   %s %s token=%d by=%s", name(e.Session), e.Key, e.Token, e.By)
	case EventContended:
		p("wanted  %s %s token=%d", name(e.Session), e.Key, e.Token)
	case EventDelayed:
		p("delayed %s token=%d for=%d", e.Key, e.Token, e.Delay)
	case EventEnding:
		p("ending  %s reason=%s", name(e.Session), reason(e.Reason))
	case EventRevoked:
		p("revoked %s reason=%s", name(e.Session), reason(e.Reason))
	case EventPutOff:
		p("put off")
	case EventPart:
		p("part    %s %s", name(e.Session), partText(e))
	}
	p("\n")
}

// left prints the value and the unclean mark for the next holder.
func (sc *script) left(value string, unclean bool) {
	if value != "" {
		fmt.Fprintf(&sc.out, " value=%s", value)
	}
	if unclean {
		fmt.Fprint(&sc.out, " unclean")
	}
}

func reason(r Reason) string {
	switch r {
	case Expired:
		return "expired"
	case Closed:
		return "closed"
	case Broken:
		return "broken"
	case Ended:
		return "ended"
	case Revoked:
		return "revoked"
	}
	return fmt.Sprintf("reason-%d", r)
}

// term returns the term in c, if there is one.
func term(c Command) uint64 {
	switch c := c.(type) {
	case LeaderStart:
		return c.Term
	case Lift:
		return c.Term
	case Bound:
		return c.Term
	case Silence:
		return c.Term
	case Hear:
		return c.Term
	case Expire:
		return c.Term
	case EndDelay:
		return c.Term
	case Raise:
		return c.Term
	case Assign:
		return c.Term
	case Dismiss:
		return c.Term
	case Reshard:
		return c.Term
	}
	return 0
}

func (sc *script) outcome(id SessionID, key string, term uint64, o Outcome) {
	if len(key) > 40 || !utf8.ValidString(key) {
		key = "…"
	}
	p := func(format string, args ...any) { fmt.Fprintf(&sc.out, format+"\n", args...) }
	switch o.Code {
	case OK:
		if o.Block > 0 {
			p("extended by %d after token=%d", o.Block, o.Token)
		}
	case Granted:
		fmt.Fprintf(&sc.out, "granted %s %s token=%d", name(id), key, o.Token)
		sc.left(o.Value, o.Unclean)
		p("")
	case Queued:
		p("queued  %s %s behind=%d", name(id), key, o.Behind)
	case Held:
		at := ""
		if o.Holder.Key != "" {
			at = " of " + o.Holder.Key
		}
		p("refused: held by %s of %s on %s, token=%d%s", name(o.Holder.Session), o.Holder.Client, o.Holder.Node, o.Holder.Token, at)
	case TooManyWaiters:
		p("refused: %d wait already", o.Limit)
	case Founding:
		p("refused: nothing is granted during the founding wait")
	case NoSession:
		p("refused: session %s is gone", name(id))
	case NotHeld:
		p("refused: %s does not hold that token", name(id))
	case Withdrawn:
		p("refused: withdrawn, or seen and forgotten")
	case WrongTerm:
		p("refused: proposed in term %d, now in term %d", term, o.Limit)
	case Founded:
		p("refused: founded already")
	case NotFounded:
		p("refused: not founded")
	case BadCommand:
		p("refused: bad %s, limit %d", o.Field, o.Limit)
	case TokensSpent:
		p("refused: tokens are spent")
	case TooMuchOfNode:
		p("refused: the node would have more than %d %s", o.Limit, o.Field)
	case TooManyKeys:
		p("refused: the session has too many keys, limit %d", o.Limit)
	case TooManyUnseen:
		p("refused: %d outcomes unseen", o.Limit)
	case Deadlock:
		fmt.Fprint(&sc.out, "refused: deadlock")
		for _, l := range o.Cycle {
			fmt.Fprintf(&sc.out, ", %s waits for %s", l.Client, l.Key)
			if l.Token > 0 {
				fmt.Fprintf(&sc.out, " token=%d", l.Token)
			}
		}
		p("")
	case WrongCapacity:
		p("refused: permits are of %d", o.Limit)
	case TooManyCapacities:
		p("refused: %d capacities are allowed", o.Limit)
	case Changed:
		p("refused: granted since, token=%d", o.Token)
	case TooOld:
		p("refused: grants up to token=%d are forgotten", o.Token)
	case NeverGranted:
		p("refused: no grant has that token, last=%d", o.Token)
	case WrongMode:
		p("refused: wrong mode")
	case NoSuccessor:
		p("refused: no successor")
	case ValuesFull:
		p("refused: values are full, limit %d", o.Limit)
	case WrongFormat:
		p("refused: format %d has no such command", o.Limit)
	case NodeEnded:
		p("refused: the process has ended")
	case WrongShards:
		p("refused: the group has %d shards", o.Limit)
	case TooManyCallers:
		p("refused: %d callers are allowed", o.Limit)
	case TooManyGroups:
		p("refused: %d groups or shards are allowed", o.Limit)
	case Resizing:
		p("refused: being resized to %d", o.Limit)
	case WrongVersion:
		p("refused: another version")
	case Unfinished:
		who := name(id)
		if id == (SessionID{}) {
			who = "it"
		}
		p("more of %s is left", who)
	case NoSuchSession:
		p("refused: no such session")
	case NoCaller:
		p("refused: no such caller")
	default:
		p("code %d", o.Code)
	}
}

func (sc *script) status(key string, waiters int) {
	st := sc.s.Status(key, waiters)
	p := func(format string, args ...any) { fmt.Fprintf(&sc.out, format, args...) }
	if st.Fixed {
		p("set     %s permits=%d of=%d\n", key, st.Permits, st.Of)
	}
	if len(st.Holders) == 0 && st.Queue == 0 {
		p("free    %s", key)
		sc.left(sc.s.Value(key), st.Unclean)
		p("\n")
		return
	}
	for _, g := range st.Holders {
		p("holder  %s %s", name(g.Session), key)
		if g.Seq > 0 {
			p(" seq=%d", g.Seq)
		}
		p(" token=%d%s", g.Token, modeText(&g.Spec, g.Keys))
		if g.At > 0 {
			p(" at=%d", g.At)
		}
		for _, f := range []struct {
			is   bool
			text string
		}{{g.Asked, " asked"}, {g.Broken, " broken"}, {g.Ending, " ending"}, {g.Delayed, " delayed, was " + g.Client + "'s"}} {
			if f.is {
				p("%s", f.text)
			}
		}
		if len(g.Meta) > 0 {
			p(" meta=%s", g.Meta)
		}
		p("\n")
	}
	for _, w := range st.Waiters {
		p("waiter  %s %s seq=%d%s", name(w.Session), key, w.Seq, modeText(&w.Spec, w.Keys))
		if w.Upgrade {
			p(" upgrade")
		}
		if w.Priority != 0 {
			p(" priority=%d", w.Priority)
		}
		if w.Passed != 0 {
			p(" passed=%d", w.Passed)
		}
		p("\n")
	}
	if st.Queue > len(st.Waiters) {
		p("and %d more\n", st.Queue-len(st.Waiters))
	}
}

func modeText(spec *Spec, keys int) (s string) {
	switch spec.Mode {
	case Shared:
		s = " shared"
	case Permit:
		if spec.N > 1 {
			s = fmt.Sprintf(" n=%d", spec.N)
		}
		s += fmt.Sprintf(" of=%d", spec.Of)
	}
	if spec.Tree {
		s += " tree"
	}
	if keys > 1 {
		s += fmt.Sprintf(" keys=%d", keys)
	}
	return s
}

func (sc *script) session(id SessionID) {
	st, ok := sc.s.Session(id)
	if !ok {
		fmt.Fprintf(&sc.out, "gone    %s\n", name(id))
		return
	}
	silent := ""
	if st.Silent {
		silent = " silent"
	}
	if st.Revoked {
		silent += " revoked"
	}
	if st.Ending {
		silent += " ending"
	}
	fmt.Fprintf(&sc.out, "session %s ttl=%d grants=%d waits=%d%s\n", name(id), st.TTL, st.Grants, st.Waits, silent)
}

func limitText(limit uint64) string {
	if limit == 0 {
		return ""
	}
	return fmt.Sprintf(" limit=%d", limit)
}
