package consensus

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/judge"
	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// hostile is a voter that sends raft messages of its own making, over its own streams.
type hostile struct {
	b    *bench
	name string
}

// open dials the raft of a chair.
func (h hostile) open(to *chair) net.Conn {
	h.b.t.Helper()
	c, err := h.b.dial(h.name)(context.Background(), to.raft().ID())
	if err != nil {
		h.b.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// frame encodes a request that no honest raft may make.
func (h hostile) frame(request any) []byte {
	b, err := judge.AppendRequest(nil, request)
	if err != nil {
		h.b.t.Fatal(err)
	}
	return b
}

// send sends bytes and returns the end of the exchange: nil for an answer of raft.
func (h hostile) send(to *chair, b []byte, answer any) error {
	c := h.open(to)
	defer c.Close()
	if _, err := c.Write(b); err != nil {
		return err
	}
	frame, err := judge.ReadAnswer(c, nil)
	if err != nil {
		return err
	}
	return judge.DecodeAnswer(frame, answer)
}

func (h hostile) header() raft.RPCHeader { return headerOf(h.name + "#1") }

func headerOf(id string) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(id)}
}

// attacks are bytes that a voter may send on its own stream. None is answered by a
// success of raft.
func (h hostile) attacks(to *chair, leader *Raft) map[string][]byte {
	term, last, committed := leader.Term(), leader.LastIndex(), to.raft().raft.CommitIndex()
	log := func(index, term uint64, kind raft.LogType, data string) []*raft.Log {
		return []*raft.Log{{Index: index, Term: term, Type: kind, Data: []byte(data)}}
	}
	entries := func(term, prev, prevTerm uint64, logs []*raft.Log) []byte {
		return h.frame(&raft.AppendEntriesRequest{RPCHeader: h.header(), Term: term, PrevLogEntry: prev, PrevLogTerm: prevTerm, Entries: logs, LeaderCommitIndex: last + 5})
	}
	install := func(index, size uint64, config []byte) []byte {
		return h.frame(&raft.InstallSnapshotRequest{RPCHeader: h.header(), SnapshotVersion: 1, Term: term, LastLogIndex: index, LastLogTerm: term,
			ConfigurationIndex: 1, Configuration: config, Size: int64(size)})
	}
	alone := raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(h.name + "#1"), Address: raft.ServerAddress(h.name + "#1")}}})
	return map[string][]byte{
		"a configuration that does not decode": entries(term+1, last, term, log(last+1, term+1, raft.LogConfiguration, "\xc1")),
		"a configuration without voters":       entries(term+1, last, term, log(last+1, term+1, raft.LogConfiguration, string(raft.EncodeConfiguration(raft.Configuration{})))),
		"an unknown type":                      entries(term+1, last, term, log(last+1, term+1, 77, "")),
		"a second leader of the term":          entries(term, last, term, log(last+1, term, raft.LogCommand, "forged")),
		"an entry in place of a committed one": entries(term+1, committed-1, term, log(committed, term+1, raft.LogCommand, "forged")),
		"the last term of all":                 entries(judge.MaxNumber, last, term, nil),
		"a vote in the last term of all":       h.frame(&raft.RequestVoteRequest{RPCHeader: h.header(), Term: judge.MaxNumber, LastLogIndex: last + 9, LastLogTerm: term + 9, LeadershipTransfer: true}),
		"a stranger's vote":                    h.frame(&raft.RequestVoteRequest{RPCHeader: headerOf("n9#1"), Term: term + 1, LastLogIndex: last, LastLogTerm: term, LeadershipTransfer: true}),
		"a vote of its own next generation":    h.frame(&raft.RequestVoteRequest{RPCHeader: headerOf(h.name + "#2"), Term: term + 1, LastLogIndex: last, LastLogTerm: term, LeadershipTransfer: true}),
		"the leader's name":                    h.frame(&raft.AppendEntriesRequest{RPCHeader: headerOf(leader.ID()), Term: term, PrevLogEntry: last, PrevLogTerm: term, Entries: log(last+1, term, raft.LogCommand, "forged")}),
		"an order to stand":                    h.frame(&raft.TimeoutNowRequest{RPCHeader: h.header()}),
		"a snapshot of 1 TiB":                  install(last+9, 1<<40, alone),
		"a snapshot for one voter":             install(last+9, 100, alone),
		"a frame of 4 GiB":                     {0xff, 0xff, 0xff, 0xff, 1, 1},
		"garbage":                              bytes.Repeat([]byte("\x00\x00\x00\x05garbage"), 100),
		"msgpack":                              {0, 0x87, 0xa4, 'T', 'e', 'r', 'm'},
		"an answer":                            judge.AppendAnswer(nil, &raft.AppendEntriesResponse{Term: judge.MaxNumber, Success: true}, nil),
		"half a frame":                         binary.BigEndian.AppendUint32(nil, 1000),
	}
}

