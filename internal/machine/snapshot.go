package machine

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
)

// SnapshotVersion is the version of images that WriteTo writes. Restore reads
// those before it too.
const SnapshotVersion = 2

// An image is the magic, a version byte, and chunks. A chunk is its kind, the
// length of its body in four bytes, the body, and the CRC32C of kind and body.
// The first holds the header; then come sessions, sets, answers and keys, a
// chunk for each shard that has any, with elements in ascending order. Nothing
// is left to choice, so equal States have equal images.
//
// Version 1 had refusals in place of sets and answers, and records with one
// holder, which was exclusive.
const magic = "wardmote"

const (
	chunkHeader   = 'h'
	chunkSessions = 's'
	chunkSets     = 't'
	chunkAnswers  = 'a'
	chunkKeys     = 'k'

	chunkRefusals1 = 'r' // of version 1
)

// chunkOrder is the kinds of each version's chunks, in their places.
var chunkOrder = [...]string{
	1: "hsrk",
	2: "hstak",
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Image is the state at one moment. It stays as it is while the State goes on,
// and may be used from any goroutine.
type Image struct {
	header   header
	keys     frozen[string, *record]
	sessions frozen[SessionID, *session]
	sets     frozen[request, []string]
	answers  frozen[request, *answer]
}

type header struct {
	cluster                       ClusterID
	founded, lifted               bool
	term, bound                   uint64
	last                          Token
	commands, format, at, idles   uint64
	forgotten                     Token
	sessions, sets, answers, keys uint64 // how many
}

// Snapshot takes an image, in a time that does not depend on the table's size.
// The State pays for it later, by cloning what it changes first.
func (s *State) Snapshot() *Image {
	return &Image{
		header: header{
			cluster:   s.cluster,
			founded:   s.founded,
			lifted:    s.lifted,
			term:      s.term,
			bound:     s.bound,
			last:      s.last,
			commands:  s.commands,
			at:        s.at,
			format:    s.format,
			idles:     s.idles,
			forgotten: s.forgotten,
			sessions:  uint64(s.sessions.n),
			sets:      uint64(s.sets.n),
			answers:   uint64(s.answers.n),
			keys:      uint64(s.keys.n),
		},
		keys:     s.keys.freeze(),
		sessions: s.sessions.freeze(),
		sets:     s.sets.freeze(),
		answers:  s.answers.freeze(),
	}
}

// Digest is a hash of the state: equal for replicas that applied the same
// commands. It costs as much as writing an image.
func (s *State) Digest() [sha256.Size]byte { return s.Snapshot().Digest() }

// Digest is a hash of the image's bytes.
func (i *Image) Digest() (d [sha256.Size]byte) {
	h := sha256.New()
	_, _ = i.WriteTo(h) // a hash does not fail
	h.Sum(d[:0])
	return d
}

// WriteTo writes the image. After an error w holds a part that Restore refuses.
func (i *Image) WriteTo(w io.Writer) (int64, error) {
	c := &chunks{w: w, buf: append([]byte(magic), SnapshotVersion)}
	c.add(chunkHeader, i.header.append)
	eachShard(c, chunkSessions, &i.sessions, compareSessions, func(b []byte, _ SessionID, o *session) []byte {
		return o.append(b)
	})
	eachShard(c, chunkSets, &i.sets, compareRequests, func(b []byte, q request, keys []string) []byte {
		return appendStrings(q.append(b), keys)
	})
	eachShard(c, chunkAnswers, &i.answers, compareRequests, func(b []byte, q request, a *answer) []byte {
		return a.append(q.append(b))
	})
	eachShard(c, chunkKeys, &i.keys, strings.Compare, func(b []byte, key string, r *record) []byte {
		return r.append(b, key)
	})
	c.flush()
	return c.written, c.err
}

// chunks collects chunks and writes them a megabyte at a time.
type chunks struct {
	w       io.Writer
	buf     []byte
	written int64
	err     error
}

const flushAt = 1 << 20

func (c *chunks) add(kind byte, body func([]byte) []byte) {
	if c.err != nil {
		return
	}
	c.buf = append(c.buf, kind, 0, 0, 0, 0)
	start := len(c.buf)
	c.buf = body(c.buf)
	if len(c.buf)-start > maxChunk {
		c.err = fmt.Errorf("machine: snapshot: chunk of %d bytes exceeds %d", len(c.buf)-start, maxChunk)
		return
	}
	binary.LittleEndian.PutUint32(c.buf[start-4:], uint32(len(c.buf)-start))
	c.buf = binary.LittleEndian.AppendUint32(c.buf, checksum(kind, c.buf[start:]))
	if len(c.buf) >= flushAt {
		c.flush()
	}
}

func (c *chunks) flush() {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(c.buf)
	c.written += int64(n)
	c.err = err
	c.buf = c.buf[:0]
}

// maxChunk bounds a chunk's body: one shard, 1/256 of a table.
const maxChunk = 1 << 30

func checksum(kind byte, body []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte{kind}, castagnoli), castagnoli, body)
}

