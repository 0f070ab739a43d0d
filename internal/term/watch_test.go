package term_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

func TestAScanWaitsForChangesOfItsPrefixOnly(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		first := s.acquire(1, 1, "a/1")
		s.acquire(1, 2, "b/1")
		list, ok := s.scan(replica.Scan{Prefix: "a/", Limit: 10}).answer()
		if !ok || keysOf(list) != "a/1*" || list.More || list.Version == 0 {
			t.Fatalf("%+v", list)
		}
		w := s.scan(replica.Scan{Prefix: "a/", Limit: 10, Since: list.Version})
		s.acquire(1, 3, "b/2")
		s.acquire(1, 4, "a")
		if a, ok := w.answer(); ok {
			t.Fatalf("woken by another prefix's key: %+v", a)
		}
		s.Must(machine.Release{Session: sid(1), Token: first})
		a, ok := w.answer()
		if !ok || keysOf(a) != "a/1" || a.Version <= list.Version || a.More || a.Lost {
			t.Fatalf("%+v", a)
		}
		// Changes from before the question are told at once.
		s.acquire(1, 5, "a/2")
		s.acquire(1, 6, "a/3")
		a, ok = s.scan(replica.Scan{Prefix: "a/", Limit: 1, Since: a.Version}).answer()
		if !ok || keysOf(a) != "a/2*" || !a.More {
			t.Fatalf("%+v", a)
		}
		a, ok = s.scan(replica.Scan{Prefix: "a/", Limit: 1, Since: a.Version}).answer()
		if !ok || keysOf(a) != "a/3*" || a.More {
			t.Fatalf("%+v", a)
		}
		// A cancelled scan leaves nothing behind.
		w = s.scan(replica.Scan{Prefix: "a/", Limit: 10, Since: a.Version})
		v := s.scan(replica.Scan{Prefix: "a/", Limit: 10, Since: a.Version})
		synctest.Wait()
		w.cancel()
		w.cancel()
		v.cancel()
		if n := s.Term().Watched(); n > 0 {
			t.Errorf("%d left behind", n)
		}
	})
}

// The end of the scans of a prefix is not the end of the scans of another prefix of
// the same length; and a key is a prefix of the same key.
func TestAScanIsNotEndedWithAnother(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		list, _ := s.scan(replica.Scan{Limit: 10}).answer()
		gone := s.scan(replica.Scan{Prefix: "a/1", Limit: 10, Since: list.Version})
		stays := s.scan(replica.Scan{Prefix: "b/1", Limit: 10, Since: list.Version})
		synctest.Wait()
		gone.cancel()
		s.acquire(1, 2, "b/1")
		if a, ok := stays.answer(); !ok || keysOf(a) != "b/1*" {
			t.Errorf("%+v", a)
		}
	})
}

// The change comes between the look at the table and the registering, or during the
// registering, or later: the reader is told in any case.
func TestReadersThatRegisterBesideAChangeMissNothing(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		for seq := uint64(1); seq < 300; seq++ {
			list, _ := s.scan(replica.Scan{Limit: 10}).answer()
			version := s.read(replica.Query{Key: "k"}).Version
			go func() { s.Must(machine.Release{Session: sid(1), Token: s.acquire(1, seq, "k")}) }()
			scan := s.scan(replica.Scan{Limit: 10, Since: list.Version})
			reads := make(chan replica.Answer, 1)
			s.Term().Read(replica.Query{Key: "k", Version: version}, func(a replica.Answer, c wire.Code) { reads <- a })
			if a, ok := scan.answer(); !ok || len(a.Keys) != 1 {
				t.Fatalf("change %d: the scan got %+v, %t", seq, a, ok)
			}
			if a := <-reads; a.Version == version {
				t.Fatalf("change %d: the read got the same version", seq)
			}
		}
	})
}

func TestAScanOfAQuietPrefixIsNotLeftBehind(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		list, _ := s.scan(replica.Scan{Prefix: "quiet/", Limit: 10}).answer()
		w := s.scan(replica.Scan{Prefix: "quiet/", Limit: 10, Since: list.Version})
		synctest.Wait()
		// More changes than are remembered in all.
		for i := range machine.MaxChanges/2/100 + 10 {
			var batch []machine.Command
			for j := range 100 {
				seq := uint64(i*100 + j + 1)
				batch = append(batch, machine.Acquire{Session: sid(1), Seq: seq, Key: "x"}, machine.Withdraw{Session: sid(1), Seq: seq})
			}
			s.Apply(batch...)
			synctest.Wait()
		}
		s.View(func(m *machine.State) {
			if _, _, ok := m.Changes("quiet/", list.Version, 1); ok {
				t.Fatal("every change is still remembered")
			}
		})
		s.acquire(1, 1<<30, "quiet/1")
		if a, ok := w.answer(); !ok || a.Lost || keysOf(a) != "quiet/1*" {
			t.Errorf("%+v", a)
		}
	})
}