// A voter that sends what it likes over its own stream ends nobody, changes no term
// and no log, and nothing that it sent is in a store at the next start.
func TestAHostileVoterChangesNothing(t *testing.T) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		notes := refused.New(discard)
		noted := func(c *Config) { inDirs(dir)(c); c.Self.Refused = notes }
		b.found(noted)
		b.commit("a")
		b.agree("a")
		leader, f := b.leader(), b.followers()
		h := hostile{b, f[1].name}
		term := leader.raft().Term()
		n := 0
		for _, victim := range []*chair{f[0], leader} {
			for what, attack := range h.attacks(victim, leader.raft()) {
				var a raft.AppendEntriesResponse
				err := h.send(victim, attack, &a)
				if err == nil {
					t.Errorf("%s: answered with %+v", what, a)
				}
				if n++; n%6 == 0 {
					b.commit("b")
				}
				if now := leader.raft().Term(); b.leader() != leader || now != term || victim.raft().Term() != term {
					t.Fatalf("%s: %s leads in term %d, was %s in %d (%v)", what, b.leader().name, now, leader.name, term, err)
				}
			}
		}
		if c := notes.Counts()[refused.Raft]; c < 30 {
			t.Errorf("%d messages are counted as refused", c)
		}
		want := leader.tape().entries()
		b.agree(want...)
		names := []string{"n1", "n2", "n3"}
		for _, name := range names {
			if err := b.stop(name); err != nil {
				t.Error(err)
			}
		}
		for _, name := range names {
			b.start(name, noted)
		}
		b.commit("z")
		b.agree(append(want, "z")...)
	})
}

