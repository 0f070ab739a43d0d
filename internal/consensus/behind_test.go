package consensus

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/timing"
)

// A leader in the place of an honest one sends messages to the only voter that runs.
type lone struct {
	hostile
	victim *chair
	leader string // a raft ID
}

// onLone founds a cluster with one committed entry, and runs one voter of it alone.
func onLone(t *testing.T, f func(b *bench, l lone, again func() *chair)) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		b.found(inDirs(dir))
		b.commit("a")
		b.agree("a")
		l := lone{hostile: hostile{b, b.leader().name}, leader: b.leader().raft().ID()}
		victim := b.followers()[0].name
		for _, name := range []string{"n1", "n2", "n3"} {
			if err := b.stop(name); err != nil {
				t.Fatal(err)
			}
		}
		l.victim = b.start(victim, inDirs(dir))
		f(b, l, func() *chair {
			if err := b.stop(victim); err != nil {
				t.Fatal(err)
			}
			return b.start(victim, inDirs(dir))
		})
	})
}

// snapshot returns the request for a snapshot with these entries, and its bytes.
func (l lone) snapshot(term, index, indexTerm uint64, entries ...string) (request, body []byte) {
	l.b.t.Helper()
	var image bytes.Buffer
	if err := (&tape{state: tapeState{1, entries}}).Snapshot()(&image); err != nil {
		l.b.t.Fatal(err)
	}
	config := raft.EncodeConfiguration(l.victim.raft().raft.GetConfiguration().Configuration())
	return l.frame(&raft.InstallSnapshotRequest{RPCHeader: headerOf(l.leader), SnapshotVersion: 1, Term: term,
		LastLogIndex: index, LastLogTerm: indexTerm, ConfigurationIndex: 1, Size: int64(image.Len()), Configuration: config}), image.Bytes()
}

// append sends entries of the term behind prev, and returns whether raft has taken them.
func (l lone) append(term, prev, prevTerm uint64, commit uint64, entries ...string) bool {
	l.b.t.Helper()
	m := &raft.AppendEntriesRequest{RPCHeader: headerOf(l.leader), Term: term, PrevLogEntry: prev, PrevLogTerm: prevTerm, LeaderCommitIndex: commit}
	for i, text := range entries {
		m.Entries = append(m.Entries, &raft.Log{Index: prev + 1 + uint64(i), Term: term, Type: raft.LogCommand, Data: []byte(text)})
	}
	var a raft.AppendEntriesResponse
	if err := l.send(l.victim, l.frame(m), &a); err != nil {
		l.b.t.Logf("term %d behind %d: %v", term, prev, err)
	}
	return a.Success
}

// A voter installs a snapshot into a log without the last entry of the snapshot. The
// entries behind the snapshot come twice, as after a lost answer, or change, as under
// the next leader; both leaders have no earlier entries to offer. An earlier leader's
// entries below the snapshot's end must not stay in the log: this voter would send
// them to others once it leads.
func TestAVoterGoesOnBehindASnapshot(t *testing.T) {
	const ahead = 10 // from the last entry here to the end of the snapshot
	for _, left := range []int{0, 1, ahead, ahead + 2} {
		onLone(t, func(b *bench, l lone, again func() *chair) {
			r := l.victim.raft()
			var newest raft.Log
			if err := r.store.GetLog(r.LastIndex(), &newest); err != nil {
				t.Fatal(err)
			}
			term, end := r.Term()+10, newest.Index+ahead
			if left > 0 && !l.append(term, newest.Index, newest.Term, 0, slices.Repeat([]string{"never committed"}, left)...) {
				t.Fatal("the entries of an earlier leader are refused")
			}
			request, body := l.snapshot(term+1, end, term+1, "a", "b")
			if err := l.send(l.victim, append(request, body...), &raft.InstallSnapshotResponse{}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if !l.append(term+1, end, term+1, 0, "c", "d") {
					t.Errorf("%d entries left: the leader's entries behind its snapshot are refused", left)
				}
			}
			l.victim = again()
			r = l.victim.raft()
			if !l.append(term+2, end, term+1, end+1, "e") {
				t.Errorf("%d entries left: the next leader's entries behind the snapshot are refused", left)
			}
			b.eventually("the entries are applied", func() bool { return slices.Equal(l.victim.tape().entries(), []string{"a", "b", "e"}) })
			for index := uint64(1); index <= end; index++ {
				if err := r.store.GetLog(index, &newest); !errors.Is(err, raft.ErrLogNotFound) {
					t.Errorf("%d entries left: the entry %d of term %d is in the log, %v", left, index, newest.Term, err)
				}
			}
			if l.append(term+2, end, term, 0, "of another history") {
				t.Error("entries behind another entry than the snapshot's last are taken")
			}
		})
	}
}

// A snapshot of an earlier term is answered on its header, with the present term.
func TestAStaleSnapshotIsRefusedUnread(t *testing.T) {
	onLone(t, func(b *bench, l lone, _ func() *chair) {
		r := l.victim.raft()
		stale := r.Term()
		if !l.append(stale+1, 0, 0, 0) {
			t.Fatal("a heartbeat is refused")
		}
		request, _ := l.snapshot(stale, r.LastIndex()+9, stale, "z")
		var a raft.InstallSnapshotResponse
		if err := l.send(l.victim, request, &a); err != nil || a.Success || a.Term != stale+1 {
			t.Errorf("without its bytes: %+v, %v", a, err)
		}
		if entries := l.victim.tape().entries(); slices.Contains(entries, "z") {
			t.Errorf("the table is %q", entries)
		}
	})
}

// A leader repeats its requests while a follower's disk hangs: a request of each kind
// waits there, however long the disk hangs.
func TestRequestsDoNotPileUpOnAHungDisk(t *testing.T) {
	onSickDisks(t, func(b *bench, disks map[string]*sickDisk) {
		hang := make(chan struct{})
		b.commit("a")
		sick := b.followers()[0]
		r, leader := sick.raft(), b.leader()
		disks[sick.name].set(hang, nil)
		b.commit("b")
		h := hostile{b, leader.name}
		request := h.frame(&raft.AppendEntriesRequest{RPCHeader: headerOf(leader.raft().ID()), Term: leader.raft().Term()})
		most := 0
		for began := time.Now(); time.Since(began) < timing.StoreHung-time.Second; time.Sleep(timing.RaftIO / 20) {
			c := h.open(sick)
			if _, err := c.Write(request); err != nil {
				t.Fatal(err)
			}
			c.Close() // the sender has given up
			r.stream.mu.Lock()
			most = max(most, len(r.stream.accepted))
			r.stream.mu.Unlock()
		}
		if most > 30 {
			t.Errorf("%d streams are served", most)
		}
		close(hang)
	})
}

// A snapshot that raft cannot take gives way to the same leader's next one.
func TestASnapshotWaitsForTheSpoolInVain(t *testing.T) {
	onBench(t, func(b *bench) {
		s := newSpool("", func(io.Reader) error { return nil })
		if err := s.begin(&transfer{term: 5, leader: "a#1", cut: func() {}, done: make(chan struct{})}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := s.begin(&transfer{term: 6, leader: "a#1"}); err != errBusy || time.Since(began) != timing.RaftIO {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
