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

// SnapshotVersion is the version of images that WriteTo writes.
const SnapshotVersion = 1

// An image is the magic, a version byte, and chunks. A chunk is its kind, the
// length of its body in four bytes, the body, and the CRC32C of kind and body.
// The first holds the header; then come sessions, refusals and keys, a chunk
// for each shard that has any, with elements in ascending order. Nothing is
// left to choice, so equal States have equal images.
const magic = "wardmote"

const (
	chunkHeader   = 'h'
	chunkSessions = 's'
	chunkRefusals = 'r'
	chunkKeys     = 'k'
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Image is the state at one moment. It stays as it is while the State goes on,
// and may be used from any goroutine.
type Image struct {
	header   header
	keys     frozen[string, *record]
	sessions frozen[SessionID, *session]
	refusals frozen[request, *Outcome]
}

type header struct {
	cluster                  ClusterID
	founded, lifted          bool
	term, bound              uint64
	last                     Token
	commands                 uint64
	sessions, refusals, keys uint64 // how many
}

// Snapshot takes an image, in a time that does not depend on the table's size.
// The State pays for it later, by cloning what it changes first.
func (s *State) Snapshot() *Image {
	return &Image{
		header: header{
			cluster:  s.cluster,
			founded:  s.founded,
			lifted:   s.lifted,
			term:     s.term,
			bound:    s.bound,
			last:     s.last,
			commands: s.commands,
			sessions: uint64(s.sessions.n),
			refusals: uint64(s.refusals.n),
			keys:     uint64(s.keys.n),
		},
		keys:     s.keys.freeze(),
		sessions: s.sessions.freeze(),
		refusals: s.refusals.freeze(),
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
	eachShard(c, chunkRefusals, &i.refusals, compareRequests, func(b []byte, r request, out *Outcome) []byte {
		b = append(b, r.session[:]...)
		b = binary.AppendUvarint(b, r.seq)
		return AppendOutcome(b, *out)
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
	for _, v := range []uint64{h.term, h.bound, uint64(h.last), h.commands, h.sessions, h.refusals, h.keys} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func (h *header) read(r *reader) {
	h.cluster = r.id()
	h.founded = r.flag()
	h.lifted = r.flag()
	h.term = r.uvarint()
	h.bound = r.uvarint()
	h.last = Token(r.uvarint())
	h.commands = r.uvarint()
	h.sessions = r.uvarint()
	h.refusals = r.uvarint()
	h.keys = r.uvarint()
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

func (k *record) append(b []byte, key string) []byte {
	b = appendBytes(b, key)
	b = binary.AppendUvarint(b, k.version)
	g := &k.holder
	b = binary.AppendUvarint(b, uint64(g.token))
	if k.held() {
		b = append(b, g.session[:]...)
		b = binary.AppendUvarint(b, g.seq)
		b = appendBytes(b, g.meta)
		b = appendFlag(b, g.unseen)
		b = appendFlag(b, g.waited)
	}
	b = binary.AppendUvarint(b, uint64(len(k.queue)))
	for i := range k.queue {
		w := &k.queue[i]
		b = append(b, w.session[:]...)
		b = binary.AppendUvarint(b, w.seq)
		b = binary.AppendUvarint(b, w.since)
		b = appendBytes(b, w.meta)
	}
	return b
}

func (k *record) read(r *reader) (key string) {
	key = r.string()
	k.version = r.uvarint()
	k.holder.token = Token(r.uvarint())
	if g := &k.holder; k.held() {
		g.session = r.id()
		g.seq = r.uvarint()
		g.meta = r.string()
		g.unseen = r.flag()
		g.waited = r.flag()
	}
	if n := r.count(MaxWaiters); n > 0 {
		// A waiter takes 19 bytes at least: the claim must be covered.
		if n > len(r.b)/19 {
			r.fail(errShort)
			return key
		}
		k.queue = make([]waiter, n)
		for i := range k.queue {
			k.queue[i] = waiter{session: r.id(), seq: r.uvarint(), since: r.uvarint(), meta: r.string()}
		}
	}
	return key
}

// Restore reads an image, to the end of rd, into a new State. It refuses
// another version, a damaged or cut image, and one that breaks an invariant;
// what it allocates is in proportion to what it has read.
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
	if v := head[len(magic)]; v != SnapshotVersion {
		return nil, fmt.Errorf("version %d, want %d", v, SnapshotVersion)
	}

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
			h.read(r)
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
		case chunkRefusals:
			err = readShard(r, &s.refusals, n, compareRequests, func() (request, *Outcome) {
				q := request{session: r.id(), seq: r.uvarint()}
				out := r.outcome()
				return q, &out
			})
		case chunkKeys:
			err = readShard(r, &s.keys, n, strings.Compare, func() (string, *record) {
				v := &record{}
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
	if h.sessions != uint64(s.sessions.n) || h.refusals != uint64(s.refusals.n) || h.keys != uint64(s.keys.n) {
		return nil, fmt.Errorf("header counts %d sessions, %d refusals and %d keys; read %d, %d and %d",
			h.sessions, h.refusals, h.keys, s.sessions.n, s.refusals.n, s.keys.n)
	}
	s.cluster = h.cluster
	s.founded, s.lifted = h.founded, h.lifted
	s.term, s.bound = h.term, h.bound
	s.last, s.commands = h.last, h.commands
	if err := s.reindex(); err != nil {
		return nil, err
	}
	return s, s.checkTables()
}

// order gives chunks their places; -1 for an unknown kind, which has none.
func order(kind byte) int {
	return bytes.IndexByte([]byte{chunkHeader, chunkSessions, chunkRefusals, chunkKeys}, kind)
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