// An old message of a deposed leader is answered with the present term.
func TestADeposedLeaderLearnsTheTerm(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		b.leader().raft().Transfer(context.Background())
		leader, f := b.leader(), b.followers()
		h := hostile{b, f[1].name}
		var a raft.AppendEntriesResponse
		err := h.send(f[0], h.frame(&raft.AppendEntriesRequest{RPCHeader: h.header(), Term: 1}), &a)
		if err != nil || a.Success || a.Term != leader.raft().Term() {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

// A snapshot that drips is cut, does not stop the voter meanwhile, and gives way to
// the snapshot of the next leader. A damaged one is never in the store.
func TestASnapshotThatDripsGivesWay(t *testing.T) {
	for _, durable := range []bool{false, true} {
		dir := t.TempDir()
		onBench(t, func(b *bench) {
			var change []func(*Config)
			if durable {
				change = append(change, inDirs(dir))
			}
			b.found(change...)
			b.commit("a")
			leader, f := b.leader(), b.followers()
			r := leader.raft()
			// The leader itself sends, as a leader with a fault would.
			faulty := hostile{b, leader.name}
			config := raft.EncodeConfiguration(r.raft.GetConfiguration().Configuration())
			install := func(size int64) []byte {
				return faulty.frame(&raft.InstallSnapshotRequest{RPCHeader: headerOf(r.ID()), SnapshotVersion: 1, Term: r.Term(),
					LastLogIndex: r.LastIndex() + 9, LastLogTerm: r.Term(), ConfigurationIndex: 1, Configuration: config, Size: size})
			}
			snapshots := func() int {
				list, err := f[0].raft().fsm.snapshots.List()
				if err != nil {
					t.Error(err)
				}
				return len(list)
			}

			began := time.Now()
			drip := faulty.open(f[0])
			drip.SetDeadline(time.Now().Add(time.Hour))
			if _, err := drip.Write(install(1 << 30)); err != nil {
				t.Fatal(err)
			}
			var cut error
			for cut == nil && time.Since(began) < time.Minute {
				_, cut = drip.Write([]byte{1})
				time.Sleep(100 * time.Millisecond)
				b.commit(fmt.Sprint(time.Since(began)))
				if b.leader() != leader {
					t.Fatal("a drip costs the leadership")
				}
			}
			if took := time.Since(began); took > 2*timing.RaftIO+time.Second {
				t.Errorf("the drip was cut after %v", took)
			}

			// Damaged: read whole, and refused.
			bad := append(install(64), bytes.Repeat([]byte{'{'}, 64)...)
			if err := faulty.send(f[0], bad, &raft.InstallSnapshotResponse{}); err == nil || !strings.Contains(err.Error(), "snapshot") {
				t.Errorf("a damaged snapshot: %v", err)
			}
			if snapshots() != 0 {
				t.Error("a damaged snapshot is in the store")
			}

			// Another one arrives while one drips: the same leader's takes its place.
			drip = faulty.open(f[0])
			if _, err := drip.Write(install(1 << 30)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if err := faulty.send(f[0], bad, &raft.InstallSnapshotResponse{}); err == nil || !strings.Contains(err.Error(), "snapshot of 64 bytes") {
				t.Errorf("behind a drip: %v", err)
			}
			if _, err := drip.Read(make([]byte, 1)); errors.Is(err, context.DeadlineExceeded) || err == nil {
				t.Errorf("the drip goes on: %v", err)
			}
			b.commit("z")
			if files, _ := filepath.Glob(filepath.Join(dir, "*", raftDir, arrivingFile)); len(files) > 0 {
				t.Errorf("left behind: %q", files)
			}
		})
	}
}

// Only a later term, or the same leader, takes the place of a snapshot that arrives.
func TestSnapshotsArriveOneAtATime(t *testing.T) {
	s := newSpool("", func(io.Reader) error { return nil })
	first := &transfer{term: 5, leader: "a#1", done: make(chan struct{})}
	first.cut = func() {
		s.mu.Lock()
		s.now = nil
		s.mu.Unlock()
		close(first.done)
	}
	if err := s.begin(first); err != nil {
		t.Fatal(err)
	}
	for _, other := range []*transfer{{term: 4, leader: "a#1"}, {term: 5, leader: "b#1"}} {
		if err := s.begin(other); err != errBusy {
			t.Errorf("%+v: %v", other, err)
		}
	}
	if err := s.begin(&transfer{term: 6, leader: "b#1"}); err != nil {
		t.Errorf("of a later term: %v", err)
	}
}

// replacedAround has {n1,n2,n3} become {n4,n5,n3} while n3 is cut off from all others. The
// entries a and b are committed, the second without n3.
func (b *bench) replacedAround() (n3 *chair) {
	b.t.Helper()
	b.found()
	b.commit("a")
	b.agree("a")
	if b.leader().name == "n3" {
		if err := b.leader().raft().TransferTo(context.Background(), "n1#1"); err != nil {
			b.t.Fatal(err)
		}
	}
	n3 = b.all["n3"]
	b.separate("n3", true)
	for _, name := range []string{"n4", "n5"} {
		b.between(name, "n3", true)
		b.invite(b.start(name, newcomer(b, name)))
	}
	// A transfer ends if its vote comes late.
	b.eventually("n4 leads", func() bool {
		l := b.leader()
		return l.name == "n4" || l.raft().TransferTo(context.Background(), b.all["n4"].raft().ID()) == nil
	})
	for _, name := range []string{"n1", "n2"} {
		leader := b.leader()
		if err := leader.raft().Remove(name+"#1", leader.tape().prev()); err != nil {
			b.t.Fatal(err)
		}
		b.kill(b.all[name])
	}
	b.commit("b")
	if slices.Contains(n3.raft().Voters(), b.all["n4"].raft().ID()) {
		b.t.Fatal("n3 knows n4")
	}
	return n3
}

// {n1,n2,n3} became {n4,n5,n3} while n3 was away: n3 knows neither n4 nor n5, takes
// nothing from either on its own word, and is let in by both together.
func TestAVoterThatKnowsNobodyComesBackIn(t *testing.T) {
	onBench(t, func(b *bench) {
		n3 := b.replacedAround()

		// Without n5, n4 is nobody to n3.
		leader := b.leader()
		h := hostile{b, leader.name}
		request := h.frame(&raft.AppendEntriesRequest{RPCHeader: headerOf(leader.raft().ID()), Term: leader.raft().Term()})
		b.between(leader.name, "n3", false)
		other := b.all["n5"]
		if leader == other {
			other = b.all["n4"]
		}
		if err := h.send(n3, request, &raft.AppendEntriesResponse{}); err == nil {
			t.Error("n3 takes an unknown leader on its own word")
		}
		time.Sleep(5 * time.Second)
		if slices.Contains(n3.tape().entries(), "b") {
			t.Error("n3 takes entries of an unknown leader on its own word")
		}

		began := time.Now()
		b.between(other.name, "n3", false)
		b.eventually("n3 is back", func() bool { return slices.Contains(n3.tape().entries(), "b") })
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("back after %v", took)
		}
		b.commit("c")
		b.agree("a", "b", "c")
		if now := b.leader(); now != leader {
			t.Errorf("%s leads, not %s", now.name, leader.name)
		}
	})
}

// between cuts two members off from each other before they have met, or joins them.
func (b *bench) between(one, other string, cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut[[2]string{one, other}], b.cut[[2]string{other, one}] = cut, cut
}

// newcomer has a member begin in the founded cluster without a vote.
func newcomer(b *bench, name string) func(*Config) {
	return func(c *Config) { c.Record = b.record("", name) }
}

// The terms of the others leapt while a voter was away: it comes back in once a
// majority says so.
func TestAVoterComesBackAfterALeapOfTheTerms(t *testing.T) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		b.found(inDirs(dir))
		b.commit("a")
		b.agree("a")
		for _, name := range []string{"n1", "n2", "n3"} {
			if err := b.stop(name); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"n1", "n2"} {
			store, err := raftstore.OpenDurable(filepath.Join(dir, name, raftDir), raftstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(store.SetUint64([]byte("CurrentTerm"), 1<<40), store.Close()); err != nil {
				t.Fatal(err)
			}
		}
		b.start("n1", inDirs(dir))
		b.start("n2", inDirs(dir))
		b.commit("b")
		n3 := b.start("n3", inDirs(dir))
		b.agree("a", "b")
		b.commit("c")
		b.agree("a", "b", "c")
		if now := n3.raft().Term(); now <= 1<<40 {
			t.Errorf("n3 is in term %d", now)
		}
	})
}

