package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/member"
)

func TestVerdictOf(t *testing.T) {
	voters := func(fates ...fate) (out []voterPlight) {
		for i, f := range fates {
			out = append(out, voterPlight{name: string(rune('a' + i)), fate: f})
		}
		return out
	}
	for _, tt := range []struct {
		p        plight
		hopeless bool
		next     string
	}{
		{plight{voters: voters(seen, seen, silent)}, false, "wait for the election"},
		{plight{voters: voters(seen, silent, silent)}, false, "restore the network to the missing voters; if their processes have ended, restart every remaining member, or call Node.Recover on one member with Gone: b, c"},
		{plight{voters: voters(seen, silent, silent), durable: true}, false, "start the silent voters with their Dirs; only if"},
		{plight{voters: voters(seen, abstains, silent), durable: true}, false, "start as voters again, with their Dirs: b, and all silent voters; only if the disks are lost for good, call Node.Recover on one member with Gone: b, c"},
		{plight{voters: voters(seen, abstains, abstains)}, false, "restore the network to the missing voters; if"},
		{plight{voters: voters(seen, silent, silent), complete: true}, false, "restore the network, or start every member listed in Join"},
		{plight{voters: voters(seen, forgets, silent)}, false, "restore the network to the missing voters; if"},
		{plight{voters: voters(seen, forgets, forgets)}, true, "restart every member, or call Node.Recover on one member with Gone: b, c"},
		{plight{voters: voters(silent, forgets, forgets), durable: true}, true, "put the lost Dirs back; if they are lost for good, call Node.Recover"},
		{plight{voters: voters(seen, forgets, forgets), complete: true}, true, "start every member listed in Join"},
		{plight{voters: voters(silent, silent, forgets), retired: true}, false, "wait for the successor"},
	} {
		if hopeless, next := verdictOf(tt.p); hopeless != tt.hopeless || !strings.HasPrefix(next, tt.next) {
			t.Errorf("%+v: %v, %q", tt.p, hopeless, next)
		}
	}
}

// A process that never votes, under a voter's name, hides neither the voter nor its silence.
func TestVoterPlightOf(t *testing.T) {
	sighting := func(boot, generation uint64, thin, alive bool) member.Sighting {
		return member.Sighting{Process: member.Process{Name: "a", Boot: boot}, Meta: member.Metadata{Generation: generation, Thin: thin}, Alive: alive}
	}
	for _, tt := range []struct {
		all  []member.Sighting
		want fate
	}{
		{nil, silent},
		{[]member.Sighting{sighting(1, 7, false, true)}, seen},
		{[]member.Sighting{sighting(1, 7, false, false)}, silent},
		{[]member.Sighting{sighting(1, 7, false, false), sighting(2, 8, false, true)}, forgets},
		{[]member.Sighting{sighting(1, 7, false, true), sighting(2, 0, true, true)}, seen},
		{[]member.Sighting{sighting(1, 7, false, false), sighting(2, 0, true, true)}, abstains},
		{[]member.Sighting{sighting(1, 7, false, false), sighting(2, 0, true, false)}, silent},
		{[]member.Sighting{sighting(2, 8, false, true), sighting(3, 0, true, true)}, forgets},
	} {
		if got := voterPlightOf(member.RaftID("a", 7), tt.all); got != (voterPlight{"a", tt.want}) {
			t.Errorf("%+v: %+v, want %v", tt.all, got, tt.want)
		}
	}
}

func TestHealthSaysThatAClusterIsDead(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.form()[0]
		b.crashed("n2", "n3")
		time.Sleep(time.Minute)
		if h := n1.Health(b.within(time.Minute)); strings.Contains(h.Reason, "cannot come back") || !strings.Contains(h.Next, "Gone: n2, n3") {
			t.Errorf("silent: %q, %q", h.Reason, h.Next)
		}
		b.start("n2")
		b.start("n3")
		b.eventually("the restarts are known", time.Minute, func() bool {
			h := n1.Health(b.within(time.Minute))
			return strings.HasPrefix(h.Reason, "this cluster cannot come back by itself") && strings.Contains(h.Next, "Gone: n2, n3")
		})
	})
}