// A scan says so if the changes are not remembered, or are too many for one answer.
func TestAScanThatCannotGoOnSaysSo(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		list, _ := s.scan(replica.Scan{Prefix: "k/", Limit: 10}).answer()
		var keys []string
		for i := range 300 {
			keys = append(keys, fmt.Sprintf("k/%03d", i))
		}
		s.Must(machine.Acquire{Session: sid(1), Seq: 1, Keys: keys})
		a, ok := s.scan(replica.Scan{Prefix: "k/", Limit: 256, Since: list.Version}).answer()
		if !ok || !a.Lost || len(a.Keys) > 0 || a.Version <= list.Version {
			t.Fatalf("%d keys, %+v", len(a.Keys), a)
		}
		var all []string
		for from := ""; ; {
			page, ok := s.scan(replica.Scan{Prefix: "k/", From: from, Limit: 128}).answer()
			if !ok || len(page.Keys) == 0 {
				t.Fatalf("%+v", page)
			}
			for _, st := range page.Keys {
				all = append(all, st.Key)
			}
			if !page.More {
				break
			}
			from = all[len(all)-1] + "\x00"
		}
		if !slices.Equal(all, keys) {
			t.Errorf("listed %d keys: %q", len(all), all)
		}
		// A restored table does not know the changes before.
		s.LeadFromSnapshot()
		if a, ok := s.scan(replica.Scan{Prefix: "k/", Limit: 256, Since: list.Version}).answer(); !ok || !a.Lost {
			t.Errorf("after a restore: %+v", a)
		}
		a, _ = s.scan(replica.Scan{Limit: 1}).answer()
		w := s.scan(replica.Scan{Prefix: "k/", Limit: 256, Since: a.Version})
		s.acquire(1, 2, "k/new")
		if a, ok := w.answer(); !ok || a.Lost || keysOf(a) != "k/new*" {
			t.Errorf("after a restore: %+v", a)
		}
	})
}

func TestAReaderOfItsPositionIsWokenWhenItMoves(t *testing.T) {
	onStage(t, func(s *stage) {
		for id := byte(1); id <= 4; id++ {
			s.open(id)
		}
		token := s.acquire(1, 1, "k")
		for id := byte(2); id <= 4; id++ {
			s.acquire(id, 1, "k")
		}
		q := replica.Query{Key: "k", Session: sid(4), Seq: 1}
		var positions []string
		for range 4 {
			answers := make(chan replica.Answer, 1)
			s.Term().Read(q, func(a replica.Answer, c wire.Code) { answers <- a })
			synctest.Wait()
			var a replica.Answer
			select {
			case a = <-answers:
			default:
				switch len(positions) {
				case 1:
					s.Must(machine.Withdraw{Session: sid(3), Seq: 1})
				case 2:
					s.Must(machine.Release{Session: sid(1), Token: token})
				case 3:
					s.Must(machine.Close{Session: sid(2)})
				}
				a = <-answers
			}
			q.Version = a.Version
			positions = append(positions, fmt.Sprint(a.Behind, a.Waits))
		}
		if got := strings.Join(positions, ", "); got != "3 true, 2 true, 1 true, 0 false" {
			t.Error(got)
		}
	})
}

// A waiting read or scan is answered when the term ends, and later reads at once.
func TestWaitingReadsAreAnsweredWhenTheTermEnds(t *testing.T) {
	onStage(t, func(s *stage) {
		list, _ := s.scan(replica.Scan{Limit: 10}).answer()
		a := s.read(replica.Query{Key: "k"})
		old := s.Term()
		codes := make(chan wire.Code, 4)
		ask := func() {
			old.Scan(replica.Scan{Limit: 10, Since: list.Version}, func(_ replica.Scanned, c wire.Code) { codes <- c })
			old.Read(replica.Query{Key: "k", Version: a.Version}, func(_ replica.Answer, c wire.Code) { codes <- c })
		}
		ask()
		time.Sleep(time.Hour)
		if len(codes) > 0 {
			t.Errorf("answered with %v though nothing changed", <-codes)
		}
		s.Lead()
		ask()
		for range 4 {
			if c := <-codes; c != wire.CodeNotLeader {
				t.Errorf("answered with %v", c)
			}
		}
	})
}
