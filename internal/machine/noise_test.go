package machine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// mostNoise bounds the memory that an image takes until its noise is found: some pieces, and
// the room for the longest list of a record.
const mostNoise = 16 << 20

// pieces appends a body of a chunk in full pieces with true checksums, which further ones
// follow.
func pieces(image []byte, kind byte, body []byte) []byte {
	kind |= pieceFollows
	for piece := range slices.Chunk(body, maxPiece) {
		piece = append(piece, make([]byte, maxPiece-len(piece))...)
		image = binary.LittleEndian.AppendUint32(append(image, kind), uint32(len(piece)))
		image = append(image, piece...)
		image = binary.LittleEndian.AppendUint32(image, checksum(kind, piece))
	}
	return image
}

// noise reads bytes without meaning and without end.
type noise struct{ read int64 }

func (n *noise) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(n.read+int64(i)) * 167
	}
	n.read += int64(len(b))
	return len(b), nil
}

// Noise behind a sound header is found with the first piece that is not sound, whatever
// lengths and counts are claimed, with true checksums too: an image costs a receiver the
// memory of its sound elements, and of a few pieces.
func TestNoiseBehindASoundHeaderTakesLittle(t *testing.T) {
	sound := image(founded())
	chunk := func(kind byte, size uint32) []byte {
		return binary.LittleEndian.AppendUint32(append(bytes.Clone(sound), kind), size)
	}
	static := make([]byte, 3*maxPiece)
	(&noise{}).Read(static)
	var record coder // with as many waiters as there can be, and noise in their place
	record.texts(new("k"))
	record.numbers(new(uint64))
	record.out = binary.AppendUvarint(append(record.out, recordQueue), MaxWaiters+1)
	of := func(body []byte) []byte {
		return append([]byte{hashKey("k"), 1, 0, 0, 0}, body...)
	}
	for name, begin := range map[string][]byte{
		"no chunk":                    bytes.Clone(sound),
		"the largest chunk":           chunk(chunkKeys, 129<<20),
		"the largest piece":           chunk(chunkKeys|pieceFollows, maxPiece),
		"the largest count":           chunk(chunkSessions, 1<<32-1),
		"pieces with true checksums":  pieces(bytes.Clone(sound), chunkKeys, static),
		"sessions with checksums":     pieces(bytes.Clone(sound), chunkSessions, static),
		"a header with checksums":     pieces(append([]byte(magic), SnapshotVersion), chunkHeader, static),
		"a record with many waiters":  pieces(bytes.Clone(sound), chunkKeys, of(append(bytes.Clone(record.out), static...))),
		"a record whose waiters fail": pieces(bytes.Clone(sound), chunkKeys, of(append(bytes.Clone(record.out), bytes.Repeat([]byte{0xff}, 3*maxPiece)...))),
	} {
		rest := &noise{}
		taken := allocated(func() {
			if _, err := Restore(io.MultiReader(bytes.NewReader(begin), io.LimitReader(rest, 256<<20))); err == nil {
				t.Errorf("%s: accepted", name)
			}
		})
		t.Logf("%s: %d KiB allocated, %d KiB of noise read", name, taken>>10, rest.read>>10)
		if taken > mostNoise || rest.read > 2*maxPiece {
			t.Errorf("%s: more than %d KiB allocated, or %d KiB of noise read", name, mostNoise>>10, 2*maxPiece>>10)
		}
	}
}

// thronged is a table with a key whose record is several pieces long: of its holders, and of its
// waiters.
func thronged(t *testing.T) *State {
	s := founded()
	meta := Spec{Mode: Shared, Meta: strings.Repeat("m", MaxMeta)}
	for i := range 1200 {
		id := SessionID{1, byte(i), byte(i >> 8)}
		apply(t, s, Open{Session: id, Client: "c", Node: fmt.Sprint("n", i%2), TTL: 3000}, OK)
		apply(t, s, Acquire{Session: id, Seq: 1, Key: "crowd", Spec: meta}, Granted)
	}
	apply(t, s, Open{Session: session16("w"), Client: "w", Node: "w", TTL: 3000}, OK)
	for i := range 1200 {
		exclusive := Spec{Meta: fmt.Sprint(strings.Repeat("w", MaxMeta-5), i)}
		apply(t, s, Acquire{Session: session16("w"), Seq: uint64(i + 1), Key: "crowd", Spec: exclusive}, Queued)
	}
	return s
}