func eachShard[K comparable, V any](c *chunks, kind byte, f *frozen[K, V], compare func(a, b K) int, element func([]byte, K, V) []byte) {
	var order []K
	for i, m := range f.shards {
		if len(m) == 0 {
			continue
		}
		order = order[:0]
		for k := range m {
			order = append(order, k)
		}
		slices.SortFunc(order, compare)
		c.add(kind, func(b []byte) []byte {
			b = append(b, byte(i))
			b = binary.AppendUvarint(b, uint64(len(order)))
			for _, k := range order {
				b = element(b, k, m[k])
			}
			return b
		})
	}
}

func compareSessions(a, b SessionID) int { return bytes.Compare(a[:], b[:]) }

func compareRequests(a, b request) int {
	if c := compareSessions(a.session, b.session); c != 0 {
		return c
	}
	return compareUint(a.seq, b.seq)
}

func compareUint(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (h *header) append(b []byte) []byte {
	b = append(b, h.cluster[:]...)
	b = appendFlag(b, h.founded)
	b = appendFlag(b, h.lifted)
	for _, v := range []uint64{
		h.term, h.bound, uint64(h.last), h.commands, h.format, h.at, h.idles, uint64(h.forgotten),
		h.sessions, h.sets, h.answers, h.keys,
	} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func (h *header) read(r *reader, version byte) {
	h.cluster = r.id()
	h.founded = r.flag()
	h.lifted = r.flag()
	h.term = r.uvarint()
	h.bound = r.uvarint()
	h.last = Token(r.uvarint())
	h.commands = r.uvarint()
	h.format = 1
	if version > 1 {
		h.format = r.uvarint()
		h.at = r.uvarint()
		h.idles = r.uvarint()
		h.forgotten = Token(r.uvarint())
	}
	h.sessions = r.uvarint()
	if version > 1 {
		h.sets = r.uvarint()
	}
	h.answers = r.uvarint() // the refusals, in version 1
	h.keys = r.uvarint()
}

func (q request) append(b []byte) []byte {
	b = append(b, q.session[:]...)
	return binary.AppendUvarint(b, q.seq)
}

func (q *request) read(r *reader) {
	q.session = r.id()
	q.seq = r.uvarint()
}

// readSet reads the keys of a request for several.
func readSet(r *reader) []string {
	keys := r.strings(MaxKeys)
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
	b = AppendOutcome(b, a.out)
	b = appendBytes(b, a.key)
	return appendFlag(b, a.late)
}

func (a *answer) read(r *reader) {
	a.out = r.outcome()
	a.key = r.string()
	a.late = r.flag()
}

func (o *session) append(b []byte) []byte {
	b = append(b, o.id[:]...)
	b = appendBytes(b, o.client)
	b = appendBytes(b, o.node)
	b = binary.AppendUvarint(b, o.ttl)
	b = appendBytes(b, o.meta)
	b = appendFlag(b, o.silent)
	b = binary.AppendUvarint(b, uint64(len(o.spent)))
	for _, s := range o.spent {
		b = binary.AppendUvarint(b, s.first)
		b = binary.AppendUvarint(b, s.last)
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

// Flags of a record, of a grant and of a waiter.
const (
	recordFade = 1 << iota
	recordUnclean
	recordFlags = 1<<iota - 1 // all there are
)

const (
	grantTree = 1 << iota
	grantSet
	grantUnseen
	grantWaited
	grantAsked
	grantContended
	grantBroken
	grantFlags = 1<<iota - 1
)

const (
	waiterTree = 1 << iota
	waiterSet
	waiterConditional
	waiterFlags = 1<<iota - 1
)

// The fewest bytes of a grant and of a waiter: their sessions, and one for
// everything else. A count is believed as far as the bytes that are left cover
// it.
const (
	minGrant  = 16 + 11
	minWaiter = 16 + 14

	minWaiter1 = 16 + 3 // in version 1
)

// bit returns flag if it is set.
func bit(set bool, flag byte) byte {
	if set {
		return flag
	}
	return 0
}

func (k *record) append(b []byte, key string) []byte {
	b = appendBytes(b, key)
	b = binary.AppendUvarint(b, k.version)
	b = binary.AppendUvarint(b, uint64(k.last))
	b = binary.AppendUvarint(b, k.rest)
	b = append(b, bit(k.fade, recordFade)|bit(k.unclean, recordUnclean))
	b = appendBytes(b, k.value)
	b = binary.AppendUvarint(b, uint64(len(k.holders)))
	for i := range k.holders {
		b = k.holders[i].append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(k.queue)))
	for i := range k.queue {
		b = k.queue[i].append(b)
	}
	return b
}

func (k *record) read(r *reader) (key string) {
	key = r.string()
	k.version = r.uvarint()
	k.last = Token(r.uvarint())
	k.rest = r.uvarint()
	flags := r.flags(recordFlags)
	k.fade = flags&recordFade != 0
	k.unclean = flags&recordUnclean != 0
	k.value = r.string()
	if n := r.count(min(MaxHolders, len(r.b)/minGrant)); n > 0 {
		k.holders = make([]grant, n)
		for i := range k.holders {
			k.holders[i].read(r)
			if k.holders[i].ghost != nil {
				k.ghosts++
			}
		}
	}
	// An upgrade comes on top of MaxWaiters.
	if n := r.count(min(MaxWaiters+1, len(r.b)/minWaiter)); n > 0 {
		k.queue = make([]waiter, n)
		for i := range k.queue {
			k.queue[i].read(r)
		}
	}
	return key
}

// read1 reads a record of version 1: at most one holder, and nothing of what
// keys were once.
func (k *record) read1(r *reader) (key string) {
	key = r.string()
	k.version = r.uvarint()
	if k.last = Token(r.uvarint()); k.last != 0 {
		k.holders = []grant{{
			token:   k.last,
			session: r.id(),
			seq:     r.uvarint(),
			meta:    r.string(),
			unseen:  r.flag(),
			waited:  r.flag(),
		}}
	}
	if k.last != 0 && k.holders[0].session == (SessionID{}) {
		r.fail(errors.New("grant of no session")) // there were no ghosts yet
	}
	if n := r.count(min(MaxWaiters, len(r.b)/minWaiter1)); n > 0 {
		k.queue = make([]waiter, n)
		for i := range k.queue {
			w := &k.queue[i]
			*w = waiter{session: r.id(), seq: r.uvarint(), since: r.uvarint(), meta: r.string()}
			w.order = w.since
		}
	}
	return key
}

func (g *grant) append(b []byte) []byte {
	b = append(b, g.session[:]...)
	b = binary.AppendUvarint(b, g.seq)
	b = binary.AppendUvarint(b, uint64(g.token))
	b = binary.AppendUvarint(b, uint64(g.former))
	b = binary.AppendUvarint(b, uint64(g.first))
	rev := g.rev << 1 // below 1 << 63
	if g.full {
		rev |= 1
	}
	b = binary.AppendUvarint(b, rev)
	b = binary.AppendUvarint(b, g.at)
	b = binary.AppendUvarint(b, g.delay)
	b = binary.AppendUvarint(b, uint64(g.of))
	b = append(b, byte(g.mode), bit(g.tree, grantTree)|
		bit(g.set, grantSet)|
		bit(g.unseen, grantUnseen)|
		bit(g.waited, grantWaited)|
		bit(g.asked, grantAsked)|
		bit(g.contended, grantContended)|
		bit(g.broken, grantBroken))
	b = appendBytes(b, g.meta)
	if g.session == (SessionID{}) {
		b = appendBytes(b, g.ghost.client)
		b = appendBytes(b, g.ghost.node)
	}
	return b
}

func (g *grant) read(r *reader) {
	g.session = r.id()
	g.seq = r.uvarint()
	g.token = Token(r.uvarint())
	g.former = Token(r.uvarint())
	g.first = Token(r.uvarint())
	rev := r.uvarint()
	g.rev, g.full = rev>>1, rev&1 != 0
	g.at = r.uvarint()
	g.delay = r.uvarint()
	g.of = r.uint32()
	g.mode = Mode(r.byte())
	flags := r.flags(grantFlags)
	g.tree = flags&grantTree != 0
	g.set = flags&grantSet != 0
	g.unseen = flags&grantUnseen != 0
	g.waited = flags&grantWaited != 0
	g.asked = flags&grantAsked != 0
	g.contended = flags&grantContended != 0
	g.broken = flags&grantBroken != 0
	g.meta = r.string()
	if g.session == (SessionID{}) {
		g.ghost = &ghost{client: r.string(), node: r.string()}
	}
}

func (w *waiter) append(b []byte) []byte {
	b = append(b, w.session[:]...)
	b = binary.AppendUvarint(b, w.seq)
	b = binary.AppendUvarint(b, w.since)
	b = binary.AppendUvarint(b, w.order)
	b = binary.AppendUvarint(b, w.at)
	b = binary.AppendUvarint(b, w.delay)
	b = binary.AppendUvarint(b, uint64(w.ifToken))
	b = binary.AppendUvarint(b, uint64(w.upgrade))
	b = binary.AppendUvarint(b, uint64(w.of))
	b = append(b, byte(w.mode), bit(w.tree, waiterTree)|
		bit(w.set, waiterSet)|
		bit(w.conditional, waiterConditional),
		byte(w.priority), w.passed)
	b = appendBytes(b, w.meta)
	return appendTokens(b, w.under)
}

func (w *waiter) read(r *reader) {
	w.session = r.id()
	w.seq = r.uvarint()
	w.since = r.uvarint()
	w.order = r.uvarint()
	w.at = r.uvarint()
	w.delay = r.uvarint()
	w.ifToken = Token(r.uvarint())
	w.upgrade = Token(r.uvarint())
	w.of = r.uint32()
	w.mode = Mode(r.byte())
	flags := r.flags(waiterFlags)
	w.tree = flags&waiterTree != 0
	w.set = flags&waiterSet != 0
	w.conditional = flags&waiterConditional != 0
	w.priority = int8(r.byte())
	w.passed = r.byte()
	w.meta = r.string()
	w.under = r.tokens(MaxUnder + 1) // an upgrade is under its grant too
}

// Restore reads an image, to the end of rd, into a new State. It refuses a
// version that it does not know, a damaged or cut image, and one whose tables
// break an invariant; what it allocates is in proportion to what it has read.
// Whether all who wait have to, I4 and I7, it takes from the image: to find out
// costs more than to restore.
func Restore(rd io.Reader) (*State, error) {
	s, err := restore(bufio.NewReaderSize(rd, 1<<16))
	if err != nil {
		return nil, fmt.Errorf("machine: snapshot refused: %w", err)
	}
	return s, nil
}

func restore(rd io.Reader) (*State, error) {
	var head [len(magic) + 1]byte
	if _, err := io.ReadFull(rd, head[:]); err != nil {
		return nil, cut(err)
	}
	if string(head[:len(magic)]) != magic {
		return nil, errors.New("not a snapshot of a lock table")
	}
	version := head[len(magic)]
	if version < 1 || version > SnapshotVersion {
		return nil, fmt.Errorf("version %d, want 1 to %d", version, SnapshotVersion)
	}
	// -1 for an unknown kind, which has no place.
	order := func(kind byte) int { return strings.IndexByte(chunkOrder[version], kind) }

	s := New()
	var h header
	var body bytes.Buffer
	var kind, shard byte // of the chunk before
	for {
		k, err := readChunk(rd, &body)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		r := &reader{b: body.Bytes()}
		if (k == chunkHeader) != (kind == 0) {
			return nil, errors.New("header not in its place")
		}
		if k == chunkHeader {
			h.read(r, version)
			if err := r.end(); err != nil {
				return nil, err
			}
			kind = k
			continue
		}
		n := r.byte()
		if order(k) <= order(kind) && (k != kind || n <= shard) {
			return nil, errors.New("chunk out of order")
		}
		kind, shard = k, n
		switch k {
		case chunkSessions:
			err = readShard(r, &s.sessions, n, compareSessions, func() (SessionID, *session) {
				o := &session{}
				o.read(r)
				return o.id, o
			})
		case chunkSets:
			err = readShard(r, &s.sets, n, compareRequests, func() (q request, keys []string) {
				q.read(r)
				return q, readSet(r)
			})
		case chunkAnswers:
			err = readShard(r, &s.answers, n, compareRequests, func() (q request, _ *answer) {
				a := &answer{}
				q.read(r)
				a.read(r)
				return q, a
			})
		case chunkRefusals1:
			err = readShard(r, &s.answers, n, compareRequests, func() (q request, _ *answer) {
				q.read(r)
				return q, &answer{out: r.outcomeHead()}
			})
		case chunkKeys:
			err = readShard(r, &s.keys, n, strings.Compare, func() (string, *record) {
				v := &record{}
				if version == 1 {
					return v.read1(r), v
				}
				return v.read(r), v
			})
		}
		if err != nil {
			return nil, err
		}
	}
	if kind == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	claimed := [...]uint64{h.sessions, h.sets, h.answers, h.keys}
	found := [...]uint64{uint64(s.sessions.n), uint64(s.sets.n), uint64(s.answers.n), uint64(s.keys.n)}
	if claimed != found {
		return nil, fmt.Errorf("header counts sessions, sets, answers and keys as %d; read %d", claimed, found)
	}
	s.cluster = h.cluster
	s.founded, s.lifted = h.founded, h.lifted
	s.term, s.bound = h.term, h.bound
	s.last, s.commands = h.last, h.commands
	s.format, s.at, s.idles, s.forgotten = h.format, h.at, h.idles, h.forgotten
	s.changes.start = s.commands // what changed before is not known
	if err := s.reindex(); err != nil {
		return nil, err
	}
	return s, s.checkTables()
}

// readChunk reads one chunk's body into body and returns its kind, or io.EOF at
// the end of the image.
func readChunk(rd io.Reader, body *bytes.Buffer) (kind byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(rd, head[:]); err != nil {
		if err == io.EOF {
			return 0, err
		}
		return 0, cut(err)
	}
	size := int64(binary.LittleEndian.Uint32(head[1:]))
	if size > maxChunk {
		return 0, fmt.Errorf("chunk of %d bytes exceeds %d", size, maxChunk)
	}
	// CopyN grows the buffer by what arrives, not by what is claimed.
	body.Reset()
	if _, err := io.CopyN(body, rd, size); err != nil {
		return 0, cut(err)
	}
	var sum [4]byte
	if _, err := io.ReadFull(rd, sum[:]); err != nil {
		return 0, cut(err)
	}
	if binary.LittleEndian.Uint32(sum[:]) != checksum(head[0], body.Bytes()) {
		return 0, errors.New("checksum does not match")
	}
	return head[0], nil
}

// cut makes an end in the middle an error that cannot be taken for the end.
func cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readShard reads a shard's elements, which must ascend and belong there.
func readShard[K comparable, V any](r *reader, t *table[K, V], shard byte, compare func(a, b K) int, element func() (K, V)) error {
	n := r.count(len(r.b))
	if n == 0 {
		r.fail(errors.New("empty shard"))
	}
	// An element takes far more than eight bytes, and its place in the map not
	// much more than that: the room made ahead is in proportion to what is read.
	t.shards[shard].m = make(map[K]V, min(n, len(r.b)/8))
	var last K
	for i := range n {
		k, v := element()
		if r.err != nil {
			return r.err
		}
		if t.hash(k) != shard {
			return errors.New("element in a foreign shard")
		}
		if i > 0 && compare(last, k) >= 0 {
			return errors.New("element out of order")
		}
		t.set(k, v)
		last = k
	}
	return r.end()
}
