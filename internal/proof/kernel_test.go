package proof

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

const here, there = "10.0.0.1:7000", "10.0.0.2:7000"

// A sight is an observation of the kernel: a handshake with a process at addr, a
// dial to a process without an answer, or a goodbye.
type sight struct {
	at      time.Duration
	addr    string
	who     boot
	claims  string // "": addr
	silent  bool
	refused bool
	bye     bool
	late    time.Duration // from the handshake's begin until it is told
}

func (s sight) show(k *kernel) found {
	if s.claims == "" {
		s.claims = s.addr
	}
	switch {
	case s.bye:
		return k.goodbye(s.who)
	case s.silent:
		return k.unanswered(epoch.Add(s.at), s.who, s.addr, s.refused)
	}
	return k.answered(epoch.Add(s.at), epoch.Add(s.at-s.late), s.addr, s.who, s.claims)
}

func TestTheEndOfAProcessIsProved(t *testing.T) {
	a1, a2, b2, b0, c3 := boot{"a", 1}, boot{"a", 2}, boot{"b", 2}, boot{"b", 0}, boot{"c", 3}
	const again = timing.ProofAgain
	for _, tt := range []struct {
		claim  string
		sights []sight
		ended  string
		shared string
	}{
		{"a newer boot at the address ends the older one", []sight{{addr: here, who: a1}, {addr: here, who: a2}}, "a1", ""},
		{"an older boot proves nothing", []sight{{addr: here, who: a2}, {addr: here, who: a1}}, "", ""},
		{"nor does an older boot twice", []sight{{addr: here, who: a2}, {addr: here, who: a1}, {at: again, addr: here, who: a1}}, "", ""},
		{"a refused dial proves nothing while no newer boot has shown itself", []sight{{addr: here, who: a1}, {addr: here, who: a1, silent: true, refused: true}}, "", ""},
		{"a refused dial ends the older boot", []sight{{addr: there, who: a2}, {addr: here, who: a1, silent: true, refused: true}}, "a1", ""},
		{"it does not end the newest", []sight{{addr: there, who: a2}, {addr: there, who: a2, silent: true, refused: true}}, "", ""},
		{"one dial without an answer proves nothing", []sight{{addr: there, who: a2}, {addr: here, who: a1, silent: true}}, "", ""},
		{"nor two at once", []sight{{addr: there, who: a2}, {addr: here, who: a1, silent: true}, {at: again - 1, addr: here, who: a1, silent: true}}, "", ""},
		{"two a second apart do", []sight{{addr: there, who: a2}, {addr: here, who: a1, silent: true}, {at: again, addr: here, who: a1, silent: true}}, "a1", ""},
		{"unless the older boot has answered between", []sight{{addr: there, who: a2}, {addr: here, who: a1, silent: true}, {addr: here, who: a1}, {at: again, addr: here, who: a1, silent: true}}, "", ""},
		{"another name at the address proves nothing at once", []sight{{addr: here, who: a1}, {addr: here, who: b2}}, "", ""},
		{"nor less than a second later", []sight{{addr: here, who: a1}, {addr: here, who: b2}, {at: again - 1, addr: here, who: b2}}, "", ""},
		{"a second later it does", []sight{{addr: here, who: a1}, {addr: here, who: b2}, {at: again, addr: here, who: b2}}, "a1", ""},
		{"unless a third one has answered between", []sight{{addr: here, who: a1}, {addr: here, who: b2}, {addr: here, who: c3}, {at: again, addr: here, who: b2}}, "", ""},
		{"or the answerer claims another address", []sight{{addr: here, who: a1}, {addr: here, who: b2, claims: there}, {at: again, addr: here, who: b2, claims: there}}, "", ""},
		{"or started earlier", []sight{{addr: here, who: a1}, {addr: here, who: b0}, {at: again, addr: here, who: b0}}, "", ""},
		{"or this prover never found the older one there", []sight{{addr: here, who: b2}, {at: again, addr: here, who: b2}}, "", ""},
		{"two processes in turn share the address", []sight{{addr: here, who: a1}, {addr: here, who: b2}, {addr: here, who: a1}}, "", "a1 b2"},
		{"and nothing found there proves anything", []sight{{addr: here, who: a1}, {addr: here, who: b2}, {addr: here, who: a1}, {addr: here, who: b2}, {at: again, addr: here, who: b2}, {addr: here, who: a2}}, "", "a1 b2"},
		{"a shared address refuses for nobody", []sight{{addr: here, who: a1}, {addr: here, who: b2}, {addr: here, who: a1}, {addr: there, who: a2}, {addr: here, who: a1, silent: true, refused: true}}, "", "a1 b2"},
		{"an ended process that answers shares the address too", []sight{{addr: here, who: a1}, {addr: here, who: b2}, {at: again, addr: here, who: b2}, {at: again, addr: here, who: a1}}, "a1", "b2 a1"},
		{"a handshake that is told late shares nothing", []sight{{addr: here, who: a1}, {at: 5, addr: here, who: a2}, {at: 6, late: 2, addr: here, who: a1}, {at: 7, addr: here, who: c3}, {at: 7 + again, addr: here, who: c3}}, "a1 a2", ""},
		{"nor between two dials", []sight{{addr: here, who: a1}, {at: 5, addr: here, who: b2}, {at: 6, late: 2, addr: here, who: a1}, {at: 5 + again, addr: here, who: b2}}, "a1", ""},
		{"a goodbye ends at once", []sight{{addr: here, who: a1}, {who: a1, bye: true}}, "a1", ""},
		{"and is told once", []sight{{who: a1, bye: true}, {who: a1, bye: true}, {addr: here, who: a1}, {addr: here, who: a2}}, "a1", ""},
		{"each successor ends its forerunner", []sight{{addr: here, who: a1}, {addr: here, who: a2}, {addr: here, who: c3}, {at: again, addr: here, who: c3}}, "a1 a2", ""},
	} {
		k := newKernel()
		var ended, shared []string
		for _, s := range tt.sights {
			f := s.show(k)
			for _, b := range f.ended {
				ended = append(ended, fmt.Sprint(b.name, b.id))
				if !k.ended[b] {
					t.Errorf("%s: %v is told and not known", tt.claim, b)
				}
			}
			for _, b := range f.shared {
				shared = append(shared, fmt.Sprint(b.name, b.id))
			}
		}
		if got := strings.Join(ended, " "); got != tt.ended {
			t.Errorf("%s: ended %q, want %q", tt.claim, got, tt.ended)
		}
		if got := strings.Join(shared, " "); got != tt.shared {
			t.Errorf("%s: shared %q, want %q", tt.claim, got, tt.shared)
		}
	}
}

