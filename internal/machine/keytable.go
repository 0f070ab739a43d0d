package machine

import "slices"

// keyTable is the records of all keys, and the data derived from the records alone:
// the sums, the ordered sets of keys, and the lists of idle keys. Every change of a
// record is an edit. Only edits change derived data: an edit subtracts the record's
// part before the change, and adds the part after. Check derives all parts anew and
// compares.
type keyTable struct {
	recordTable
	sums
	inUse      ordered            // keys that are held or waited for
	below      [belowSets]ordered // keys in use that are below another, by path
	valued     ordered            // keys with a value
	past       idleList           // idle keys without a value
	fadingIdle idleList           // idle keys with a fading value
	working    map[string]int     // held keys of the shards of each known group
	scratch    extra              // of the record being edited, if it has none: see editRecord
}

// sums counts the records of all keys or, in a part, a single record.
type sums struct {
	grants           int // holders, ghosts included
	waiters          int // in queues
	trees            int // among both
	conditions       int // among the waiters
	lasting          int // lasting values,
	lastingBytes     int // and their bytes
	fadingInUse      int // fading values of keys in use,
	fadingInUseBytes int // and their bytes
	fadingIdleBytes  int // bytes of the fading values of idle keys
	capacities       int // keys with a set capacity
	used             int // keys that are held or waited for
}

// part is the contribution of one record to the derived data. A key without a record
// has the zero part.
type part struct {
	sums
	sets keySets
	idle uint64
}

// keySets says in which of the ordered sets a key is.
type keySets uint8

const (
	heldAlone  keySets = 1 << iota // held, and not shared
	heldShared                     // held and shared
	waitedFor
	treed      // held or waited for as a tree
	recallable // held by a grant with a block of tokens whose holder was not told of a request
	inUse
	hasValue

	belowSets = 5 // the sets before inUse, which only have keys that are below another

	held = heldAlone | heldShared
)

func (r *record) part() (p part) {
	p.idle = r.idle
	p.grants, p.waiters = len(r.holders), len(r.queue)
	p.trees, p.conditions = int(r.trees), int(r.conditions)
	if r.fixed {
		p.capacities = 1
	}
	switch bytes := len(r.value); {
	case bytes == 0:
	case !r.fade:
		p.lasting, p.lastingBytes = 1, bytes
	case r.idle == 0:
		p.fadingInUse, p.fadingInUseBytes = 1, bytes
	default:
		p.fadingIdleBytes = bytes
	}
	switch {
	case len(r.holders) == 0:
	case r.holders[0].Mode == Shared:
		p.sets |= heldShared
	default:
		p.sets |= heldAlone
		if g := &r.holders[0]; g.Block > 0 && !g.is(markContended) {
			p.sets |= recallable
		}
	}
	if len(r.queue) > 0 {
		p.sets |= waitedFor
	}
	if r.trees > 0 {
		p.sets |= treed
	}
	if r.idle == 0 {
		p.used = 1
		p.sets |= inUse
	}
	if r.value != "" {
		p.sets |= hasValue
	}
	return p
}

// add adds n times another sum.
func (s *sums) add(other *sums, n int) {
	s.grants += n * other.grants
	s.waiters += n * other.waiters
	s.trees += n * other.trees
	s.conditions += n * other.conditions
	s.lasting += n * other.lasting
	s.lastingBytes += n * other.lastingBytes
	s.fadingInUse += n * other.fadingInUse
	s.fadingInUseBytes += n * other.fadingInUseBytes
	s.fadingIdleBytes += n * other.fadingIdleBytes
	s.capacities += n * other.capacities
	s.used += n * other.used
}

// noRecord stands for the record of a key without a record. It never changes.
var noRecord = record{extra: &noExtra}

// get returns key's record for reading, noRecord if there is none.
func (t *keyTable) get(key string) *record {
	if r := t.recordTable.get(key); r != nil {
		return r
	}
	return &noRecord
}

// edit has f change key's record, and changes the derived data. The key must have a
// record, and f must not edit. The result is the record, readable until the next
// edit of the key.
func (t *keyTable) edit(key string, f func(r *record)) *record {
	return t.editRecord(key, t.recordTable.get(key), f)
}

