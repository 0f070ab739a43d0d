package term

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// watching returns watches with so many watches of a key, and so many of a prefix of it. The
// looks are counted.
func watching(many int, looks *int) *watches {
	ws := newWatches()
	look := func() func() int { *looks++; return nil }
	for range many {
		ws.add(&watch{name: "k/1", look: look, fail: func(wire.Code) {}})
		ws.add(&watch{subject: aPrefix, name: "k/", look: look, fail: func(wire.Code) {}})
	}
	ws.lookAll()
	*looks = 0
	return ws
}

// lookAll looks at everything that is due.
func (ws *watches) lookAll() {
	ws.take()
	ws.lookWaiting()
}

func (ws *watches) lookWaiting() {
	for w := ws.next(false); w != nil; w = ws.next(false) {
		w.look()
	}
}

// A change costs raft's goroutine the same however many reads wait for the key, and each of
// them is looked at once for all changes.
func TestAChangeCostsTheSameForAnyNumberOfReaders(t *testing.T) {
	const many = 8 << 10
	looks := 0
	ws := watching(many, &looks)
	best := time.Hour
	for range 5 {
		began := time.Now()
		for range 256 {
			ws.changed("k/1")
			ws.groupChanged("g")
		}
		best = min(best, time.Since(began))
	}
	if best > 50*time.Millisecond { // a visit to each of the watches takes a hundred times as long
		t.Errorf("256 changes took %v", best)
	}
	if ws.lookAll(); looks != 2*many {
		t.Errorf("%d looks, want %d", looks, 2*many)
	}
	if ws.lookAll(); looks != 2*many {
		t.Errorf("%d looks without a change", looks-2*many)
	}
}

// More changes than are remembered one by one reach every watch, and without a watch none is
// remembered.
func TestRememberedChangesAreBounded(t *testing.T) {
	looks := 0
	ws := watching(1, &looks)
	for i := range 2 * maxChanged {
		ws.changed(fmt.Sprint("other/", i))
		ws.groupChanged(fmt.Sprint("g", i))
		if n := ws.changes.batch.size(); n > maxChanged {
			t.Fatalf("%d names are kept", n)
		}
	}
	if ws.lookAll(); looks != 2 {
		t.Errorf("%d of 2 watches were looked at", looks)
	}
	for range machine.MaxChanges / 4 {
		ws.changed("other")
	}
	if ws.lookAll(); looks != 3 {
		t.Errorf("%d looks: a scan of a quiet prefix is not moved on", looks-2)
	}
	for _, lists := range []map[string]*place{ws.keys, ws.prefixes} {
		for _, list := range lists {
			for w := range list.all {
				ws.remove(w)
			}
		}
	}
	ws.changed("k/1")
	ws.groupChanged("g")
	if ws.changes.batch.size() > 0 {
		t.Error("changes are kept for nobody")
	}
}

// A member with thousands of reads to be answered keeps the reads of another member waiting for
// a few large answers, whether they came before, together or meanwhile.
func TestAnswersComeInTurns(t *testing.T) {
	const many, size = 1000, 100 << 10
	ws, fail := newWatches(), func(wire.Code) {}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	flood, changed := 0, false
	var since []int // answers of flood before each of honest's
	honest := func() {
		ws.add(&watch{from: "honest", name: "h", look: func() func() int {
			return func() int { since = append(since, flood); return 100 }
		}, fail: fail})
	}
	for range many {
		ws.add(&watch{from: "flood", name: "k", look: func() func() int {
			if !changed {
				return nil
			}
			return func() int {
				if flood++; flood%100 == 50 {
					for range 10 {
						honest()
					}
				}
				if flood == many {
					cancel()
				}
				return size
			}
		}, fail: fail})
	}
	ws.lookAll()
	changed = true
	ws.changed("k")
	honest()
	ws.run(ctx)
	if len(since) != 1+10*many/100 || since[0] > 1 {
		t.Fatalf("a member with few reads is answered after %v answers of another", since)
	}
	for i, n := range since[1:] {
		if asked := 100*(i/10) + 50; n > asked+many/seenPerWork*answerPart/size+3 {
			t.Errorf("a read is answered after %d answers of another member", n-asked)
		}
	}
}

// A cancelled read costs no look, no turn and no memory.
func TestACancelledReadIsForgotten(t *testing.T) {
	looks := 0
	ws := newWatches()
	add := func(from string) (cancel func()) {
		return ws.add(&watch{from: from, name: "k", look: func() func() int { looks++; return nil }, fail: func(wire.Code) {}})
	}
	var cancels []func()
	for _, from := range []string{"a", "a", "a", "a", "b", "c", "c"} {
		cancels = append(cancels, add(from))
	}
	ws.take()
	for _, i := range []int{0, 2, 4, 5} { // first, between, the only one, first
		cancels[i]()
	}
	first := ws.next(false)
	if first == nil {
		t.Fatal("nothing waits")
	}
	if w := ws.next(true); w == nil || w.from == first.from {
		t.Errorf("after a turn of %q: %+v", first.from, w)
	}
	if ws.lookWaiting(); looks != 1 {
		t.Errorf("%d looks, want that of the read that waits", looks)
	}
	if len(ws.backlog.turns)+len(ws.backlog.of) != 0 {
		t.Errorf("%+v is left", ws.backlog)
	}
}
