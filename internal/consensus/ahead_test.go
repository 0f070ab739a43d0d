package consensus

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// slowly has each write of all disks take so long.
func slowly(disks map[string]*sickDisk, takes time.Duration) {
	for _, d := range disks {
		d.mu.Lock()
		d.slow = takes
		d.mu.Unlock()
	}
}

// TestServersWriteWhileTheirLeaderDoes: a commit takes the time of one write, and not of two
// one after the other.
func TestServersWriteWhileTheirLeaderDoes(t *testing.T) {
	onSickDisks(t, func(b *bench, disks map[string]*sickDisk) {
		b.commit("before") // the servers have acknowledged the log in this term
		r := b.leader().raft()
		time.Sleep(time.Second)
		const takes = 40 * time.Millisecond
		slowly(disks, takes)
		want := []string{"before"}
		for i := range 50 {
			want = append(want, fmt.Sprint(i))
			began := time.Now()
			if _, code := r.Commit([]byte(want[i+1])); code != wire.CodeOK {
				t.Fatal(code)
			}
			if took := time.Since(began); took != takes {
				t.Errorf("commit %d took %v", i, took)
			}
			time.Sleep(time.Duration(i) * time.Millisecond * 10) // sometimes raft tells the commit in between, and sometimes not
			synctest.Wait()                                      // and no exchange is under way
		}
		b.agree(want...)
	})
}

// TestAnEntryIsCommittedByItsLeadersDiskToo: two of three voters have written an entry, and
// the leader, which has not, acknowledges nothing and applies nothing, nor do the others.
// The next leader commits the entry.
func TestAnEntryIsCommittedByItsLeadersDiskToo(t *testing.T) {
	onSickDisks(t, func(b *bench, disks map[string]*sickDisk) {
		b.commit("before")
		sick := b.leader()
		time.Sleep(time.Second)
		synctest.Wait() // no exchange is under way
		hang := make(chan struct{})
		disks[sick.name].set(hang, nil)
		answered := make(chan wire.Code, 1)
		go func() {
			_, code := sick.raft().Commit([]byte("ahead"))
			answered <- code
		}()
		time.Sleep(timing.StoreStalled - time.Second)
		for _, c := range b.all {
			last, err := c.raft().store.LastIndex()
			var l raft.Log
			if err == nil {
				err = c.raft().store.GetLog(last, &l)
			}
			if has := string(l.Data) == "ahead"; err != nil || has == (c == sick) {
				t.Errorf("%s: newest entry %q, %v", c.name, l.Data, err)
			}
			if got := c.tape().entries(); !slices.Equal(got, []string{"before"}) {
				t.Errorf("%s has applied %q", c.name, got)
			}
		}
		select {
		case code := <-answered:
			t.Errorf("answered with %v", code)
		default:
		}
		b.eventually("the member retires", func() bool { return sick.seat.Current() == nil })
		b.commit("after")
		b.agree("before", "ahead", "after")
		close(hang)
		if code := <-answered; code != wire.CodeUnknown {
			t.Errorf("answered with %v", code)
		}
	})
}

// TestTheFateOfAnEntryThatFailsHereIsUnknown: the leader's write fails, and the entry is
// committed by the others.
func TestTheFateOfAnEntryThatFailsHereIsUnknown(t *testing.T) {
	onSickDisks(t, func(b *bench, disks map[string]*sickDisk) {
		b.commit("before")
		sick := b.leader()
		time.Sleep(time.Second)
		synctest.Wait() // no exchange is under way
		disks[sick.name].set(nil, errors.New("input/output error"))
		if _, code := sick.raft().Commit([]byte("ahead")); code != wire.CodeUnknown {
			t.Errorf("answered with %v", code)
		}
		b.eventually("the member retires", func() bool { return sick.seat.Current() == nil })
		b.commit("after")
		b.agree("before", "ahead", "after")
	})
}

