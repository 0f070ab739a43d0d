package refused

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A flood of refusals of one kind costs a few lines, and silences no other kind.
func TestAFloodCostsFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := New(slog.New(slog.NewTextHandler(&b, nil)))
		for i := range 10_000 {
			l.Note(Packet, fmt.Sprint("10.0.0.", i%256), fmt.Sprint("detail ", i))
			time.Sleep(100 * time.Millisecond)
		}
		if n := strings.Count(b.String(), "\n"); n > 8 { // in 1,000 s
			t.Errorf("%d lines:\n%s", n, b.String())
		}
		b.Reset()
		for kind := range next {
			if kind == Packet {
				continue
			}
			l.Note(kind, "10.0.0.1:1", "a detail of "+string(kind))
			if !strings.Contains(b.String(), "a detail of "+string(kind)) {
				t.Errorf("%s is silent after the flood", kind)
			}
		}
		if n := strings.Count(b.String(), "\n"); n != len(next)-1 {
			t.Errorf("%d lines:\n%s", n, b.String())
		}
	})
}

func TestTotalsHaveTheLatestRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(slog.New(slog.DiscardHandler))
		l.Note(Raft, "a", "first")
		time.Sleep(time.Second)
		l.Note(Raft, "b", strings.Repeat("x", 10000))
		l.Note(Claim, "c", "")
		got := l.Totals()
		if len(got) != 2 || got[0].Kind != Claim || got[1].Count != 2 || got[1].From != "b" || !got[1].At.Equal(time.Now()) {
			t.Errorf("%+v", got)
		}
		if n := len(got[1].Detail); n != maxText {
			t.Errorf("%d bytes of a detail are kept", n)
		}
		if want := map[Kind]uint64{Raft: 2, Claim: 1}; !maps.Equal(l.Counts(), want) {
			t.Errorf("%v, want %v", l.Counts(), want)
		}
		var none *Log
		none.Note(Raft, "", "")
		if none.Totals() != nil || none.Counts() != nil {
			t.Error("a nil Log has refusals")
		}
	})
}

// docs/refused.md has a section for each kind, and for no other.
func TestEachKindIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/refused.md")
	if err != nil {
		t.Fatal(err)
	}
	var sections []string
	for line := range strings.Lines(string(doc)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			sections = append(sections, strings.TrimSpace(name))
		}
	}
	var kinds []string
	for k := range next {
		kinds = append(kinds, string(k))
	}
	slices.Sort(sections)
	slices.Sort(kinds)
	if !slices.Equal(sections, kinds) {
		t.Errorf("sections %v, want %v", sections, kinds)
	}
}
