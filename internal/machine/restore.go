package machine

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Restore reads an image, to the end of rd, into a new State. Restore refuses an
// unknown version, a damaged or cut image, and an image with a broken invariant.
// Memory is allocated in proportion to the elements read, which are sound, and for two pieces
// of bytes that may be noise. Two invariants are not
// verified, I4 and I7, that every waiter has to wait and that every wait can end:
// this would cost more than to restore.
func Restore(rd io.Reader) (*State, error) {
	r := restorer{rd: bufio.NewReaderSize(rd, 1<<16), s: New()}
	if err := r.restore(); err != nil {
		return nil, fmt.Errorf("machine: snapshot refused: %w", err)
	}
	return r.s, nil
}

// restorer reads the chunks of an image.
type restorer struct {
	rd          io.Reader
	body        []byte // of the chunk, from the last refill to the end of the last piece
	piece       byte   // the kind of the last piece
	s           *State
	claimed     sizes
	kind, shard byte // of the last chunk
	last        any  // key of the last element
}

func (r *restorer) restore() error {
	var head [len(magic) + 1]byte
	if _, err := io.ReadFull(r.rd, head[:]); err != nil {
		return noEnd(err)
	}
	if string(head[:len(magic)]) != magic {
		return errors.New("not a snapshot of a lock table")
	}
	if version := head[len(magic)]; version != SnapshotVersion {
		return fmt.Errorf("version %d, want %d", version, SnapshotVersion)
	}
	for {
		kind, err := r.readChunk()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if (kind == chunkHeader) != (r.kind == 0) {
			return errors.New("header not in its place")
		}
		if kind == chunkHeader {
			err = r.readHeader()
		} else {
			err = r.readTable(kind)
		}
		if err != nil {
			return err
		}
	}
	if r.kind == 0 {
		return io.ErrUnexpectedEOF
	}
	s := r.s
	found := sizes{uint64(s.sessions.n), uint64(s.sets.n), uint64(s.answers.n), uint64(s.keys.n), uint64(s.groups.n)}
	if r.claimed != found {
		return fmt.Errorf("header counts sessions, sets, answers, keys and groups as %d; read %d", r.claimed, found)
	}
	s.changes.start = s.commands // earlier changes are not known
	if err := s.derive(); err != nil {
		return err
	}
	return checker{s}.checkTables()
}

func (r *restorer) readHeader() error {
	c := r.decoder()
	r.s.header.code(&c)
	r.claimed.code(&c)
	r.kind = chunkHeader
	if err := r.finish(&c); err != nil {
		return err
	}
	return checker{r.s}.checkHeader() // before anything is derived: a request has no room for a token above MaxToken
}

// decoder returns a decoder of the chunk whose first piece was read.
func (r *restorer) decoder() coder {
	c := newDecoder(r.body)
	if r.follows() {
		c.refill = r.refill
	}
	return c
}

// follows reports whether the chunk has a further piece.
func (r *restorer) follows() bool { return r.piece&pieceFollows != 0 }

// refill reads a further piece of the chunk behind the bytes that are left of in. Nothing
// decoded refers to the bytes before.
func (r *restorer) refill(in *reader) {
	if !r.follows() || in.err != nil {
		return
	}
	kind := r.piece &^ pieceFollows
	r.body = r.body[:copy(r.body, in.b)]
	if err := r.readPiece(); err != nil {
		in.fail(noEnd(err))
		return
	}
	if r.piece&^pieceFollows != kind {
		in.fail(errors.New("piece of another chunk"))
		return
	}
	in.b = r.body
}

// finish returns the decoder's first error, or an error if bytes of the chunk are left.
func (r *restorer) finish(c *coder) error {
	if err := c.in.finish(); err != nil {
		return err
	}
	if r.follows() {
		return errTrailing
	}
	return nil
}

// readTable reads a chunk of a shard.
func (r *restorer) readTable(kind byte) error {
	s, c := r.s, r.decoder()
	shard := c.in.byte()
	order := strings.IndexByte(chunkOrder, kind) - strings.IndexByte(chunkOrder, r.kind)
	if order < 0 || order == 0 && shard < r.shard {
		return errors.New("chunk out of order")
	}
	if order != 0 || shard != r.shard {
		r.last = nil // the shard's first chunk
	}
	r.kind, r.shard = kind, shard
	switch kind {
	case chunkSessions:
		return readShard(r, &c, &s.sessions, compareSessions, codeSession)
	case chunkSets:
		return readShard(r, &c, &s.sets, compareRequests, codeSet)
	case chunkAnswers:
		return readShard(r, &c, &s.answers, compareRequests, codeAnswer)
	case chunkGroups:
		return readShard(r, &c, &s.groups, strings.Compare, codeGroup)
	}
	return r.readRecords(&c)
}

