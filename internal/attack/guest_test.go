package attack

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/wire"
)

// A guest under a certificate that names nobody stands under the name of a member, with a later
// boot: it is in gossip, answers whoever dials, and has a stream to the leader.

// stands has the attacker stand as a process until the attack is over. The description is the
// one that gossip tells.
func (a *attacker) stands(as peer, description []byte) error {
	fake, err := a.fakeLeader(as)
	if err != nil {
		return err
	}
	fake.control = func(q wire.Frame) []byte {
		if q.Type != wire.Who {
			return nil
		}
		return wire.Marshal(&wire.WhoAnswer{Name: as.Name, Boot: as.Boot, Addr: fake.addr()})
	}
	a.openPackets()
	streams := make([]*talk, len(a.w.houses)) // to the leader one counts; the others may lead next
	ended := make(chan struct{})
	var stand sync.WaitGroup
	stand.Go(func() {
		for n := uint32(1); ; n++ {
			for i, h := range a.w.houses {
				if h == nil {
					continue
				}
				a.gossips(i, gossipNode(as, fake.addr(), n, description))
				if s := streams[i]; s == nil || s.send(wire.Describe, description) != nil {
					streams[i] = a.joins(i, as)
				}
			}
			select {
			case <-ended:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	a.atEnd(func() { close(ended); stand.Wait() })
	return nil
}

// joins opens a stream to member i and attaches; nil: that fails.
func (a *attacker) joins(i int, as peer) *talk {
	s, err := a.dial(i, hello{kind: kindMember, from: as})
	if err != nil {
		return nil
	}
	if f, err := s.call(wire.Attach, attachBody(nil, s.proof())); err != nil || f.Code != wire.CodeOK {
		_ = s.Close()
		return nil
	}
	return s
}

// hourLater is the boot of a process that starts an hour from now.
func hourLater() uint64 { return uint64(time.Now().Add(time.Hour).UnixNano()) }

// standIn has a guest stand under the names of a voter and of the member without a vote. The
// voter ends and starts again, and then the leader: both keep their votes, and the others go on.
func (w *town) standIn() string {
	a := w.attacker(guest)
	defer a.close()
	var err error
	if a.know, err = w.learn(); err != nil {
		return fmt.Sprintf("nothing learnt: %v", err)
	}
	leader, voter, spare := w.leader(), 0, 0
	w.votes = nil
	for i := range w.houses {
		id := a.know.raftID(i)
		if !slices.Contains(a.know.members[0].Founding.Voters, id) {
			spare = i
			continue
		}
		if i != leader {
			voter = i
		}
		w.votes = append(w.votes, id)
	}
	m := metadata(func(m *meta) { m.Cluster, m.Durable = a.know.cluster, true })
	for _, i := range []int{voter, spare} {
		for _, boot := range []uint64{a.know.members[i].Boot - 1000, hourLater()} { // an elder process and a later one
			if err := a.stands(peer{name(i), boot}, m); err != nil {
				return err.Error()
			}
		}
	}
	time.Sleep(time.Second) // all have heard of the guest
	for _, i := range []int{voter, leader} {
		w.houses[i].kill()
		for key, h := range w.held {
			if h.i == i {
				delete(w.held, key)
			}
		}
		if _, err := w.houses[spare].ask("try", fmt.Sprint("beside-", i), serveWithin); err != nil {
			return err.Error()
		}
		time.Sleep(2 * time.Second) // for a false proof of the end of a voter
		h := w.start(i)
		if _, err := h.ask("ready", "", 10*time.Second); err != nil {
			return fmt.Sprintf("no restart beside a guest: %v: %s", err, lastLine(h.log()))
		}
	}
	_, _, terms := w.leads()
	return w.harm(terms)
}

// A guest of the role member stands for no voter, whatever name and boot it shows: none whose
// vote is in the balance, and none before the founding.
func TestAGuestStandsForNoVoter(t *testing.T) {
	if !thorough() {
		t.Skip("part of the matrix")
	}
	t.Run("founding", func(t *testing.T) {
		at := attack{name: "a guest as a first member", run: func(a *attacker) string {
			m := metadata(func(m *meta) { m.Founder, m.Durable = true, true })
			for i := 1; i < 3; i++ {
				if err := a.stands(peer{name(i), hourLater()}, m); err != nil {
					return err.Error()
				}
			}
			time.Sleep(time.Second)
			return ""
		}}
		v := tryBefore(t, withShared, guest, at)
		t.Logf("%-8s %-8s %-48s %v (%v)", v.mode, v.who, v.attack, v, v.took.Round(time.Millisecond))
		expect(t, v)
	})
	t.Run("votes", func(t *testing.T) {
		w := newTown(t, 4, withShared)
		w.tryAlone(guest, "a guest under the names of voters", w.standIn)
	})
}