// The term of one voter has leapt, by damage or by an attack. No leader can reach it
// in a lower term, so the others follow it there, once it has said so twice. The
// highest term to which one voter can take the others leaves room for elections, and
// for a voter that follows later.
func TestAPoisonedTermHeals(t *testing.T) {
	for _, poison := range []uint64{1 << 40, judge.MaxLeap, judge.MaxLeap + 100} {
		dir := t.TempDir()
		onBench(t, func(b *bench) {
			b.found(inDirs(dir))
			b.commit("a")
			b.agree("a")
			sick, away := b.followers()[0].name, b.followers()[1].name
			if err := b.stop(sick); err != nil {
				t.Fatal(err)
			}
			store, err := raftstore.OpenDurable(filepath.Join(dir, sick, raftDir), raftstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(store.SetUint64([]byte("CurrentTerm"), poison), store.Close()); err != nil {
				t.Fatal(err)
			}
			b.commit("b")
			b.agree("a", "b")
			if err := b.stop(away); err != nil {
				t.Fatal(err)
			}
			healed := b.start(sick, inDirs(dir))
			b.eventually("the voter hears its leader", func() bool { return slices.Contains(healed.tape().entries(), "b") })
			b.commit("c")
			b.agree("a", "b", "c")
			if term := b.leader().raft().Term(); term <= min(poison, judge.MaxLeap) {
				t.Errorf("term %d", term)
			}
			if err := b.stop(sick); err != nil {
				t.Fatal(err)
			}
			b.start(away, inDirs(dir))
			b.commit("d")
			b.agree("a", "b", "c", "d")
		})
	}
}

// Streams that grow old are replaced: no election, no lost message, and every old
// stream is closed by its dialler.
func TestAgeingStreamsCauseNoElection(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		leader := b.leader()
		term := leader.raft().Term()
		b.mu.Lock()
		b.looks = 0
		b.mu.Unlock()
		for round := range 20 {
			b.mu.Lock()
			aged := slices.Clone(b.dialled)
			for _, p := range aged {
				select {
				case <-p.old:
				default:
					close(p.old)
				}
			}
			b.mu.Unlock()
			b.commit(fmt.Sprint(round))
			time.Sleep(3 * time.Second)
			for _, p := range aged {
				p.SetWriteDeadline(time.Now().Add(-1)) // nothing is sent
				if _, err := p.Conn.Write([]byte{0}); !errors.Is(err, io.ErrClosedPipe) {
					t.Fatalf("round %d: an old stream of %s is open: %v", round, p.from, err)
				}
			}
		}
		if b.leader() != leader || leader.raft().Term() != term {
			t.Errorf("%s leads in term %d, was %s in %d", b.leader().name, b.leader().raft().Term(), leader.name, term)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.looks > 0 {
			t.Errorf("%d looks whether the leader has ended", b.looks)
		}
	})
}