// count reads the number of a chunk's elements, and estimates how many there really are:
// few elements take less than eight bytes.
func (r *restorer) count(c *coder) (n, likely int) {
	if b := c.in.take(4); len(b) == 4 {
		n = int(binary.LittleEndian.Uint32(b))
	}
	if n == 0 || n > len(c.in.b) {
		c.in.fail(errors.New("number of elements does not match the chunk"))
		return 0, 0
	}
	return n, min(n, len(c.in.b)/8)
}

// readChunk reads a chunk's first piece and returns the chunk's kind, or io.EOF at the end of
// the image.
func (r *restorer) readChunk() (kind byte, err error) {
	r.body = r.body[:0]
	if err := r.readPiece(); err != nil {
		return 0, err
	}
	return r.piece &^ pieceFollows, nil
}

// firstPart is the part of a piece for which there is room before any of it has come.
const firstPart = 64 << 10

// readPiece appends a piece to the body, or returns io.EOF at the end of the image.
func (r *restorer) readPiece() error {
	var head [5]byte
	if _, err := io.ReadFull(r.rd, head[:]); err != nil {
		return err
	}
	r.piece = head[0]
	size := int(binary.LittleEndian.Uint32(head[1:]))
	if size <= 0 || size > maxPiece || r.follows() && size < maxPiece {
		return fmt.Errorf("piece of %d bytes, of a chunk cut at %d", size, maxPiece)
	}
	before := len(r.body)
	// The body grows for a part of the claimed size, and for the rest when that part has come.
	for _, n := range []int{min(size, firstPart), size - min(size, firstPart)} {
		at := len(r.body)
		r.body = slices.Grow(r.body, n)[:at+n]
		if _, err := io.ReadFull(r.rd, r.body[at:]); err != nil {
			return noEnd(err)
		}
	}
	var sum [4]byte
	if _, err := io.ReadFull(r.rd, sum[:]); err != nil {
		return noEnd(err)
	}
	if binary.LittleEndian.Uint32(sum[:]) != checksum(head[0], r.body[before:]) {
		return errors.New("checksum does not match")
	}
	return nil
}

// noEnd turns io.EOF in the middle of an image into another error, so that nobody
// takes the middle for the end.
func noEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readShard reads a chunk's elements, which must ascend and belong to the shard.
func readShard[K comparable, V any](r *restorer, c *coder, t *table[K, V], compare func(a, b K) int, code func(*coder, *K, *V)) error {
	n, likely := r.count(c)
	if t.shards[r.shard].m == nil {
		// An entry of the map takes not many more bytes than an element.
		t.shards[r.shard].m = make(map[K]V, likely)
	}
	last, follows := r.last.(K)
	for range n {
		var k K
		var v V
		c.top()
		code(c, &k, &v)
		if c.in.err != nil {
			return c.in.err
		}
		if t.hash(k) != r.shard {
			return errors.New("element in a foreign shard")
		}
		if follows && compare(last, k) >= 0 {
			return errors.New("element out of order")
		}
		t.set(k, v)
		last, follows = k, true
	}
	r.last = last
	return r.finish(c)
}

// readRecords is readShard of the keys. Each record is verified while the processor has it at
// hand: to visit a million records once more takes a tenth of a second.
func (r *restorer) readRecords(c *coder) error {
	s, shard := r.s, r.shard
	t := &s.keys.recordTable
	n, likely := r.count(c)
	last, follows := r.last.(string)
	if !follows {
		// A place in the shard takes not many more bytes than a record in the image.
		places := likely*13/10/shardParts + 4
		for i := range t.shards[shard] {
			sh := &recordShard{epoch: t.epoch}
			sh.resize(places)
			t.shards[shard][i] = sh
		}
	}
	for range n {
		k := new(record)
		c.top()
		codeRecord(c, k)
		if c.in.err != nil {
			return c.in.err
		}
		if hashKey(k.key) != shard {
			return errors.New("element in a foreign shard")
		}
		if follows && last >= k.key {
			return errors.New("element out of order")
		}
		if err := (checker{s}).checkRecord(k.key, k); err != nil {
			return err
		}
		tag := tagOf(k.key)
		t.shards[shard][tag%shardParts].add(k, tag)
		t.n++
		last, follows = k.key, true
	}
	r.last = last
	return r.finish(c)
}
