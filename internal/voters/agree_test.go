package voters

import (
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
)

func ttl(ms uint64) func(*member.Sighting) { return func(s *member.Sighting) { s.Meta.TTL = ms } }

// The bound rises with the first member of a longer TTL, thin members too, and
// falls with the last.
func TestTheBoundFollowsTheLongestTTL(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		expect := func(want uint64) {
			t.Helper()
			time.Sleep(2 * time.Second)
			if got := s.r.Term.Bound(); got != want {
				t.Errorf("the bound is %d, want %d", got, want)
			}
		}
		expect(2000)
		s.join("b", 2, ttl(5000), generation(0))
		s.join("c", 3, ttl(5000))
		expect(5000)
		s.die("b")
		expect(5000)
		s.die("c")
		expect(2000)
		for _, odd := range []uint64{machine.MinTTL - 1, machine.MaxTTL + 1} {
			s.join("d", odd, ttl(odd)) // no session may have such a TTL
			expect(2000)
		}
		if got := s.announcements(); got != "[5000 2000]" {
			t.Errorf("announced %v", got)
		}
	})
}

// The founding wait lasts a bound. During the wait, founders with a longer TTL may
// come back any time.
func TestTheBoundDoesNotFallDuringTheFoundingWait(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		s.set(func() { s.lifted, s.bound = false, 9000 })
		time.Sleep(time.Minute)
		if got := s.r.Term.Bound(); got != 9000 {
			t.Errorf("the bound fell to %d", got)
		}
		s.join("b", 2, ttl(10_000))
		time.Sleep(2 * time.Second)
		if got := s.r.Term.Bound(); got != 10_000 {
			t.Errorf("the bound is %d: it must rise at any time", got)
		}
	})
}

func TestTheFormatIsRaisedWhenAllServersReadIt(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.set(func() { s.format = older })
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3, format(older))
		time.Sleep(time.Minute)
		if f := s.r.Term.Format(); f != older {
			t.Errorf("format %d while c reads %d", f, older)
		}
		s.edit("c", format(newest))
		time.Sleep(2 * time.Second)
		if f := s.r.Term.Format(); f != newest {
			t.Errorf("format %d when all servers read %d", f, newest)
		}
	})
}

// From the proposal of a later format on, not only from the commit on, a member of
// an older format is not invited, and is removed if it was invited before.
func TestVotersReadTheFormatOfTheTable(t *testing.T) {
	for _, committed := range []bool{true, false} {
		onStage(t, 3, func(s *stage) {
			s.set(func() { s.format, s.hold = older, !committed })
			s.vote("b")
			s.join("b", 2)
			s.join("c", 3, format(older))
			time.Sleep(time.Minute)
			if got := s.changes(); got != "" {
				t.Errorf("committed %v: changes %q", committed, got)
			}
		})
	}
	onStage(t, 3, func(s *stage) {
		s.set(func() { s.format = older })
		s.vote("b", "x")
		s.join("b", 2, format(older))
		s.join("x", 2, format(older), leaves) // its successor must catch up first
		s.join("c", 3, format(older))
		s.set(func() { s.behind["c"] = true })
		time.Sleep(10 * time.Second) // c is a non-voter by now
		s.set(func() { s.format = newest })
		time.Sleep(10 * time.Second)
		if got := s.changes(); !strings.HasPrefix(got, "invite c#1, remove c#1") || strings.Contains(got, "promote") {
			t.Errorf("changes %q", got)
		}
	})
}