// A record of several pieces is restored as it was, and pieces that are damaged, lost, doubled,
// swapped, or of another chunk are refused.
func TestARecordOfSeveralPieces(t *testing.T) {
	s := thronged(t)
	good := image(s)
	again, err := Restore(bytes.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != s.Digest() {
		t.Error("the restored table differs")
	}
	if err := again.Check(); err != nil {
		t.Error(err)
	}
	var at []int // of the pieces of the record
	for i := len(magic) + 1; i < len(good); {
		if good[i]&^pieceFollows == chunkKeys {
			at = append(at, i)
		}
		i += 5 + int(binary.LittleEndian.Uint32(good[i+1:])) + 4
	}
	at = append(at, len(good))
	if len(at) < 5 || len(good) < 3*maxPiece {
		t.Fatalf("an image of %d bytes has %d pieces of a record", len(good), len(at)-1)
	}
	piece := func(i int) []byte { return good[at[i]:at[i+1]] }
	last := len(at) - 2
	head, tail := good[:at[0]], slices.Concat(good[at[0]:])
	relabelled := func(i int, kind byte) []byte {
		p := bytes.Clone(piece(i))
		p[0] = kind
		body := p[5 : len(p)-4]
		return binary.LittleEndian.AppendUint32(p[:len(p)-4], checksum(kind, body))
	}
	for name, bad := range map[string][]byte{
		"lost":              slices.Concat(head, piece(0), good[at[2]:]),
		"doubled":           slices.Concat(head, piece(0), piece(0), good[at[1]:]),
		"swapped":           slices.Concat(head, piece(1), piece(0), good[at[2]:]),
		"the last one lost": slices.Concat(head, good[at[0]:at[last]]),
		"one more":          slices.Concat(head, tail[:at[last]-at[0]], relabelled(last-1, chunkKeys|pieceFollows), piece(last)),
		"of another chunk":  slices.Concat(head, piece(0), relabelled(1, chunkGroups|pieceFollows), good[at[2]:]),
		"ended too early":   slices.Concat(head, piece(0), relabelled(1, chunkKeys), good[at[2]:]),
		"not full":          slices.Concat(head, piece(0), relabelled(last, chunkKeys|pieceFollows), good[at[1]:]),
	} {
		if _, err := Restore(bytes.NewReader(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, i := range []int{1, last} {
		for _, n := range []int{at[i], at[i] + 1, at[i] + 5, at[i+1] - 1} {
			bad := bytes.Clone(good)
			bad[n] ^= 1
			if _, err := Restore(bytes.NewReader(bad)); err == nil {
				t.Errorf("an image with a bit of byte %d flipped is accepted", n)
			}
			if _, err := Restore(bytes.NewReader(good[:n])); err == nil && n > at[0] {
				t.Errorf("an image cut at %d is accepted", n)
			}
		}
	}
}

// The largest session does not fit into what is left of a piece: its spans reach into the next
// one.
func TestASessionOfTwoPieces(t *testing.T) {
	s := founded()
	for i := range 3 {
		id := SessionID{byte(i + 1)}
		apply(t, s, Open{Session: id, Client: "c", Node: "n", TTL: 3000}, OK)
		o := s.editSession(s.sessions.get(id))
		for n := range uint64(MaxGaps) {
			at := 1<<63 + 2*n
			o.spent = append(o.spent, span{at, at})
		}
	}
	good := image(s)
	if good[len(image(founded()))] == 0 || len(good) < 3*20*MaxGaps {
		t.Fatalf("an image of %d bytes", len(good))
	}
	again, err := Restore(bytes.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != s.Digest() {
		t.Error("the restored table differs")
	}
}