// editRecord is edit with the record at hand, which saves a search.
func (t *keyTable) editRecord(key string, r *record, f func(r *record)) *record {
	if r.epoch != t.epoch {
		r = t.clone(key, r)
	} else if len(key) >= longKey {
		t.note(key, tagOf(key), r)
	}
	before := r.part()
	if r.extra != &noExtra {
		f(r)
	} else {
		// f may write to an extra without asking for one.
		t.scratch = extra{}
		r.extra = &t.scratch
		f(r)
		r.extra = t.scratch.kept()
	}
	if r.extra.isEmpty() {
		r.extra = &noExtra
	}
	if now := r.part(); now != before {
		t.replace(key, &before, &now)
	}
	return r
}

// use brings key into use, and returns the key's record, not an idle one.
func (t *keyTable) use(key string) *record {
	r := t.recordTable.get(key)
	switch {
	case r == nil:
		r = &record{epoch: t.epoch, extra: &noExtra}
		t.set(key, r)
		now := r.part()
		t.replace(key, &part{}, &now)
	case r.idle != 0:
		r = t.editRecord(key, r, func(r *record) { r.idle = 0 })
	}
	return r
}

// drop removes key's record.
func (t *keyTable) drop(key string) { t.dropRecord(t.get(key)) }

// dropRecord is drop with the record at hand.
func (t *keyTable) dropRecord(r *record) {
	before := r.part()
	t.del(r.key)
	t.replace(r.key, &before, &part{})
}

// clone replaces key's record by a copy that belongs to no image.
func (t *keyTable) clone(key string, r *record) *record {
	c := *r
	c.epoch = t.epoch
	c.holders = slices.Clone(r.holders)
	if r.extra != &noExtra {
		c.extra = new(*r.extra)
		c.queue = slices.Clone(r.queue)
	}
	t.set(key, &c)
	return &c
}

// replace subtracts one part of key's record from the derived data, and adds
// another.
func (t *keyTable) replace(key string, before, now *part) {
	t.sums.add(&before.sums, -1)
	t.sums.add(&now.sums, 1)
	if changed := before.sets ^ now.sets; changed != 0 {
		t.moveSets(key, changed, now.sets)
	}
	if before.idle == now.idle {
		return
	}
	if list := t.idleList(before); list != nil {
		list.n--
	}
	if list := t.idleList(now); list != nil {
		list.push(key, now.idle)
	}
}

// moveSets puts key into the changed sets that are in now, and removes the key from
// the other changed sets.
func (t *keyTable) moveSets(key string, changed, now keySets) {
	if changed&inUse != 0 {
		t.inUse.move(key, now&inUse != 0)
	}
	if changed&hasValue != 0 {
		t.valued.move(key, now&hasValue != 0)
	}
	if !isBelowAnother(key) {
		return
	}
	if is, was := now&held != 0, (now^changed)&held != 0; is != was {
		t.noteWork(key, is)
	}
	for i := range t.below {
		if set := keySets(1 << i); changed&set != 0 {
			t.below[i].move(key, now&set != 0)
		}
	}
}

// idleList returns the list for an idle record; nil if there is none.
func (t *keyTable) idleList(p *part) *idleList {
	switch {
	case p.idle == 0 || p.lasting > 0:
		return nil
	case p.fadingIdleBytes > 0:
		return &t.fadingIdle
	case p.capacities > 0:
		return nil
	}
	return &t.past
}

// derive fills the empty sums, sets and lists from the records, and visits each record once it has
// done so, in the order of the keys, until a visit fails.
func (t *keyTable) derive(visit func(*record) error) error {
	list := make([]*record, 0, t.n)
	for _, r := range t.all {
		list = append(list, r)
	}
	sortRecords(list) // an ordered set grows fastest in order
	for _, r := range list {
		now := r.part()
		t.replace(r.key, &part{}, &now)
		if err := visit(r); err != nil { // the processor has it at hand
			return err
		}
	}
	t.past.sort()
	t.fadingIdle.sort()
	return nil
}
