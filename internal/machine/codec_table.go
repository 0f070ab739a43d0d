package machine

import (
	"encoding/binary"
	"errors"
)

// The encodings of a table's elements in an image. See spec.go for the attributes
// of grants and waiters.

func (h *header) append(b []byte) []byte {
	b = append(b, h.cluster[:]...)
	b = appendFlag(appendFlag(b, h.founded), h.lifted)
	return appendUvarints(b, h.term, h.bound, uint64(h.last), h.commands, h.format, h.at, h.idles, uint64(h.forgotten))
}

func (h *header) read(r *reader) {
	*h = header{
		cluster:   r.id(),
		founded:   r.flag(),
		lifted:    r.flag(),
		term:      r.uvarint(),
		bound:     r.uvarint(),
		last:      Token(r.uvarint()),
		commands:  r.uvarint(),
		format:    r.uvarint(),
		at:        r.uvarint(),
		idles:     r.uvarint(),
		forgotten: Token(r.uvarint()),
	}
}

func (q requestID) append(b []byte) []byte {
	return binary.AppendUvarint(append(b, q.session[:]...), q.seq)
}

func (q *requestID) read(r *reader) {
	q.session = r.id()
	q.seq = r.uvarint()
}

// readSet reads the keys of a request for several.
func readSet(r *reader) []string {
	keys := readStrings(r, r.count(MaxKeys))
	if len(keys) == 0 {
		r.fail(errors.New("set of no keys"))
	}
	for i := 1; i < len(keys); i++ {
		if keys[i-1] >= keys[i] {
			r.fail(errors.New("keys of a set out of order"))
		}
	}
	return keys
}

func (a *answer) append(b []byte) []byte {
	return appendFlag(appendBytes(AppendOutcome(b, a.out), a.key), a.late)
}

func (a *answer) read(r *reader) {
	var later uint64
	if a.out, later = r.outcome(); later != 0 {
		r.fail(errBits)
	}
	a.key = r.string()
	a.late = r.flag()
}

func (o *session) append(b []byte) []byte {
	b = append(b, o.id[:]...)
	b = appendBytes(appendBytes(b, o.client), o.node)
	b = binary.AppendUvarint(b, o.ttl)
	b = appendFlag(appendBytes(b, o.meta), o.silent)
	b = binary.AppendUvarint(b, uint64(len(o.spent)))
	for _, s := range o.spent {
		b = appendUvarints(b, s.first, s.last)
	}
	return b
}

func (o *session) read(r *reader) {
	o.id = r.id()
	o.client = r.string()
	o.node = r.string()
	o.ttl = r.uvarint()
	o.meta = r.string()
	o.silent = r.flag()
	n := r.count(MaxGaps + 1)
	if n > len(r.b)/2 {
		r.fail(errShort)
		return
	}
	if n > 0 {
		o.spent = make(spans, n)
		for i := range o.spent {
			o.spent[i] = span{r.uvarint(), r.uvarint()}
		}
	}
	o.index = newIndex()
}

// Bits of an encoded record, grant and waiter: never renumber.
const (
	recordLast = 1 << iota
	recordIdle
	recordValue
	recordFade
	recordUnclean
	recordHolders
	recordQueue
	recordBits = 1<<iota - 1 // all of them
)

const (
	grantSet = 1 << iota
	grantUnseen
	grantWaited
	grantContended
	grantAsked
	grantBroken
	grantRev
	grantFull
	grantUpgraded
	grantGhost
	grantBits = 1<<iota - 1
)

const (
	waiterSet = 1 << iota
	waiterUpgrade
	waiterPassed
	waiterUnder
	waiterBits = 1<<iota - 1
)

// The fewest bytes of a grant, in the case of a ghost, and of a waiter. A reader
// believes a count as far as the remaining bytes suffice for so many elements.
const (
	minGrant  = 6
	minWaiter = 16 + 6
)

func (k *record) append(b []byte, key string) []byte {
	set := bit(k.last != 0, recordLast) |
		bit(k.idle != 0, recordIdle) |
		bit(k.value != "", recordValue) |
		bit(k.fade, recordFade) |
		bit(k.unclean, recordUnclean) |
		bit(len(k.holders) > 0, recordHolders) |
		bit(len(k.queue) > 0, recordQueue)
	b = appendUvarints(appendBytes(b, key), k.version, set)
	if set&recordLast != 0 {
		b = binary.AppendUvarint(b, uint64(k.last))
	}
	if set&recordIdle != 0 {
		b = binary.AppendUvarint(b, k.idle)
	}
	if set&recordValue != 0 {
		b = appendBytes(b, k.value)
	}
	if set&recordHolders != 0 {
		b = binary.AppendUvarint(b, uint64(len(k.holders)))
		for i := range k.holders {
			b = k.holders[i].append(b)
		}
	}
	if set&recordQueue != 0 {
		b = binary.AppendUvarint(b, uint64(len(k.queue)))
		for i := range k.queue {
			b = k.queue[i].append(b)
		}
	}
	return b
}

