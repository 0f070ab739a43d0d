package machine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// chunksOf returns the sizes of the chunks of an image.
func chunksOf(t *testing.T, image []byte) (sizes []int) {
	for b := image[len(magic)+1:]; len(b) > 0; {
		size := int(binary.LittleEndian.Uint32(b[1:]))
		sizes = append(sizes, size)
		b = b[1+4+size+4:]
	}
	return sizes
}

// keysIn returns n keys that are all in one shard of the table.
func keysIn(shard uint8, n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprintf("%06d", i); hashKey(key) == shard {
			keys = append(keys, key)
		}
	}
	return keys
}

// A member that has all its keys in one shard, each with the largest meta, makes neither a
// chunk too large to write nor one too large to read.
func TestAFullShardHasSmallChunks(t *testing.T) {
	s := founded()
	keys := keysIn(7, 3000)
	for i := 0; i < len(keys); i += 1000 {
		id := session16(fmt.Sprint(i))
		apply(t, s, Open{Session: id, Client: "c", Node: "n", TTL: 3000}, OK)
		apply(t, s, Acquire{Session: id, Seq: 1, Keys: keys[i : i+1000], Spec: Spec{Meta: strings.Repeat("m", MaxMeta)}}, Granted)
	}
	var image bytes.Buffer
	if _, err := s.Snapshot().WriteTo(&image); err != nil {
		t.Fatal(err)
	}
	largest := 0
	for _, size := range chunksOf(t, image.Bytes()) {
		largest = max(largest, size)
	}
	if limit := flushAt + 2*MaxMeta; largest > limit || image.Len() < 4*limit {
		t.Errorf("an image of %d bytes has a chunk of %d, more than %d", image.Len(), largest, limit)
	}
	again, err := Restore(&image)
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != s.Digest() {
		t.Error("the restored table differs")
	}
	if err := again.Check(); err != nil {
		t.Error(err)
	}
}

// Elements go on in ascending order from one chunk of a shard to the next.
func TestChunksOutOfOrderAreRefused(t *testing.T) {
	s := founded()
	id := SessionID{1}
	apply(t, s, Open{Session: id, Client: "c", Node: "n", TTL: 3000}, OK)
	apply(t, s, Acquire{Session: id, Seq: 1, Keys: keysIn(7, 600), Spec: Spec{Meta: strings.Repeat("m", MaxMeta)}}, Granted)
	var image bytes.Buffer
	_, _ = s.Snapshot().WriteTo(&image)
	b := image.Bytes()
	var at, size []int // of the chunks of keys
	for i := len(magic) + 1; i < len(b); {
		n := 1 + 4 + int(binary.LittleEndian.Uint32(b[i+1:])) + 4
		if b[i] == chunkKeys {
			at, size = append(at, i), append(size, n)
		}
		i += n
	}
	if len(at) != 3 {
		t.Fatalf("%d chunks of keys", len(at))
	}
	first, second := b[at[0]:at[0]+size[0]], b[at[1]:at[1]+size[1]]
	for name, chunks := range map[string][][]byte{
		"swapped": {second, first},
		"twice":   {first, first},
	} {
		bad := append([]byte(nil), b[:at[0]]...)
		for _, chunk := range chunks {
			bad = append(bad, chunk...)
		}
		bad = append(bad, b[at[2]:]...)
		if _, err := Restore(bytes.NewReader(bad)); err == nil || !strings.Contains(err.Error(), "out of order") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The image of a session's requests is not larger than the weight that bounds them: the
// lineage of a set that waits stands at each key.
func TestAnImageIsBoundedByTheWeights(t *testing.T) {
	s := founded()
	a, b := SessionID{1}, SessionID{2}
	for _, id := range []SessionID{a, b} {
		apply(t, s, Open{Session: id, Client: "c", Node: "n", TTL: 3000}, OK)
	}
	var under []Token
	for i := range MaxUnder {
		out, _ := apply(t, s, Acquire{Session: a, Seq: uint64(i + 1), Key: fmt.Sprint("own", i)}, Granted)
		under = append(under, out.Token)
	}
	taken := fmt.Sprintf("%04d", MaxKeys-1)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: taken}, Granted)
	size := func() int {
		n, err := s.Snapshot().WriteTo(new(bytes.Buffer))
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	before, was := size(), s.sessions.get(a).index.weight
	keys := make([]string, MaxKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("%04d", i)
	}
	apply(t, s, Acquire{Session: a, Seq: 1000, Keys: keys, Under: under}, Queued)
	grown, now := size()-before, s.sessions.get(a).index.weight
	if bound := now.bytes - was.bytes + 64*(now.keys-was.keys); grown > bound {
		t.Errorf("a waiting set takes %d bytes of an image, and weighs %d", grown, bound)
	}
}

// A session that lists nothing as seen keeps the memory of its refusals below a limit: the
// later ones are remembered without their holders and cycles. The client itself is told.
func TestRememberedRefusalsAreBounded(t *testing.T) {
	s := founded()
	noisy, other := SessionID{1}, SessionID{2}
	long := strings.Repeat("l", MaxName)
	apply(t, s, Open{Session: noisy, Client: "c", Node: "n", TTL: 3000}, OK)
	apply(t, s, Open{Session: other, Client: long, Node: long, TTL: 3000}, OK)
	apply(t, s, Acquire{Session: other, Seq: 1, Key: "k"}, Granted)
	refusals := 2 * MaxDetails / len(long+long)
	for i := range refusals {
		out, _ := apply(t, s, Acquire{Session: noisy, Seq: uint64(i + 1), Key: "k", Try: true}, Held)
		if out.Holder.Client != long {
			t.Fatalf("refusal %d names the holder as %q", i, out.Holder.Client)
		}
	}
	size, err := s.Snapshot().WriteTo(new(bytes.Buffer))
	if err != nil || size > MaxDetails+int64(refusals)*64 {
		t.Errorf("an image of %d bytes for %d refusals: %v", size, refusals, err)
	}
	if out, _ := s.Apply(Acquire{Session: noisy, Seq: uint64(refusals), Key: "k", Try: true}); out.Code != Held || out.Holder != (Holder{}) {
		t.Errorf("the copy of the last request: %+v", out)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	apply(t, s, Acquire{Session: noisy, Seq: uint64(refusals + 1), Key: "k", Try: true, Seen: []uint64{1, 2, 3}}, Held)
	if out, _ := s.Apply(Acquire{Session: noisy, Seq: uint64(refusals + 1), Key: "k", Try: true}); out.Holder.Client != long {
		t.Errorf("the copy of a request after others were seen: %+v", out)
	}
}