// Entries that together exceed a message go out in several, each within the bounds.
func TestLargeEntriesGoOutInParts(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		behind := b.followers()[0]
		b.separate(behind.name, true)
		var want []string
		for i := range 9 {
			want = append(want, strings.Repeat(string(rune('a'+i)), 1<<20))
			b.commit(want[i])
		}
		b.separate(behind.name, false)
		b.agree(append([]string{"a"}, want...)...)
		if _, code := b.leader().raft().Commit(make([]byte, judge.MaxEntry+1)); code == 1 {
			t.Error("an entry that no voter takes is committed")
		}
	})
}

// A voter that has started a moment ago has entries in its table, and does not know
// yet that they are committed. An older snapshot, which a leader with a fault repeats,
// must not undo them: the entries in between may be deleted, and raft would die of the
// gap. The same snapshot may come again, since its answer may have been lost.
func TestASnapshotUndoesNothingAfterARestart(t *testing.T) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		b.found(inDirs(dir))
		b.commit("a")
		b.agree("a")
		leader, follower := b.leader(), b.followers()[0]
		r, victim := leader.raft(), follower.name
		config := raft.EncodeConfiguration(r.raft.GetConfiguration().Configuration())
		install := func(term uint64) []byte {
			var image bytes.Buffer
			if err := r.Table().Snapshot()(&image); err != nil {
				t.Fatal(err)
			}
			return append(hostile{b, leader.name}.frame(&raft.InstallSnapshotRequest{RPCHeader: headerOf(r.ID()), SnapshotVersion: 1, Term: term,
				LastLogIndex: r.LastIndex(), LastLogTerm: r.Term(), ConfigurationIndex: 1, Size: int64(image.Len()), Configuration: config}), image.Bytes()...)
		}
		term := r.Term() + 100
		older := install(term)
		b.commit("b")
		b.agree("a", "b")
		newest := install(term + 100)
		if err := follower.raft().raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"n1", "n2", "n3"} {
			if err := b.stop(name); err != nil {
				t.Fatal(err)
			}
		}
		c := b.start(victim, inDirs(dir))
		var a raft.InstallSnapshotResponse
		err := hostile{b, leader.name}.send(c, older, &a)
		if err == nil || !strings.Contains(err.Error(), "committed here") {
			t.Errorf("an older snapshot: %+v, %v", a, err)
		}
		for range 2 {
			a = raft.InstallSnapshotResponse{}
			if err := (hostile{b, leader.name}).send(c, newest, &a); err != nil || !a.Success {
				t.Errorf("the same snapshot: %+v, %v", a, err)
			}
		}
		if got := c.tape().entries(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("the table is %q", got)
		}
	})
}