func (k *record) read(r *reader) (key string) {
	key = r.string()
	k.version = r.uvarint()
	set := r.bits(recordBits)
	k.fade = set&recordFade != 0
	k.unclean = set&recordUnclean != 0
	if set&recordLast != 0 {
		k.last = Token(r.nonzero())
	}
	if set&recordIdle != 0 {
		k.idle = r.nonzero()
	}
	if set&recordValue != 0 {
		k.value = r.text()
	}
	if set&recordHolders != 0 {
		if n := r.nonzeroCount(min(MaxHolders, len(r.b)/minGrant)); n > 0 {
			k.holders = make([]grant, n)
		}
		for i := range k.holders {
			k.holders[i].read(r)
			k.countGrant(&k.holders[i], 1)
		}
	}
	if set&recordQueue != 0 {
		// An upgrade comes on top of MaxWaiters.
		if n := r.nonzeroCount(min(MaxWaiters+1, len(r.b)/minWaiter)); n > 0 {
			k.queue = make([]waiter, n)
		}
		for i := range k.queue {
			k.queue[i].read(r)
			k.countWaiter(&k.queue[i], 1)
		}
	}
	return key
}

func (g *grant) append(b []byte) []byte {
	set := bit(g.set, grantSet) |
		bit(g.unseen, grantUnseen) |
		bit(g.waited, grantWaited) |
		bit(g.contended, grantContended) |
		bit(g.asked, grantAsked) |
		bit(g.broken, grantBroken) |
		bit(g.rev != 0, grantRev) |
		bit(g.full, grantFull) |
		bit(g.first != 0 || g.former != 0, grantUpgraded) |
		bit(g.ghost != nil, grantGhost)
	b = appendUvarints(b, uint64(g.token), g.at, set)
	if set&grantGhost != 0 {
		b = appendBytes(appendBytes(b, g.ghost.client), g.ghost.node)
	} else {
		b = g.request().append(b)
	}
	if set&grantRev != 0 {
		b = binary.AppendUvarint(b, g.rev)
	}
	if set&grantUpgraded != 0 {
		b = appendUvarints(b, uint64(g.first), uint64(g.former))
	}
	return g.Spec.append(b)
}

func (g *grant) read(r *reader) {
	g.token = Token(r.uvarint())
	g.at = r.uvarint()
	set := r.bits(grantBits)
	g.set = set&grantSet != 0
	g.unseen = set&grantUnseen != 0
	g.waited = set&grantWaited != 0
	g.contended = set&grantContended != 0
	g.asked = set&grantAsked != 0
	g.broken = set&grantBroken != 0
	g.full = set&grantFull != 0
	if set&grantGhost != 0 {
		g.ghost = &ghost{client: r.string(), node: r.string()}
	} else {
		g.session, g.seq = r.id(), r.uvarint()
	}
	if set&grantRev != 0 {
		g.rev = r.nonzero()
	}
	if set&grantUpgraded != 0 {
		g.first, g.former = Token(r.uvarint()), Token(r.uvarint())
		if g.first == 0 && g.former == 0 {
			r.fail(errForm)
		}
	}
	g.Spec.read(r)
}

func (w *waiter) append(b []byte) []byte {
	set := bit(w.set, waiterSet) |
		bit(w.upgrade != 0, waiterUpgrade) |
		bit(w.passed != 0, waiterPassed) |
		bit(len(w.under) > 0, waiterUnder)
	b = appendUvarints(w.request().append(b), w.since, w.order, w.at, set)
	if set&waiterUpgrade != 0 {
		b = binary.AppendUvarint(b, uint64(w.upgrade))
	}
	if set&waiterPassed != 0 {
		b = append(b, w.passed)
	}
	if set&waiterUnder != 0 {
		b = appendNumbers(b, w.under)
	}
	return w.Spec.append(b)
}

func (w *waiter) read(r *reader) {
	w.session, w.seq = r.id(), r.uvarint()
	w.since = r.uvarint()
	w.order = r.uvarint()
	w.at = r.uvarint()
	set := r.bits(waiterBits)
	w.set = set&waiterSet != 0
	if set&waiterUpgrade != 0 {
		w.upgrade = Token(r.nonzero())
	}
	if set&waiterPassed != 0 {
		w.passed = r.nonzeroByte()
	}
	if set&waiterUnder != 0 {
		w.under = readNumbers[Token](r, r.nonzeroCount(MaxUnder+1)) // an upgrade is under its grant too
	}
	w.Spec.read(r)
}
