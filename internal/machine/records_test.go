package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A recordTable finds what a map finds, and an image of it stays as it was.
func TestRecordTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table recordTable
		want := map[string]*record{}
		type taken struct {
			image recordTable
			want  map[string]*record
		}
		var images []taken
		for range rapid.IntRange(0, 300).Draw(t, "changes") {
			key := fmt.Sprint("key ", rapid.IntRange(0, 40).Draw(t, "key")*shardCount)
			switch rapid.IntRange(0, 9).Draw(t, "change") {
			case 0:
				images = append(images, taken{table.freeze(), maps.Clone(want)})
			case 1, 2, 3:
				table.del(key)
				delete(want, key)
			default:
				want[key] = &record{}
				table.set(key, want[key])
			}
			for _, i := range append(images, taken{table, want}) {
				sameRecords(t, &i.image, i.want)
			}
		}
	})
}

func sameRecords(t *rapid.T, table *recordTable, want map[string]*record) {
	if table.n != len(want) || table.count() != len(want) {
		t.Fatalf("%d records, counted %d, want %d", table.n, table.count(), len(want))
	}
	for i := range 41 {
		key := fmt.Sprint("key ", i*shardCount)
		if r := table.get(key); r != want[key] || r != nil && r.key != key {
			t.Fatalf("%q has record %p, want %p", key, r, want[key])
		}
	}
}

// A shard finds its records whatever their tags: all in one place, or at the table's end.
func TestShardFindsCollidingRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sh recordShard
		tags := map[string]uint32{}
		for range rapid.IntRange(0, 100).Draw(t, "changes") {
			key := fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "key"))
			if tag, ok := tags[key]; ok {
				sh.remove(sh.find(key, tag))
				delete(tags, key)
			} else {
				tags[key] = rapid.SampledFrom([]uint32{0, 1, 1 << 31, 1<<32 - 2, 1<<32 - 1}).Draw(t, "tag")
				sh.add(&record{key: key}, tags[key])
			}
			if sh.n != len(tags) {
				t.Fatalf("%d records, want %d", sh.n, len(tags))
			}
			for key, tag := range tags {
				if at := sh.find(key, tag); at < 0 || sh.list[at].key != key {
					t.Fatalf("%q is not found", key)
				}
			}
		}
	})
}

func TestSortRecordsSortsByKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]string{"", "\x00", "a", "ab", "\xf0\x9f\x98\x80", "/12345678", "/12345678/12345678"})
		var list []*record
		var want []string
		for _, parts := range rapid.SliceOf(rapid.SliceOfN(part, 0, 4)).Draw(t, "keys") {
			key := strings.Join(parts, "")
			list, want = append(list, &record{key: key}), append(want, key)
		}
		sortRecords(list)
		slices.Sort(want)
		for i, r := range list {
			if r.key != want[i] {
				t.Fatalf("%q at %d, want %q", r.key, i, want[i])
			}
		}
	})
}

// A session's requests are found by seq and by token as in two maps.
func TestRequestsAreTwoMaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r requests
		want := map[uint64]location{}
		bySeq := map[Token]uint64{}
		for i := range rapid.IntRange(0, 300).Draw(t, "changes") {
			seq := rapid.Uint64Range(1, 30).Draw(t, "seq") << 40
			if before, ok := want[seq]; ok {
				delete(bySeq, before.token)
			}
			if rapid.IntRange(0, 2).Draw(t, "change") == 0 {
				r.remove(seq)
				delete(want, seq)
			} else {
				at := location{key: fmt.Sprint(i), set: rapid.Bool().Draw(t, "set"), phase: phase(rapid.IntRange(0, 3).Draw(t, "phase"))}
				if rapid.Bool().Draw(t, "granted") {
					at.token = MaxToken - Token(i)
					bySeq[at.token] = seq
				}
				r.set(seq, at)
				want[seq] = at
			}
			if !r.found() || r.len() != len(want) || r.grants() != len(bySeq) || !maps.Equal(maps.Collect(r.all()), want) {
				t.Fatalf("%v, want %v", r.list, want)
			}
			for token, seq := range bySeq {
				if got, ok := r.granted(token); !ok || got != seq {
					t.Fatalf("token %d has seq %d, want %d", token, got, seq)
				}
			}
			if _, ok := r.granted(1); ok {
				t.Fatal("a token that nobody has is found")
			}
		}
	})
}
