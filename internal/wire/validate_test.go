package wire

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// A false length in a message costs no memory either.
func TestMessageCostsNoMoreThanItsBytes(t *testing.T) {
	elements := func(code byte, n uint32) []byte { // {"Keys": an array of length n without elements}
		b := append([]byte{0x81, 0xa4}, "Keys"...)
		return binary.BigEndian.AppendUint32(append(b, code), n)
	}
	nested := func(code byte, depth int) []byte {
		b := append([]byte{0x81, 0xa4}, "More"...)
		return append(append(b, bytes.Repeat([]byte{code}, depth)...), 0xc0)
	}
	for name, b := range map[string][]byte{
		"an array of 3 billion":      elements(0xdd, 3<<30),
		"an array of a million nils": append(elements(0xdd, 1<<20-16), bytes.Repeat([]byte{0xc0}, 1<<20-16)...),
		"a map of 3 billion":         elements(0xdf, 3<<30),
		"a string of 3 GiB":          elements(0xdb, 3<<30),
		"a million nested arrays":    nested(0x91, 1<<20-16),
		"an extension":               append(elements(0xd6, 0), 0),
		"a reserved code":            append(elements(0xc1, 0), 0),
		"a second message":           {0x80, 0x80},
		"nothing":                    {},
	} {
		var err error
		cost := cost(func() { err = Unmarshal(b, new(replica.Scanned)) })
		if err == nil || cost > 64<<10 {
			t.Errorf("%s: %v, and cost %d bytes", name, err, cost)
		}
	}
	// The largest real messages are accepted.
	for _, m := range []any{
		&AttachRequest{Keys: make([]machine.SessionKey, MaxAttach)},
		&replica.Scanned{Keys: slices.Repeat([]machine.Status{filledStatus}, 1024)},
		&Hint{Leader: strings.Repeat("x", 70_000), Addr: strings.Repeat("x", 300)},
	} {
		if got, err := decodeLike(m, Marshal(m)); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%T: %v", m, err)
		}
	}
}
