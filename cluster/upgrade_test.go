package cluster

import (
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/voters"
)

// nextFormat is made up: no later format exists yet.
const nextFormat = machine.MaxFormat + 1

// The leader knows the newest format advertised by every voter. Thin members do not
// count.
func TestTheLeaderKnowsTheFormatsOfTheVoters(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		far := b.join("far", thin)
		advertise := func(format uint8, nodes ...*Node) {
			for _, n := range nodes {
				n.gossip.Update(func(m *member.Metadata) { m.Format = format })
			}
			time.Sleep(5 * time.Second)
		}
		readable := func() int {
			l := b.leader()
			return voters.Readable(l.seat.Current().Servers(), l.gossip.All(), nextFormat)
		}
		advertise(nextFormat, nodes...)
		advertise(0, far)
		if f := readable(); f != nextFormat {
			t.Errorf("format %d, all voters read %d", f, nextFormat)
		}
		for _, n := range nodes {
			advertise(machine.MaxFormat, n)
			if f := readable(); f != machine.MaxFormat {
				t.Errorf("format %d while %s reads %d", f, n.Name(), machine.MaxFormat)
			}
			advertise(nextFormat, n)
		}
	})
}

// No word of gossip raises the table when a term begins: a voter that does not read the
// table's format votes no more.
func TestATermBeginsWithTheFormatThatItsOwnProcessReads(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		for _, n := range nodes {
			n.gossip.Update(func(m *member.Metadata) { m.Format = nextFormat })
		}
		time.Sleep(5 * time.Second)
		l := b.leader()
		if f := l.ownFormat(l.seat.Current(), nextFormat); f != member.LeastFormat {
			t.Errorf("format %d, by gossip about other voters", f)
		}
	})
	inBubble(t, func(b *bubble) {
		n := b.join("solo", alone)
		n.gossip.Update(func(m *member.Metadata) { m.Format = nextFormat })
		if f := n.ownFormat(n.seat.Current(), nextFormat); f != nextFormat {
			t.Errorf("format %d of the only voter, which reads %d", f, nextFormat)
		}
	})
}

// The table of a new cluster has the latest format, since all members read the format.
func TestANewClusterHasTheLatestFormat(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		b.tables(func(name string, m *machine.State) {
			if f := m.Format(); f != machine.MaxFormat {
				t.Errorf("%s: format %d", name, f)
			}
		})
	})
}

// A member is put back to an earlier version after the table was raised. The
// member neither leads nor votes with a table unlike the other tables, and goes
// on as a thin member.
func TestAVoterThatIsPutBackVotesNoMore(t *testing.T) {
	for _, leads := range []bool{false, true} {
		inBubble(t, func(b *bubble) {
			b.form()
			n := b.followers()[0]
			if leads {
				n = b.leader()
			}
			r := n.seat.Current()
			raise := machine.Raise{Term: b.leader().currentTerm().Number(), Format: nextFormat}
			tableOf(n).Apply(machine.EncodeCommands([]machine.Command{raise}), time.Now())
			if l := n.establish(r, r.Term()); l != nil {
				t.Error("the member leads")
			}
			time.Sleep(10 * time.Second)
			if n.seat.Current() != nil || n.leading.Load() != nil {
				t.Error("the member votes")
			}
			if !b.wasTold(n.Name() + ": node failed") {
				t.Error("nobody was told")
			}
			b.hold(n, 1, "k")
		})
	}
}