func TestTheMemoryIsBounded(t *testing.T) {
	k := newKernel()
	for i := range uint64(maxEnded + 500) {
		name := fmt.Sprint("n", i)
		k.answered(epoch.Add(time.Duration(i)), epoch.Add(time.Duration(i)), fmt.Sprint("10.0.0.1:", i), boot{name, 2 * i}, "")
		k.unanswered(epoch, boot{name, 2*i - 1}, "", false)
		k.goodbye(boot{name, 2*i + 1})
	}
	if len(k.ended) > maxEnded || len(k.places) > maxPlaces || len(k.newest) > maxNames || len(k.silent) > maxNames {
		t.Errorf("%d ends, %d places, %d names, %d silent", len(k.ended), len(k.places), len(k.newest), len(k.silent))
	}
	if last := uint64(maxEnded + 499); !k.ended[boot{fmt.Sprint("n", last), 2*last + 1}] {
		t.Error("the latest end is forgotten before earlier ones")
	}
}

// One member that says goodbye under ever-new boots, true or forged, makes the others
// forget no other end.
func TestGoodbyesOfOneNameForgetNoOther(t *testing.T) {
	k := newKernel()
	k.goodbye(boot{"voter", 5})
	for id := range uint64(3 * maxBoots) {
		k.goodbye(boot{"mallory", 1000 + id})
	}
	if len(k.ended) != maxBoots+1 || !k.ended[boot{"voter", 5}] || !k.ended[boot{"mallory", 999 + 3*maxBoots}] {
		t.Errorf("%d ends are remembered, that of the voter: %t", len(k.ended), k.ended[boot{"voter", 5}])
	}
	for id := range uint64(maxEnded + 10) {
		k.goodbye(boot{fmt.Sprint(id), 1000 + id})
	}
	if len(k.ended) > maxEnded {
		t.Errorf("%d ends are remembered", len(k.ended))
	}
}