// TestMessagesSentAheadAreLost: whatever becomes of them, raft's own messages follow.
func TestMessagesSentAheadAreLost(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onSickDisks(t, func(b *bench, disks map[string]*sickDisk) {
				random := rand.New(rand.NewPCG(seed, 1))
				names := []string{"n1", "n2", "n3"}
				var want []string
				for i := range 60 {
					for _, d := range disks {
						d.mu.Lock()
						d.slow = time.Duration(random.IntN(30)) * time.Millisecond
						d.mu.Unlock()
					}
					if random.IntN(4) == 0 {
						name := names[random.IntN(len(names))]
						after, back := time.Duration(random.IntN(40))*time.Millisecond, time.Duration(random.IntN(900))*time.Millisecond
						b.wg.Go(func() {
							time.Sleep(after)
							b.separate(name, true)
							time.Sleep(back)
							b.separate(name, false)
						})
					}
					entry := fmt.Sprint(i)
					_, code := b.leader().raft().Commit([]byte(entry))
					b.leader()
					// An entry of unknown fate is committed now, or never: a barrier of a later leader
					// has passed.
					if b.eventually("the entry's fate is known", func() bool { return b.leader().raft().Barrier() == nil }); slices.Contains(b.leader().tape().entries(), entry) {
						want = append(want, entry)
					} else if code == wire.CodeOK {
						t.Fatalf("entry %d was acknowledged and is lost", i)
					}
				}
				for _, name := range names {
					b.separate(name, false)
				}
				time.Sleep(2 * time.Second)
				b.agree(want...)
			})
		})
	}
}

// TestTheServersThatAreSentEntriesAhead: only those that have acknowledged the whole log in
// this term, and have no other message of entries.
func TestTheServersThatAreSentEntriesAhead(t *testing.T) {
	const id = "a"
	entry := func(index, term uint64) *raft.Log { return &raft.Log{Index: index, Term: term} }
	args := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 2}
	with := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 2, Entries: []*raft.Log{entry(8, 3), entry(9, 3)}}
	yes, no := &raft.AppendEntriesResponse{Term: 3, Success: true}, &raft.AppendEntriesResponse{Term: 3}
	exchange := func(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, err error) func(*ahead) {
		return func(a *ahead) {
			a.begin(id)
			a.end(id, args, resp, err)
		}
	}
	for name, tc := range map[string]struct {
		then  func(*ahead)
		first *raft.Log
		want  bool
		at    uint64
	}{
		"the next entry":       {nil, entry(8, 3), true, 7},
		"behind entries":       {exchange(with, yes, nil), entry(10, 3), true, 9},
		"a later entry":        {nil, entry(9, 3), false, 0},
		"an earlier entry":     {nil, entry(7, 3), false, 0},
		"an entry of another":  {nil, entry(8, 2), false, 0},
		"another term":         {nil, entry(8, 4), false, 0},
		"a refusal since":      {exchange(args, no, nil), entry(8, 3), false, 0},
		"a failure since":      {exchange(args, yes, errors.New("gone")), entry(8, 3), false, 0},
		"an exchange":          {func(a *ahead) { a.begin(id) }, entry(8, 3), false, 0},
		"being sent ahead":     {func(a *ahead) { a.take(entry(8, 3)) }, entry(8, 3), false, 0},
		"sent ahead":           {func(a *ahead) { a.take(entry(8, 3)); a.leave(id, &aheadMessage{}) }, entry(8, 3), false, 0},
		"not sent after all":   {func(a *ahead) { a.take(entry(8, 3)); a.leave(id, nil) }, entry(8, 3), true, 7},
		"sent ahead and asked": {func(a *ahead) { a.take(entry(8, 3)); a.leave(id, &aheadMessage{}); exchange(with, yes, nil)(a) }, entry(10, 3), true, 9},
	} {
		t.Run(name, func(t *testing.T) {
			a := ahead{servers: make(map[raft.ServerID]*aheadServer)}
			exchange(args, yes, nil)(&a)
			if tc.then != nil {
				tc.then(&a)
			}
			at, ok := a.take(tc.first)[id]
			if ok != tc.want || at.index != tc.at {
				t.Errorf("%t, %+v", ok, at)
			}
		})
	}
}