// A member that does not vote claims to lead a cluster of one, which a voter has
// joined, and confirms its own claim. The voters follow their leader.
func TestNobodyConfirmsItselfAgainstALivingLeader(t *testing.T) {
	onBench(t, func(b *bench) {
		const liar = "n9#1"
		b.found(func(c *Config) {
			self, honest := c.Self.Name, c.AskFollows
			c.AskFollows = func(ctx context.Context, q wire.FollowsRequest) (wire.FollowsAnswer, error) {
				if q.Voter == liar {
					servers := []wire.FollowsServer{{ID: liar, Voter: true}, {ID: self + "#1"}}
					return wire.FollowsAnswer{Term: q.Term, Leader: liar, Index: 1 << 20, Servers: servers}, nil
				}
				return honest(ctx, q)
			}
		})
		b.commit("a")
		b.agree("a")
		leader := b.leader()
		term := leader.raft().Term()
		forged := hostile{b, "n9"}.frame(&raft.AppendEntriesRequest{RPCHeader: headerOf(liar), Term: term + 1})
		for _, c := range b.all {
			var a raft.AppendEntriesResponse
			if err := (hostile{b, "n9"}).send(c, forged, &a); err == nil {
				t.Errorf("%s believes: %+v", c.name, a)
			}
		}
		b.commit("b")
		b.agree("a", "b")
		if now := leader.raft().Term(); b.leader() != leader || now != term {
			t.Errorf("%s leads in term %d, was %s in %d", b.leader().name, now, leader.name, term)
		}
	})
}

// TestNoiseEndsAtItsFirstBytes: a snapshot that is no image ends while the first part arrives,
// whatever size the request claims, in memory and on a disk.
func TestNoiseEndsAtItsFirstBytes(t *testing.T) {
	wrong := errors.New("no image")
	for _, dir := range []string{"", t.TempDir()} {
		s := newSpool(dir, func(r io.Reader) error {
			var head [4]byte
			if _, err := io.ReadFull(r, head[:]); err != nil {
				return err
			}
			return wrong
		})
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		noise := &counting{}
		_, err := s.receive(far, noise, &raft.InstallSnapshotRequest{Term: 1, Size: 256 << 20})
		if !errors.Is(err, wrong) || noise.n > maxBehind+2*snapshotPart {
			t.Errorf("dir %q: %d bytes were taken: %v", dir, noise.n, err)
		}
		if s.now != nil {
			t.Error("the place is taken")
		}
	}
}

// A check that takes long over a large record does not end the transfer, however fast the
// bytes arrive: its time is not the network's.
func TestASlowCheckEndsNoSnapshot(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		synctest.Test(t, func(t *testing.T) {
			sent := bytes.Repeat([]byte("0123456789"), 3*maxBehind/10)
			s := newSpool(dir, func(r io.Reader) error {
				read := make([]byte, 0, len(sent))
				for len(read) < len(sent) {
					n, err := r.Read(read[len(read):min(cap(read), len(read)+100_000)])
					if read = read[:len(read)+n]; err != nil {
						return err
					}
					if len(read)-n < maxBehind && len(read) >= maxBehind {
						time.Sleep(3 * timing.RaftIO)
					}
				}
				if !bytes.Equal(read, sent) {
					t.Error("the check has read other bytes than were sent")
				}
				return nil
			})
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			go near.Write(sent)
			a, err := s.receive(far, far, &raft.InstallSnapshotRequest{Term: 1, Size: int64(len(sent))})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(a.reader()); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%d bytes are in the spool: %v", len(got), err)
			}
			a.remove()
		})
	}
}

// counting reads zeros without end, and counts them.
type counting struct{ n int64 }

func (c *counting) Read(b []byte) (int, error) {
	clear(b)
	c.n += int64(len(b))
	return len(b), nil
}
