package machine

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"
)

// SnapshotVersion is the version of images. A later version adds to the encoding,
// and goes on reading this version.
const SnapshotVersion = 1

// An image is the magic, a version byte, and chunks. A chunk is its kind, the length
// of the body in four bytes, the body, and the CRC32C of kind and body. The first
// chunk has the header. Then come sessions, sets, answers, keys and groups, with chunks
// for each shard that is not empty and the elements in ascending order. A chunk of elements
// is the shard's number, the number of elements in four bytes, and the elements; it ends
// with the element that reaches flushAt. The body of a chunk is one piece, unless it is larger
// than maxPiece: then it is cut into pieces of that size, each with the kind, its own length
// and its own CRC32C, and all but the last with the bit pieceFollows in the kind. So Restore
// has checked each byte before it has read a piece more, whatever a chunk claims. The
// encoding leaves no choice, so equal States have equal images.
const magic = "wardmote"

const (
	chunkHeader   = 'h'
	chunkSessions = 's'
	chunkSets     = 't'
	chunkAnswers  = 'a'
	chunkKeys     = 'k'
	chunkGroups   = 'g'

	chunkOrder = "hstakg"
)

// maxPiece bounds a piece. A chunk's body is at most flushAt and one element long, so of all
// elements only the record of a key with thousands of waiters takes several pieces.
const (
	maxPiece     = 2 << 20
	pieceFollows = 0x80
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Image is a State at one moment. An image does not change while the State goes on
// applying commands, and is safe for use by any goroutine.
type Image struct {
	header   header
	keys     recordTable
	sessions table[SessionID, *session]
	sets     table[requestID, []string]
	answers  table[requestID, *answer]
	groups   table[string, *group]
}

// Snapshot takes an image, in constant time for any size of the table. The State
// pays later: a part of the table is cloned before its first change.
func (s *State) Snapshot() *Image {
	return &Image{
		header:   s.header,
		keys:     s.keys.freeze(),
		sessions: s.sessions.freeze(),
		sets:     s.sets.freeze(),
		answers:  s.answers.freeze(),
		groups:   s.groups.freeze(),
	}
}

// Digest returns a hash of the state, equal for States with the same commands. A
// digest costs as much as writing an image.
func (s *State) Digest() [sha256.Size]byte { return s.Snapshot().Digest() }

// Digest returns a hash of the image's bytes.
func (i *Image) Digest() (d [sha256.Size]byte) {
	h := sha256.New()
	_, _ = i.WriteTo(h) // a hash does not fail
	h.Sum(d[:0])
	return d
}

// WriteTo writes the image. After an error, w has received a part that Restore
// refuses.
func (i *Image) WriteTo(w io.Writer) (int64, error) {
	c := &chunkWriter{w: w, coder: coder{out: append([]byte(magic), SnapshotVersion)}}
	c.add(chunkHeader, func() {
		i.header.code(&c.coder)
		n := sizes{uint64(i.sessions.n), uint64(i.sets.n), uint64(i.answers.n), uint64(i.keys.n), uint64(i.groups.n)}
		n.code(&c.coder)
	})
	writeShards(c, chunkSessions, &i.sessions, compareSessions, codeSession)
	writeShards(c, chunkSets, &i.sets, compareRequests, codeSet)
	writeShards(c, chunkAnswers, &i.answers, compareRequests, codeAnswer)
	i.writeRecords(c)
	writeShards(c, chunkGroups, &i.groups, strings.Compare, codeGroup)
	c.flush()
	return c.written, c.err
}

// sizes are the numbers of elements in an image's tables.
type sizes struct{ sessions, sets, answers, keys, groups uint64 }

func (n *sizes) code(c *coder) { c.numbers(&n.sessions, &n.sets, &n.answers, &n.keys, &n.groups) }

// chunkWriter encodes chunks and writes them a megabyte at a time.
type chunkWriter struct {
	coder
	w       io.Writer
	written int64
	err     error
}

const flushAt = 1 << 20

func (c *chunkWriter) add(kind byte, codeBody func()) {
	if c.err != nil {
		return
	}
	c.out = append(c.out, kind, 0, 0, 0, 0)
	start := len(c.out)
	codeBody()
	if len(c.out)-start > maxPiece {
		c.addPieces(kind, start)
		return
	}
	binary.LittleEndian.PutUint32(c.out[start-4:], uint32(len(c.out)-start))
	c.out = binary.LittleEndian.AppendUint32(c.out, checksum(kind, c.out[start:]))
	if len(c.out) >= flushAt {
		c.flush()
	}
}

// addPieces writes the body at start, behind the room for the head of one piece, in pieces.
func (c *chunkWriter) addPieces(kind byte, start int) {
	body := c.out[start:]
	c.write(c.out[:start-5])
	for len(body) > 0 {
		piece, label := body[:min(len(body), maxPiece)], kind
		if body = body[len(piece):]; len(body) > 0 {
			label |= pieceFollows
		}
		c.write(binary.LittleEndian.AppendUint32([]byte{label}, uint32(len(piece))))
		c.write(piece)
		c.write(binary.LittleEndian.AppendUint32(nil, checksum(label, piece)))
	}
	c.out = c.out[:0]
}

func (c *chunkWriter) flush() {
	c.write(c.out)
	c.out = c.out[:0]
}

func (c *chunkWriter) write(b []byte) {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(b)
	c.written += int64(n)
	c.err = err
}

func checksum(kind byte, body []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte{kind}, castagnoli), castagnoli, body)
}

// writeShards writes a chunk for each shard of a table that is not empty.
func writeShards[K comparable, V any](c *chunkWriter, kind byte, t *table[K, V], compare func(a, b K) int, code func(*coder, *K, *V)) {
	var order []K
	for i := range t.shards {
		m := t.shards[i].m
		if len(m) == 0 {
			continue
		}
		order = slices.AppendSeq(order[:0], maps.Keys(m))
		slices.SortFunc(order, compare)
		var v V
		c.addShard(kind, i, len(order), func(j int) {
			v = m[order[j]]
			code(&c.coder, &order[j], &v)
		})
	}
}

// addShard adds the chunks of a shard with n elements.
func (c *chunkWriter) addShard(kind byte, shard, n int, code func(i int)) {
	for next := 0; next < n && c.err == nil; {
		c.add(kind, func() {
			start, first := len(c.out), next
			c.out = append(c.out, byte(shard), 0, 0, 0, 0)
			for next < n && len(c.out)-start < flushAt {
				code(next)
				next++
			}
			binary.LittleEndian.PutUint32(c.out[start+1:], uint32(next-first))
		})
	}
}

// writeRecords is writeShards of the keys.
func (i *Image) writeRecords(c *chunkWriter) {
	var order []*record
	for at := range i.keys.shards {
		if order = i.keys.sorted(at, order[:0]); len(order) == 0 {
			continue
		}
		c.addShard(chunkKeys, at, len(order), func(j int) { codeRecord(&c.coder, order[j]) })
	}
}

func compareSessions(a, b SessionID) int { return bytes.Compare(a[:], b[:]) }

func compareRequests(a, b requestID) int {
	return cmp.Or(compareSessions(a.session, b.session), cmp.Compare(a.seq, b.seq))
}
