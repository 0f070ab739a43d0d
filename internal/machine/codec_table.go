package machine

import "errors"

// The encodings of a table's elements in an image. See spec.go for the attributes
// of grants and waiters.

// element returns *v: a new element when decoding.
func element[T any](c *coder, v **T) *T {
	if c.decoding {
		*v = new(T)
	}
	return *v
}

func (h *header) code(c *coder) {
	c.id((*[16]byte)(&h.cluster))
	c.flag(&h.founded)
	c.flag(&h.lifted)
	c.numbers(&h.term, &h.bound, (*uint64)(&h.last), &h.commands, &h.format, &h.at, &h.second, &h.reserved, &h.idles, (*uint64)(&h.forgotten))
	for i := range elements(c, &h.ended, MaxEnded, 3+16) {
		c.texts(&h.ended[i].node)
		c.id((*[16]byte)(&h.ended[i].dir))
		c.numbers(&h.ended[i].boot)
		c.flag(&h.ended[i].left)
	}
	codeVisits(c, &h.later)
}

func (q *requestID) code(c *coder) {
	c.id((*[16]byte)(&q.session))
	c.numbers(&q.seq)
}

// codeSet codes the keys of a request for several.
func codeSet(c *coder, q *requestID, keys *[]string) {
	q.code(c)
	for i := range elements(c, keys, MaxKeys, 1) {
		c.texts(&(*keys)[i])
		if c.decoding && i > 0 && (*keys)[i-1] >= (*keys)[i] {
			c.in.fail(errors.New("keys of a set out of order"))
		}
	}
	if c.decoding && len(*keys) == 0 {
		c.in.fail(errors.New("set of no keys"))
	}
}

func codeAnswer(c *coder, q *requestID, v **answer) {
	q.code(c)
	a := element(c, v)
	if a.out.code(c) != 0 {
		c.in.fail(errBits)
	}
	c.texts(&a.key)
	c.flag(&a.late)
}

func codeSession(c *coder, id *SessionID, v **session) {
	o := element(c, v)
	c.id((*[16]byte)(id))
	c.texts(&o.client, &o.node)
	c.id((*[16]byte)(&o.dir))
	c.numbers(&o.boot, &o.ttl, &o.opened)
	c.texts(&o.meta)
	c.flag(&o.silent)
	c.flag(&o.revoked)
	c.byte((*byte)(&o.ending))
	c.flag(&o.begun)
	c.numbers(&o.second, &o.reserved)
	for i := range elements(c, (*[]span)(&o.spent), MaxGaps+1, 2) {
		c.numbers(&o.spent[i].first, &o.spent[i].last)
	}
	if c.decoding {
		o.id, o.index = *id, newIndex(*id)
	}
}

// The fewest bytes of a grant, in the case of a ghost, and of a waiter.
const (
	minGrant  = 6
	minWaiter = 16 + 6
)

func codeRecord(c *coder, k *record) {
	c.texts(&k.key)
	if c.decoding {
		c.extra = extra{}
		k.extra = &c.extra
	}
	c.numbers(&k.version)
	f := c.fields()
	integer(&f, &k.last)
	integer(&f, &k.idle)
	f.text(&k.value)
	f.flag(&k.fade)
	f.flag(&k.unclean)
	for i := range list(&f, &k.holders, MaxHolders, minGrant) {
		c.top()
		k.holders[i].code(c)
	}
	c.top()
	for i := range list(&f, &k.queue, MaxWaiters+1, minWaiter) { // an upgrade comes on top
		c.top()
		k.queue[i].code(c)
	}
	integer(&f, &k.capacity)
	f.flag(&k.fixed)
	f.done()
	if c.decoding {
		k.recount()
		k.extra = c.extra.kept()
	}
}

func (g *grant) code(c *coder) {
	if c.decoding {
		c.terms = terms{}
		g.terms = &c.terms
	}
	at := g.at.ms()
	c.numbers((*uint64)(&g.token), &at)
	if c.decoding {
		if g.at = momentOf(at); at > maxMoment {
			c.in.fail(errForm)
		}
	}
	f := c.fields()
	g.codeMark(&f, markSet)
	g.codeMark(&f, markUnseen)
	g.codeMark(&f, markWaited)
	g.codeMark(&f, markContended)
	g.codeMark(&f, markAsked)
	g.codeMark(&f, markBroken)
	hasRev := f.has(g.rev != 0)
	g.codeMark(&f, markFull)
	upgraded := f.has(g.first != 0 || g.former != 0)
	if f.has(g.ghost != nil) {
		if c.decoding {
			g.ghost = &ghost{}
		}
		c.texts(&g.ghost.client, &g.ghost.node)
	} else {
		g.requestID.code(c)
	}
	if hasRev {
		c.numbers(&g.rev)
		f.refuseZero(g.rev == 0)
	}
	if upgraded {
		c.numbers((*uint64)(&g.first), (*uint64)(&g.former))
		f.refuseZero(g.first == 0 && g.former == 0)
	}
	f.done()
	g.Spec.code(c)
	if c.decoding {
		g.terms = c.terms.kept()
	}
}

// codeMark codes a mark. An encoder changes nothing: images share grants.
func (g *grant) codeMark(f *fields, one marks) {
	if set := f.has(g.is(one)); f.decoding {
		g.mark(one, set)
	}
}

func (w *waiter) code(c *coder) {
	w.requestID.code(c)
	c.numbers(&w.since, &w.order, &w.at)
	f := c.fields()
	f.flag(&w.set)
	integer(&f, &w.upgrade)
	octet(&f, &w.passed)
	for i := range list(&f, &w.under, MaxUnder+1, 1) { // an upgrade is under its grant too
		c.numbers((*uint64)(&w.under[i]))
	}
	f.done()
	w.Spec.code(c)
}