// TestAMessageOfAFormerLeaderHoldsNoStream: a leader sends entries ahead and is deposed
// before its raft asks for them.
func TestAMessageOfAFormerLeaderHoldsNoStream(t *testing.T) {
	onSickDisks(t, func(b *bench, disks map[string]*sickDisk) {
		b.commit("before")
		leader := b.leader()
		for _, former := range b.all {
			if former == leader {
				continue
			}
			trans := former.raft().trans
			c, err := trans.pool.dialNew(leader.raft().id)
			if err != nil {
				t.Fatal(err)
			}
			trans.ahead.begin(raft.ServerID(c.id))
			trans.ahead.leave(raft.ServerID(c.id), &aheadMessage{args: &raft.AppendEntriesRequest{Term: former.raft().Term()}, stream: c, began: time.Now()})
			time.Sleep(2 * timing.Attend)
			select {
			case <-c.ended:
			default:
				t.Errorf("the stream of %s is kept", former.name)
			}
			if trans.ahead.begin(raft.ServerID(c.id)) != nil {
				t.Errorf("the message of %s is kept", former.name)
			}
		}
	})
}

// TestTheMessagesThatAreAbandoned: those of a former term, of a removed server, and old ones.
func TestTheMessagesThatAreAbandoned(t *testing.T) {
	began := time.Now()
	for name, tc := range map[string]struct {
		age     time.Duration
		serving bool
		want    int
	}{
		"raft may ask":       {timing.RaftIO - 1, true, 0},
		"raft asks too late": {timing.RaftIO, true, 1},
		"raft never asks":    {0, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			const id, term = "a", 3
			a := ahead{servers: map[raft.ServerID]*aheadServer{
				id:      {sent: &aheadMessage{args: &raft.AppendEntriesRequest{Term: term}, stream: &dialled{}, began: began}},
				"other": {},
			}}
			serving := func(server string, of uint64) bool { return tc.serving && server == id && of == term }
			if got := a.abandoned(began.Add(tc.age), serving); len(got) != tc.want {
				t.Errorf("%d streams are dropped", len(got))
			}
			if m := a.begin(id); (m == nil) != (tc.want == 1) {
				t.Errorf("kept: %t", m != nil)
			}
		})
	}
}

// TestAnAnswerFromAheadAnswersOneMessage: raft is told of entries that the server was sent.
func TestAnAnswerFromAheadAnswersOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 2, Entries: []*raft.Log{{}, {}}}
		m := &aheadMessage{args: &sent, began: time.Now()}
		for name, tc := range map[string]struct {
			change func(*raft.AppendEntriesRequest)
			want   bool
		}{
			"the same":      {func(*raft.AppendEntriesRequest) {}, true},
			"more entries":  {func(a *raft.AppendEntriesRequest) { a.Entries = append(a.Entries[:2:2], &raft.Log{}) }, true},
			"fewer entries": {func(a *raft.AppendEntriesRequest) { a.Entries = a.Entries[:1] }, false},
			"another place": {func(a *raft.AppendEntriesRequest) { a.PrevLogEntry-- }, false},
			"another log":   {func(a *raft.AppendEntriesRequest) { a.PrevLogTerm-- }, false},
			"another term":  {func(a *raft.AppendEntriesRequest) { a.Term++ }, false},
		} {
			args := sent
			if tc.change(&args); m.answers(&args) != tc.want {
				t.Errorf("%s: %t", name, !tc.want)
			}
		}
		if time.Sleep(timing.ToldContact); m.answers(&sent) {
			t.Error("an old answer is a sign of life")
		}
	})
}
