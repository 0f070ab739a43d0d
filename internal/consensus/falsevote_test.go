package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/judge"
	"github.com/wardmote/wardmote/internal/timing"
)

// grants turns a voter's refusal of a vote into a vote for c, whichever term c stands in.
// The voter itself knows nothing of it. The argument is the result of a read of an answer.
func grants(c *chair) func(read []byte) []byte {
	return func(read []byte) []byte {
		frame := read
		if len(frame) > 4 && int(binary.BigEndian.Uint32(frame)) == len(frame)-4 {
			frame = frame[4:]
		}
		const requestVote, requestPreVote = 64 + 2, 64 + 3 // the kinds of the answers
		r := c.seat.Current()
		if r == nil || len(frame) != 8 || frame[5] != requestVote && frame[5] != requestPreVote {
			return read
		}
		frame[6], frame[7] = byte(r.Term()), 1 // small terms take a byte
		if frame[5] == requestPreVote {
			frame[6]++
		}
		binary.BigEndian.PutUint32(frame, crc32.Checksum(frame[4:], crc32.MakeTable(crc32.Castagnoli)))
		return read
	}
}

// onFalseVote has n1 lead {n1,n2,n3} and commit entries behind n3's back, and has n3
// elected by a false vote of n2: n3 lacks entries that n1 and n2 know to be committed. With
// five voters n5 lacks them too, and votes for n3 and follows it in good faith.
func onFalseVote(t *testing.T, always, five bool, f func(b *bench)) {
	onBench(t, func(b *bench) {
		b.found()
		if five {
			b.leader()
			b.invite(b.start("n4", newcomer(b, "n4")))
			b.invite(b.start("n5", newcomer(b, "n5")))
		}
		b.commit("a")
		b.agree("a")
		if b.leader().name != "n1" {
			if err := b.leader().raft().TransferTo(b.t.Context(), "n1#1"); err != nil {
				t.Fatal(err)
			}
		}
		n1, n3 := b.all["n1"], b.all["n3"]
		b.eventually("n1 leads", func() bool { return b.leader() == n1 })
		for _, c := range b.all {
			b.eventually(c.name+" has all entries so far", func() bool { return c.raft().LastIndex() == n1.raft().LastIndex() })
		}
		b.separate("n3", true)
		if five {
			b.separate("n5", true)
		}
		b.commit("b")
		b.commit("c")
		for _, name := range []string{"n2", "n4"} {
			if c := b.all[name]; c != nil {
				b.eventually(name+" has applied all", func() bool { return len(c.tape().entries()) == 3 })
			}
		}
		if b.leader() != n1 {
			t.Fatal("n1 leads no more")
		}
		b.mu.Lock()
		b.mangled, b.mangle = "n2", grants(n3)
		b.mu.Unlock()
		b.mu.Lock() // n3 may ask, and nobody brings n3 and n5 the entries meanwhile
		b.cut[[2]string{"n3", "n2"}], b.cut[[2]string{"n3", "n5"}] = false, false
		b.mu.Unlock()
		b.eventually("n3 is elected", func() bool { _, leads := n3.raft().Leadership(); return leads })
		b.separate("n3", false)
		if five {
			b.separate("n5", false)
		}
		if !always {
			b.mu.Lock()
			b.mangled = ""
			b.mu.Unlock()
		}
		f(b)
	})
}

// A false vote elects a voter that lacks committed entries. The voters that know the
// entries to be committed refuse its entries, give it up, and elect a voter of their own.
func TestALeaderThatLacksCommittedEntriesIsGivenUp(t *testing.T) {
	for n := range 4 {
		onFalseVote(t, n&1 > 0, n&2 > 0, func(b *bench) {
			began, n3 := time.Now(), b.all["n3"].raft()
			term := n3.Term()
			b.eventually("n3 is given up", func() bool { return !n3.Leads(term) })
			b.commit("d")
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the next entry took %v", took)
			}
			b.agree("a", "b", "c", "d")
		})
	}
}

