package machine

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
)

// SnapshotVersion is the version of images. A later version adds to the encoding,
// and goes on reading this version.
const SnapshotVersion = 1

// An image is the magic, a version byte, and chunks. A chunk is its kind, the length
// of the body in four bytes, the body, and the CRC32C of kind and body. The first
// chunk has the header. Then come sessions, sets, answers and keys, with a chunk for
// each shard that is not empty and the elements in ascending order. The encoding
// leaves no choice, so equal States have equal images.
const magic = "wardmote"

const (
	chunkHeader   = 'h'
	chunkSessions = 's'
	chunkSets     = 't'
	chunkAnswers  = 'a'
	chunkKeys     = 'k'

	chunkOrder = "hstak"
)

// maxChunk bounds a chunk's body: one shard, 1/256 of a table.
const maxChunk = 1 << 30

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Image is a State at one moment. An image does not change while the State goes on
// applying commands, and is safe for use by any goroutine.
type Image struct {
	header   header
	keys     frozen[string, *record]
	sessions frozen[SessionID, *session]
	sets     frozen[requestID, []string]
	answers  frozen[requestID, *answer]
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
	c := &chunkWriter{w: w, buf: append([]byte(magic), SnapshotVersion)}
	c.add(chunkHeader, i.appendHeader)
	writeShards(c, chunkSessions, &i.sessions, compareSessions, func(b []byte, _ SessionID, o *session) []byte {
		return o.append(b)
	})
	writeShards(c, chunkSets, &i.sets, compareRequests, func(b []byte, q requestID, keys []string) []byte {
		return appendStrings(q.append(b), keys)
	})
	writeShards(c, chunkAnswers, &i.answers, compareRequests, func(b []byte, q requestID, a *answer) []byte {
		return a.append(q.append(b))
	})
	writeShards(c, chunkKeys, &i.keys, strings.Compare, func(b []byte, key string, r *record) []byte {
		return r.append(b, key)
	})
	c.flush()
	return c.written, c.err
}

// sizes are the numbers of elements in an image's tables.
type sizes struct{ sessions, sets, answers, keys uint64 }

func (i *Image) appendHeader(b []byte) []byte {
	return appendUvarints(i.header.append(b),
		uint64(i.sessions.n), uint64(i.sets.n), uint64(i.answers.n), uint64(i.keys.n))
}

// chunkWriter collects chunks and writes them a megabyte at a time.
type chunkWriter struct {
	w       io.Writer
	buf     []byte
	written int64
	err     error
}

const flushAt = 1 << 20

func (c *chunkWriter) add(kind byte, body func([]byte) []byte) {
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

func (c *chunkWriter) flush() {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(c.buf)
	c.written += int64(n)
	c.err = err
	c.buf = c.buf[:0]
}

func checksum(kind byte, body []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte{kind}, castagnoli), castagnoli, body)
}

// writeShards writes a chunk for each shard of a table that is not empty.
func writeShards[K comparable, V any](c *chunkWriter, kind byte, f *frozen[K, V], compare func(a, b K) int, element func([]byte, K, V) []byte) {
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

func compareRequests(a, b requestID) int {
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
