package member

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRaftIDsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-zA-Z0-9._-]{1,64}`).Draw(t, "name")
		generation := rapid.Uint64Min(1).Draw(t, "generation")
		n, g, err := ParseRaftID(RaftID(name, generation))
		if err != nil || n != name || g != generation {
			t.Fatalf("%q, %d: read back as %q, %d, %v", name, generation, n, g, err)
		}
	})
	for _, id := range []string{"", "ann", "ann#", "ann#0", "#1", "a b#1", "ann#!", strings.Repeat("a", MaxName+1) + "#1"} {
		if _, _, err := ParseRaftID(id); err == nil {
			t.Errorf("%q was taken for a raft ID", id)
		}
	}
}

func sighting(name string, boot, generation uint64, alive bool) Sighting {
	return Sighting{
		Process: Process{Name: name, Boot: boot, Addr: name},
		Meta:    Metadata{Generation: generation, Format: uint8(boot)},
		Alive:   alive,
	}
}

func TestLocatePrefersTheGenerationThenTheLivingThenTheNewest(t *testing.T) {
	for _, c := range []struct {
		claim string
		all   []Sighting
		boot  uint64
	}{
		{"generation before life", []Sighting{sighting("a", 1, 5, false), sighting("a", 2, 6, true)}, 1},
		{"the living before the newest", []Sighting{sighting("a", 1, 5, true), sighting("a", 2, 5, false)}, 1},
		{"the newest of the living", []Sighting{sighting("a", 1, 5, true), sighting("a", 3, 5, true), sighting("a", 2, 5, true)}, 3},
		{"another generation rather than nobody", []Sighting{sighting("b", 9, 5, true), sighting("a", 2, 6, true)}, 2},
	} {
		p, err := Locate(c.all, RaftID("a", 5))
		if err != nil || p.Boot != c.boot {
			t.Errorf("%s: got boot %d, %v, want %d", c.claim, p.Boot, err, c.boot)
		}
	}
	if _, err := Locate([]Sighting{sighting("b", 1, 5, true)}, RaftID("a", 5)); err == nil {
		t.Error("a member that nobody has seen was located")
	}
}

func TestFormatIsThatOfTheNewestProcessOfTheGeneration(t *testing.T) {
	all := []Sighting{sighting("a", 3, 5, true), sighting("a", 2, 5, true), sighting("a", 4, 6, true)}
	if f := FormatOf(all, RaftID("a", 5)); f != 3 {
		t.Errorf("format %d, want 3", f)
	}
	if f := FormatOf(all, RaftID("x", 5)); f != LeastFormat {
		t.Errorf("format %d of an unknown member, want %d", f, LeastFormat)
	}
}