// A leader loses nothing by messages that come late and twice, and little by a voter that
// refuses it by mistake: the voter deposes nobody, and is back timing.Disproved later.
func TestASoundLeaderIsNotGivenUp(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		for _, entry := range []string{"a", "b", "c"} {
			b.commit(entry)
		}
		b.agree("a", "b", "c")
		leader, f := b.leader(), b.followers()
		r, term := leader.raft(), leader.raft().Term()
		h := hostile{b, leader.name}
		for index := uint64(2); index <= r.LastIndex(); index++ {
			var before, entry raft.Log
			if err := errors.Join(r.store.GetLog(index-1, &before), r.store.GetLog(index, &entry)); err != nil {
				t.Fatal(err)
			}
			late := h.frame(&raft.AppendEntriesRequest{RPCHeader: headerOf(r.ID()), Term: term, PrevLogEntry: index - 1, PrevLogTerm: before.Term, Entries: []*raft.Log{&entry}})
			if err := h.send(f[0], late, &raft.AppendEntriesResponse{}); err != nil {
				t.Error(err)
			}
			if f[0].raft().trans.rules.Disproved(r.ID(), term) {
				t.Fatal("a late message disproves its leader")
			}
		}

		// The leader's memory flips a bit of one message.
		wrong := h.frame(&raft.AppendEntriesRequest{RPCHeader: headerOf(r.ID()), Term: term, PrevLogEntry: 1, PrevLogTerm: 1,
			Entries: []*raft.Log{{Index: 2, Term: term, Type: 77}}})
		if err := h.send(f[0], wrong, &raft.AppendEntriesResponse{}); err == nil || !f[0].raft().trans.rules.Disproved(r.ID(), term) {
			t.Fatalf("a wrong message proves nothing: %v", err)
		}
		b.commit("d")
		b.agree("a", "b", "c", "d") // entries are judged as ever
		time.Sleep(timing.Disproved + timing.MostElection)
		if got := f[0].raft().LeaderID(); got != r.ID() {
			t.Errorf("the voter follows %q in the end", got)
		}
		if !r.Leads(term) {
			t.Error("a voter alone has deposed the leader")
		}
	})
}

// The term of a malformed message may be anything. It stands in the way of no later proof.
func TestAnOldProofMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d disproved
		note := func(term uint64) {
			m := &raft.AppendEntriesRequest{RPCHeader: headerOf("n1#1"), Term: term}
			d.note(m, &judge.Refusal{Entry: 1}, func() []string { return []string{"n1#1"} })
		}
		note(1 << 60)
		note(7)
		if d.is("n1#1", 7) {
			t.Error("the newest proof counts, and no earlier one")
		}
		time.Sleep(timing.Disproved + 1)
		if note(7); !d.is("n1#1", 7) {
			t.Error("the proof of a term that nobody has stands in the way")
		}
	})
}

// Nobody disproves another voter, and a sender without a vote is not remembered.
func TestAProofIsAgainstItsSender(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		b.agree("a")
		leader, f := b.leader(), b.followers()
		term := leader.raft().Term()
		victim, liar := f[0], f[1].name
		for _, name := range []string{liar, "n9"} {
			for id := range 3 {
				from := fmt.Sprintf("%s#%d", name, id+1)
				wrong := hostile{b, name}.frame(&raft.AppendEntriesRequest{RPCHeader: headerOf(from), Term: term + 1, PrevLogEntry: 1, PrevLogTerm: 1,
					Entries: []*raft.Log{{Index: 2, Term: term + 1, Type: 77}}})
				if err := (hostile{b, name}).send(victim, wrong, &raft.AppendEntriesResponse{}); err == nil {
					t.Error("a wrong message is taken")
				}
			}
		}
		without := &victim.raft().trans.without
		if n := len(without.leaders); n != 1 || !without.is(liar+"#1", term+1) {
			t.Errorf("%d senders are remembered: %v", n, without.leaders)
		}
		if err := leader.raft().TransferTo(b.t.Context(), liar+"#1"); err != nil {
			t.Error(err)
		}
		b.commit("b")
		b.agree("a", "b")
	})
}
