package machine

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
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
// with the element that reaches flushAt. The encoding leaves no choice, so equal States have
// equal images.
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

// maxChunk bounds a chunk's body, which is at most flushAt and one element long. The
// largest element is the record of a key with MaxWaiters waiters, each with the largest
// meta and lineage.
const maxChunk = flushAt + 1<<27

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
	size := len(c.out) - start
	if size > maxChunk {
		c.err = fmt.Errorf("machine: snapshot: chunk of %d bytes exceeds %d", size, maxChunk)
		return
	}
	binary.LittleEndian.PutUint32(c.out[start-4:], uint32(size))
	c.out = binary.LittleEndian.AppendUint32(c.out, checksum(kind, c.out[start:]))
	if len(c.out) >= flushAt {
		c.flush()
	}
}

func (c *chunkWriter) flush() {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(c.out)
	c.written += int64(n)
	c.err = err
	c.out = c.out[:0]
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
