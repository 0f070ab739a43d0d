package judge

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// voter is the raft of a#1 in the middle of a quiet term: a, b and c vote, d learns,
// b leads term 5, and the entries up to 20 are committed. The entries up to 10 are of
// term 3, the rest of term 5.
type voter struct {
	term      uint64
	leader    string
	commit    uint64
	latest    raft.Configuration
	committed raft.Configuration
	confirmed []Doubt
	base      uint64 // of term 3
	disproved string // in term 6
}

func (v *voter) ID() string                    { return "a#1" }
func (v *voter) Standing() (uint64, string)    { return v.term, v.leader }
func (v *voter) CommitIndex() uint64           { return v.commit }
func (v *voter) Latest() raft.Configuration    { return v.latest }
func (v *voter) Committed() raft.Configuration { return v.committed }

func (v *voter) Base() (uint64, uint64) {
	if v.base == 0 {
		return 0, 0
	}
	return v.base, 3
}

func (v *voter) TermAt(index uint64) (uint64, bool) {
	switch {
	case index < 3 || index > 25: // compacted, or not there yet
		return 0, false
	case index <= 10:
		return 3, true
	}
	return 5, true
}

func (v *voter) Confirmed(d Doubt) bool {
	for _, c := range v.confirmed {
		if c == d {
			return true
		}
	}
	return false
}

func (v *voter) Disproved(leader string, term uint64) bool { return v.disproved == leader && term == 6 }

// config returns a configuration: upper-case names vote.
func config(names ...string) (c raft.Configuration) {
	for _, n := range names {
		s := raft.Server{Suffrage: raft.Nonvoter}
		if strings.ToUpper(n) == n {
			s.Suffrage = raft.Voter
		}
		id := strings.ToLower(n)
		if !strings.Contains(id, "#") {
			id += "#1"
		}
		s.ID, s.Address = raft.ServerID(id), raft.ServerAddress(id)
		c.Servers = append(c.Servers, s)
	}
	return c
}

func quiet() *voter {
	return &voter{term: 5, leader: "b#1", commit: 20, latest: config("A", "B", "C", "d"), committed: config("A", "B", "C", "d")}
}

func header(id string) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(id)}
}

func entries(from string, term, prev, prevTerm uint64, logs ...raft.Log) *raft.AppendEntriesRequest {
	m := &raft.AppendEntriesRequest{RPCHeader: header(from), Term: term, PrevLogEntry: prev, PrevLogTerm: prevTerm, LeaderCommitIndex: prev + 1}
	for i := range logs {
		logs[i].Index = prev + 1 + uint64(i)
		m.Entries = append(m.Entries, &logs[i])
	}
	return m
}

func of(term uint64) raft.Log { return raft.Log{Term: term, Data: []byte("x")} }

func configured(term uint64, data []byte) raft.Log {
	return raft.Log{Term: term, Type: raft.LogConfiguration, Data: data}
}

func install(from string, term, index, lastTerm uint64) *raft.InstallSnapshotRequest {
	return &raft.InstallSnapshotRequest{RPCHeader: header(from), SnapshotVersion: 1, Term: term, LastLogIndex: index, LastLogTerm: lastTerm,
		Configuration: raft.EncodeConfiguration(config("A", "B", "C")), ConfigurationIndex: 1, Size: 100}
}

func ballot(from string, term, lastTerm uint64) *raft.RequestVoteRequest {
	return &raft.RequestVoteRequest{RPCHeader: header(from), Term: term, LastLogIndex: 30, LastLogTerm: lastTerm}
}

// unled is a voter without a leader that may vote for a stranger.
func unled(stranger string, term uint64) func(*voter) {
	return func(v *voter) {
		v.leader, v.confirmed = "", []Doubt{{Sender: stranger, Term: term, Vote: true, Stranger: true}}
	}
}

const (
	passes  = "passes"
	refuses = "refuses"
	doubts  = "doubts"
)

func verdict(err error) string {
	var d Doubt
	var r *Refusal
	switch {
	case err == nil:
		return passes
	case errors.As(err, &d):
		return doubts
	case errors.As(err, &r):
		return refuses
	}
	return fmt.Sprint("neither a Refusal nor a Doubt: ", err)
}

func TestJudge(t *testing.T) {
	b, c, d, e := Sender{Name: "b", Voter: true}, Sender{Name: "c", Voter: true}, Sender{Name: "d", Voter: true}, Sender{Name: "e", Voter: true}
	self := Sender{Self: true}
	huge := func(m *raft.InstallSnapshotRequest, change func(*raft.InstallSnapshotRequest)) *raft.InstallSnapshotRequest {
		change(m)
		return m
	}
	for _, row := range []struct {
		why     string
		change  func(*voter)
		from    Sender
		request any
		want    string
	}{
		// Who speaks.
		{"the leader replicates", nil, b, entries("b#1", 5, 20, 5, of(5)), passes},
		{"the leader's heartbeat", nil, b, entries("b#1", 5, 0, 0), passes},
		{"a certificate without the voter's role speaks for nobody", nil, Sender{Name: "b"}, entries("b#1", 5, 0, 0), refuses},
		{"a member lends no other member its stream", nil, c, entries("b#1", 5, 0, 0), refuses},
		{"names are compared whole", nil, Sender{Name: "b", Voter: true}, entries("bb#1", 6, 0, 0), refuses},
		{"an ID without a generation is nobody's", nil, e, entries("e", 6, 0, 0), refuses},
		{"nobody speaks from outside in this raft's name", nil, Sender{Name: "a", Voter: true}, ballot("a#1", 6, 5), refuses},
		{"the stream to itself carries no other name", nil, self, &raft.TimeoutNowRequest{RPCHeader: header("b#1")}, refuses},

		// Who leads.
		{"raft answers a deposed leader with its own term", nil, c, entries("c#1", 4, 0, 0), passes},
		{"even a stranger that was deposed", nil, e, entries("e#1", 4, 0, 0), passes},
		{"a term has one leader", nil, c, entries("c#1", 5, 0, 0), refuses},
		{"also if this raft is the leader", func(v *voter) { v.leader = "a#1" }, c, entries("c#1", 5, 0, 0), refuses},
		{"a voter may have been elected", nil, c, entries("c#1", 6, 20, 5, of(6)), passes},
		{"in the term in which this raft has voted too", func(v *voter) { v.leader = "" }, c, entries("c#1", 5, 0, 0), passes},
		{"a leader that was disproved hears nothing from a heartbeat", func(v *voter) { v.leader, v.disproved = "", "c#1" }, c, entries("c#1", 6, 0, 0), refuses},
		{"its entries are judged", func(v *voter) { v.leader, v.disproved = "", "c#1" }, c, entries("c#1", 6, 20, 5, of(6)), passes},
		{"it may lead another term", func(v *voter) { v.leader, v.disproved = "", "c#1" }, c, entries("c#1", 7, 0, 0), passes},
		{"and another voter the same", func(v *voter) { v.leader, v.disproved = "", "c#1" }, b, entries("b#1", 6, 0, 0), passes},
		{"a learner may have become a voter while this one was away", nil, d, entries("d#1", 6, 0, 0), doubts},
		{"a stranger may be a voter since this one was away", nil, e, entries("e#1", 6, 0, 0), doubts},
		{"another generation of a voter is another server", nil, b, entries("b#2", 6, 0, 0), doubts},
		{"an invited raft without a configuration knows nobody", func(v *voter) { *v = voter{} }, b, entries("b#1", 5, 0, 0), doubts},
		{"the voters have confirmed the stranger", func(v *voter) { v.confirmed = []Doubt{{Sender: "e#1", Term: 6}} }, e, entries("e#1", 6, 0, 0), passes},
		{"for one term", func(v *voter) { v.confirmed = []Doubt{{Sender: "e#1", Term: 6}} }, e, entries("e#1", 7, 0, 0), doubts},
		{"the word for a candidate is none for a leader", func(v *voter) { v.confirmed = []Doubt{{Sender: "e#1", Term: 6, Vote: true}} }, e, entries("e#1", 6, 0, 0), doubts},
		{"a leader that has removed itself commits its removal", func(v *voter) { v.latest = config("A", "C") }, b, entries("b#1", 5, 20, 5, of(5)), passes},
		{"a leader removed here in an entry that may not be committed", func(v *voter) { v.leader, v.latest = "", config("A", "C") }, b, entries("b#1", 6, 20, 5, of(6)), passes},
		{"the term rises as far as elections take it", nil, c, entries("c#1", 5+Leap, 0, 0), passes},
		{"and no further on one voter's word", nil, c, entries("c#1", 6+Leap, 0, 0), doubts},
		{"at the end of the numbers neither", nil, c, entries("c#1", MaxNumber, 0, 0), doubts},
		{"the others are that far", func(v *voter) { v.confirmed = []Doubt{{Sender: "c#1", Term: 1 << 40}} }, c, entries("c#1", 1<<40, 0, 0), passes},

		// Entries.
		{"entries of earlier terms, in order", nil, b, entries("b#1", 5, 9, 3, of(3), of(5), of(5)), passes},
		{"terms do not fall", nil, b, entries("b#1", 5, 20, 5, of(5), of(4)), refuses},
		{"nor below the entry before", nil, b, entries("b#1", 5, 20, 5, of(4)), refuses},
		{"nor exceed the leader's", nil, b, entries("b#1", 5, 20, 5, of(6)), refuses},
		{"an entry has a term", nil, b, entries("b#1", 5, 0, 0, of(0)), refuses},
		{"the entry before has a term too", nil, b, entries("b#1", 5, 20, 0), refuses},
		{"and a term belongs to an entry", nil, b, entries("b#1", 5, 0, 3), refuses},
		{"the entry before is not of the future", nil, b, entries("b#1", 5, 20, 6), refuses},
		{"a committed entry stays", nil, b, entries("b#1", 5, 19, 5, of(5)), passes},
		{"for a leader of a later term as well", nil, c, entries("c#1", 6, 19, 5, of(6)), refuses},
		{"a forged entry below the commit index", nil, c, entries("c#1", 6, 4, 3, of(5)), refuses},
		{"a compacted entry cannot be compared", nil, b, entries("b#1", 5, 1, 3, of(3)), refuses},
		{"raft would append an entry that a snapshot covers to a log that ends below", func(v *voter) { v.commit = 40 }, b, entries("b#1", 5, 25, 5, of(5)), refuses},
		{"an entry that is not committed may be replaced", nil, c, entries("c#1", 6, 20, 5, of(6)), passes},
		{"raft panics at a type that it does not know", nil, b, entries("b#1", 5, 20, 5, raft.Log{Term: 5, Type: 99}), refuses},
		{"and changes its peers at a deprecated one", nil, b, entries("b#1", 5, 20, 5, raft.Log{Term: 5, Type: raft.LogAddPeerDeprecated}), refuses},
		{"a new leader's first entry", nil, b, entries("b#1", 5, 20, 5, raft.Log{Term: 5, Type: raft.LogNoop}), passes},
		{"a barrier", nil, b, entries("b#1", 5, 20, 5, raft.Log{Term: 5, Type: raft.LogBarrier}), passes},
		{"a configuration", nil, b, entries("b#1", 5, 20, 5, configured(5, raft.EncodeConfiguration(config("A", "B", "C")))), passes},
		{"raft stores an undecodable configuration and panics then", nil, b, entries("b#1", 5, 20, 5, configured(5, []byte{0xc1})), refuses},
		{"also from a stranger, whatever the others would say", nil, e, entries("e#1", 6, 20, 5, configured(6, []byte{0xc1})), refuses},

		// Snapshots.
		{"a snapshot with entries that are missing here", nil, b, install("b#1", 5, 40, 5), passes},
		{"the next leader's", nil, c, install("c#1", 6, 40, 5), passes},
		{"a stranger's", nil, e, install("e#1", 6, 40, 5), doubts},
		{"another leader's in this term", nil, c, install("c#1", 5, 40, 5), refuses},
		{"a late one would undo committed entries", nil, b, install("b#1", 5, 19, 5), refuses},
		{"the same once more, since the answer was lost", nil, b, install("b#1", 5, 20, 5), passes},
		{"of another entry than the committed one", nil, b, install("b#1", 5, 20, 4), refuses},
		{"of a term to come", nil, b, install("b#1", 5, 40, 6), refuses},
		{"of nothing", nil, b, install("b#1", 5, 0, 0), refuses},
		{"larger than any table", nil, b, huge(install("b#1", 5, 40, 5), func(m *raft.InstallSnapshotRequest) { m.Size = MaxSnapshot + 1 }), refuses},
		{"empty", nil, b, huge(install("b#1", 5, 40, 5), func(m *raft.InstallSnapshotRequest) { m.Size = 0 }), refuses},
		{"with a configuration that panics", nil, b, huge(install("b#1", 5, 40, 5), func(m *raft.InstallSnapshotRequest) { m.Configuration = []byte{1} }), refuses},
		{"with a configuration from behind its end", nil, b, huge(install("b#1", 5, 40, 5), func(m *raft.InstallSnapshotRequest) { m.ConfigurationIndex = 41 }), refuses},

		// Votes.
		{"a voter stands", nil, c, ballot("c#1", 6, 5), passes},
		{"and asks before it stands", nil, c, &raft.RequestPreVoteRequest{RPCHeader: header("c#1"), Term: 6, LastLogIndex: 30, LastLogTerm: 5}, passes},
		{"a learner has no vote", nil, d, ballot("d#1", 6, 5), refuses},
		{"a stranger has none beside a leader", nil, e, ballot("e#1", 6, 5), refuses},
		{"this voter may have been away for long", func(v *voter) { v.leader = "" }, e, ballot("e#1", 6, 5), doubts},
		{"nobody follows a leader, and the stranger shows its configuration", unled("e#1", 6), e, ballot("e#1", 6, 5), passes},
		{"in one term", unled("e#1", 6), e, ballot("e#1", 7, 5), doubts},
		{"not to a term far away", unled("e#1", 6+Leap), e, ballot("e#1", 6+Leap, 5), refuses},
		{"the word for a leader is none for a stranger's vote", func(v *voter) {
			v.leader, v.confirmed = "", []Doubt{{Sender: "e#1", Term: 6}, {Sender: "e#1", Term: 6, Vote: true}}
		}, e, ballot("e#1", 6, 5), doubts},
		{"an ID without a generation stands for nobody", func(v *voter) { v.leader = "" }, e, ballot("e", 6, 5), refuses},
		{"another generation has none", nil, c, ballot("c#2", 6, 5), refuses},
		{"a raft without a configuration would vote for anybody", func(v *voter) { *v = voter{} }, b, ballot("b#1", 1, 0), doubts},
		{"a candidate's term is above its entries'", nil, c, ballot("c#1", 6, 6), refuses},
		{"a candidate of the last term of all", nil, c, ballot("c#1", MaxNumber, 5), doubts},
		{"the others are near it", func(v *voter) { v.confirmed = []Doubt{{Sender: "c#1", Term: 1 << 40, Vote: true}} }, c, ballot("c#1", 1<<40, 5), passes},

		// An election by order.
		{"the leader chooses its successor", nil, b, &raft.TimeoutNowRequest{RPCHeader: header("b#1")}, passes},
		{"nobody else does", nil, c, &raft.TimeoutNowRequest{RPCHeader: header("c#1")}, refuses},
		{"nobody at all without a leader", func(v *voter) { v.leader = "" }, b, &raft.TimeoutNowRequest{RPCHeader: header("b#1")}, refuses},
		{"this voter for itself", nil, self, &raft.TimeoutNowRequest{RPCHeader: header("a#1")}, passes},
		{"not without a vote: raft would stand all the same", func(v *voter) { v.latest = config("a", "B", "C") }, b, &raft.TimeoutNowRequest{RPCHeader: header("b#1")}, refuses},
	} {
		v := quiet()
		if row.change != nil {
			row.change(v)
		}
		err := Judge(v, row.from, row.request)
		if got := verdict(err); got != row.want {
			t.Errorf("%s: %s (%v), want %s", row.why, got, err, row.want)
		}
	}
}

// The commit index covers no entry that the message does not cover: this voter may
// have other entries there, of an earlier leader.
func TestTheCommitIndexCoversTheMessageOnly(t *testing.T) {
	m := entries("b#1", 5, 20, 5, of(5), of(5))
	for m.LeaderCommitIndex = 20; m.LeaderCommitIndex < 30; m.LeaderCommitIndex++ {
		asked := m.LeaderCommitIndex
		if err := Judge(quiet(), Sender{Name: "b", Voter: true}, m); err != nil {
			t.Fatal(err)
		}
		if want := min(asked, 22); m.LeaderCommitIndex != want {
			t.Errorf("commit index %d of entries up to 22 became %d", asked, m.LeaderCommitIndex)
		}
		m.LeaderCommitIndex = asked
	}
}

// Raft may not find the last entry of its snapshot in its log. The entries behind keep
// their indexes, and the commit index what it covers.
func TestTheEndOfASnapshotIsTheBeginning(t *testing.T) {
	for _, row := range []struct {
		why                  string
		base, prev, prevTerm uint64
		cleared              bool
	}{
		{"no snapshot", 0, 20, 5, false},
		{"the snapshot's last entry", 7, 7, 3, true},
		{"another entry", 6, 7, 3, false},
		{"of another term", 7, 7, 4, false},
	} {
		v := quiet()
		v.base, v.commit = row.base, min(row.base, 7)
		m := entries("b#1", 5, row.prev, row.prevTerm, of(5), of(5))
		first := m.Entries[0].Index
		m.LeaderCommitIndex = 30
		if err := Judge(v, Sender{Name: "b", Voter: true}, m); err != nil {
			t.Fatal(err)
		}
		if cleared := m.PrevLogEntry == 0 && m.PrevLogTerm == 0; cleared != row.cleared || m.Entries[0].Index != first || m.LeaderCommitIndex != row.prev+2 {
			t.Errorf("%s: behind %d of term %d, entry %d, commit index %d", row.why, m.PrevLogEntry, m.PrevLogTerm, m.Entries[0].Index, m.LeaderCommitIndex)
		}
	}
}

func TestConfiguration(t *testing.T) {
	many := make([]string, MaxServers+1)
	for i := range many {
		many[i] = fmt.Sprintf("N%d", i)
	}
	long := strings.Repeat("L", 64) + "#3W5E11264SGSF" // the longest ID
	for _, c := range []raft.Configuration{config("A"), config("A", "B", "C", "d"), config("A", long), config(many[:16]...), config(many[:MaxServers]...)} {
		got, err := Configuration(raft.EncodeConfiguration(c))
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c) {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	bad := map[string]raft.Configuration{
		"no server":          config(),
		"no voter":           config("a", "b"),
		"too many":           config(many...),
		"one server twice":   config("A", "B", "a"),
		"an ID without name": config("A", "#1"),
		"another address":    {Servers: []raft.Server{{ID: "a#1", Address: "b#1"}}},
		"a staging server":   {Servers: []raft.Server{{ID: "a#1", Address: "a#1"}, {ID: "b#1", Address: "b#1", Suffrage: raft.Staging}}},
		"a strange suffrage": {Servers: []raft.Server{{ID: "a#1", Address: "a#1", Suffrage: 99}}},
	}
	for what, c := range bad {
		if got, err := Configuration(raft.EncodeConfiguration(c)); err == nil {
			t.Errorf("%s is taken: %v", what, got)
		}
	}
	whole := string(raft.EncodeConfiguration(config("A", "B")))
	for _, text := range []string{
		"", "\xc1", "\x81\xa7Servers", whole[:len(whole)-1], whole + "\x00", "\x81\xa7Servers\xdd\xff\xff\xff\xff",
		strings.Replace(whole, "\xa3a#1", "\xdb\xff\xff\xff\xff", 1), strings.Replace(whole, "\x92", "\xdc\x00\x02", 1),
	} {
		if got, err := Configuration([]byte(text)); err == nil {
			t.Errorf("%q is taken: %v", text, got)
		}
	}
}

func TestConfirm(t *testing.T) {
	leads := Doubt{Sender: "d#1", Term: 9}
	follows := func(leader string, term uint64) Word { return Word{Term: term, Leader: leader} }
	show := func(index uint64, c raft.Configuration) Word {
		return Word{Term: 9, Leader: "d#1", Index: index, Servers: c.Servers}
	}
	for _, row := range []struct {
		why   string
		shown Word
		words map[string]Word
		want  bool
	}{
		{"a majority follows", show(30, config("D", "E", "C")), map[string]Word{"e#1": follows("d#1", 9)}, true},
		{"the sender alone with this voter is none", show(30, config("D", "E", "C")), nil, false},
		{"this voter's place is not enough", show(30, config("D", "C")), nil, false},
		{"a word of an earlier term is none", show(30, config("D", "E", "C")), map[string]Word{"e#1": follows("d#1", 8)}, false},
		{"a word for another leader contradicts", show(30, config("D", "E", "F", "C")),
			map[string]Word{"e#1": follows("d#1", 9), "f#1": follows("d#1", 9), "a#1": follows("b#1", 9)}, false},
		{"a leader of an earlier term contradicts nobody", show(30, config("D", "E", "C")),
			map[string]Word{"e#1": follows("d#1", 9), "a#1": follows("b#1", 8)}, true},
		{"a candidate contradicts nobody", show(30, config("D", "E", "C")), map[string]Word{"e#1": follows("d#1", 9), "a#1": follows("", 12)}, true},
		{"learners do not count", show(30, config("D", "E", "F", "c", "g")), map[string]Word{"g#1": follows("d#1", 9)}, false},
		{"an invitation into a cluster of one", show(30, config("D", "c")), nil, true},
		{"a cluster of one, and a voter here follows a living leader", show(30, config("D", "c")), map[string]Word{"b#1": follows("a#1", 5)}, false},
		{"a cluster of one, and this raft follows a living leader", show(30, config("D", "c")), map[string]Word{"c#1": follows("a#1", 5)}, false},
		{"a cluster of one, which the others have joined", show(30, config("D", "c")), map[string]Word{"b#1": follows("d#1", 9), "a#1": follows("", 5)}, true},
		{"this voter has elected the sender", show(30, config("D", "E", "C")), map[string]Word{"c#1": {Term: 9, Voted: true}}, true},
		{"its vote is one of many", show(30, config("D", "E", "F", "G", "C")), map[string]Word{"c#1": {Term: 9, Voted: true}}, false},
		{"a learner's vote counts nothing", show(30, config("D", "E", "c")), map[string]Word{"c#1": {Term: 9, Voted: true}}, false},
		{"it has elected the sender, and a voter follows a living leader", show(30, config("D", "E", "C")),
			map[string]Word{"c#1": {Term: 9, Voted: true}, "b#1": follows("a#1", 5)}, false},
		{"it does not name this raft", show(30, config("D", "E", "F")), map[string]Word{"e#1": follows("d#1", 9), "f#1": follows("d#1", 9)}, false},
		{"older than what is committed here", show(3, config("D", "E", "C")), map[string]Word{"e#1": follows("d#1", 9)}, false},
		{"one voter twice is no majority", show(30, config("D", "D", "C")), nil, false},
		{"the sender follows another leader", Word{Term: 9, Leader: "e#1", Index: 30, Servers: config("D", "E", "C").Servers}, map[string]Word{"e#1": follows("d#1", 9)}, false},
	} {
		words := map[string]Word{"d#1": row.shown}
		for id, w := range row.words {
			words[id] = w
		}
		_, ok := Shown("c#1", 7, leads, row.shown)
		if got := ok && Confirm("c#1", leads, words); got != row.want {
			t.Errorf("%s: %t", row.why, got)
		}
	}

	far := Doubt{Sender: "b#1", Term: 1 << 40, Vote: true}
	near := func(terms ...uint64) map[string]Word {
		words := make(map[string]Word)
		for i, term := range terms {
			words[fmt.Sprint(i)] = Word{Term: term}
		}
		return words
	}
	if !Near(far, 3, near(1<<40, 1<<40-Leap)) || Near(far, 3, near(1<<40, 1<<40-Leap-1)) || Near(far, 5, near(1<<40, 1<<40)) {
		t.Error("a term is near when a majority of all voters has come as far")
	}
}

func TestJudgeAnswer(t *testing.T) {
	append5, vote5 := &raft.AppendEntriesRequest{Term: 5}, &raft.RequestVoteRequest{Term: 5}
	for _, row := range []struct {
		why             string
		request, answer any
		want            string
	}{
		{"yes", append5, &raft.AppendEntriesResponse{Term: 5, Success: true}, passes},
		{"a newer term ends the leadership", append5, &raft.AppendEntriesResponse{Term: 9}, passes},
		{"a leap does not on its own word", append5, &raft.AppendEntriesResponse{Term: 6 + Leap}, doubts},
		{"a leap that the server has confirmed", append5, &raft.AppendEntriesResponse{Term: 1 << 40}, passes},
		{"nobody says yes in another term", append5, &raft.AppendEntriesResponse{Term: 6, Success: true}, refuses},
		{"a vote", vote5, &raft.RequestVoteResponse{Term: 5, Granted: true}, passes},
		{"a vote in another term", vote5, &raft.RequestVoteResponse{Term: 4, Granted: true}, refuses},
		{"a candidate takes over no leap", vote5, &raft.RequestVoteResponse{Term: MaxLeap}, doubts},
		{"nor before it stands", &raft.RequestPreVoteRequest{Term: 5}, &raft.RequestPreVoteResponse{Term: MaxNumber}, doubts},
		{"a snapshot", &raft.InstallSnapshotRequest{Term: 5}, &raft.InstallSnapshotResponse{Term: 5, Success: true}, passes},
		{"a snapshot beyond", &raft.InstallSnapshotRequest{Term: 5}, &raft.InstallSnapshotResponse{Term: MaxNumber}, doubts},
		{"an order", &raft.TimeoutNowRequest{}, &raft.TimeoutNowResponse{}, passes},
	} {
		v := quiet()
		v.confirmed = []Doubt{{Sender: "b#1", Term: 1 << 40, Answer: true}}
		if err := JudgeAnswer(v, "b#1", row.request, row.answer); verdict(err) != row.want {
			t.Errorf("%s: %v, want %s", row.why, err, row.want)
		}
	}
}

// The highest leap leaves room: elections go on above, a voter that follows later
// comes near by a leap to MaxLeap, and nobody leaps farther.
func TestElectionsGoOnAboveTheHighestLeap(t *testing.T) {
	for _, row := range []struct {
		own, answer uint64
		want        string
		seen        uint64
	}{
		{MaxLeap, MaxLeap + 1, passes, MaxLeap + 1},
		{MaxLeap + 100, MaxLeap + 101, passes, MaxLeap + 101},
		{5, MaxLeap + 100, passes, MaxLeap},
		{5, MaxNumber, passes, MaxLeap},
		{MaxLeap, MaxNumber, refuses, MaxNumber},
		{MaxLeap - Leap, MaxLeap + 9, passes, MaxLeap},
	} {
		v := quiet()
		v.term, v.leader = row.own, ""
		v.confirmed = []Doubt{{Sender: "b#1", Term: MaxLeap, Answer: true}}
		a := raft.RequestPreVoteResponse{Term: row.answer}
		if err := JudgeAnswer(v, "b#1", &raft.RequestPreVoteRequest{Term: row.own}, &a); verdict(err) != row.want || a.Term != row.seen {
			t.Errorf("an answer of term %d in term %d: %v, and raft sees the term %d", row.answer, row.own, err, a.Term)
		}
	}
	v := quiet()
	v.term, v.leader = MaxLeap, ""
	if err := JudgeAnswer(v, "b#1", &raft.RequestVoteRequest{Term: MaxLeap + 1}, &raft.RequestVoteResponse{Term: MaxLeap + 1, Granted: true}); err != nil {
		t.Errorf("a vote behind a leap to the highest term: %v", err)
	}
}

// A voter that does not know a candidate looks at the candidate's configuration and at the
// leaders of the others.
func TestTheVoteOfAStranger(t *testing.T) {
	d := Doubt{Sender: "d#1", Term: 9, Vote: true, Stranger: true}
	show := func(leader string, term, index uint64, c raft.Configuration) Word {
		return Word{Term: term, Leader: leader, Index: index, Servers: c.Servers}
	}
	for _, row := range []struct {
		why    string
		shown  Word
		leader string // of a voter that was asked
		want   bool
	}{
		{"before it stands", show("", 8, 7, config("D", "E", "C")), "", true},
		{"once it stands", show("", 9, 30, config("D", "E", "C")), "", true},
		{"it was removed", show("", 8, 6, config("D", "E", "C")), "", false},
		{"it does not name this raft", show("", 8, 30, config("D", "E")), "", false},
		{"this raft has no vote there", show("", 8, 30, config("D", "E", "c")), "", false},
		{"nor has the candidate", show("", 8, 30, config("d", "E", "C")), "", false},
		{"it follows a leader", show("e#1", 8, 30, config("D", "E", "C")), "", false},
		{"it is in a later term", show("", 10, 30, config("D", "E", "C")), "", false},
		{"one of them twice", show("", 8, 30, config("D", "D", "C")), "", false},
		{"somebody follows a leader", show("", 8, 30, config("D", "E", "C")), "b#1", false},
	} {
		_, ok := Shown("c#1", 7, d, row.shown)
		words := map[string]Word{"d#1": row.shown, "c#1": {Term: 8}, "e#1": {Term: 5, Leader: row.leader}}
		if got := ok && Unled(words); got != row.want {
			t.Errorf("%s: %t", row.why, got)
		}
	}
}

// Raft is shown the ID of a voter that it knows in place of a stranger's, and records the
// vote under the stranger's address.
func TestRaftVotesForTheStrangersAddress(t *testing.T) {
	for _, m := range []raft.WithRPCHeader{ballot("e#1", 6, 5), &raft.RequestPreVoteRequest{RPCHeader: header("e#1"), Term: 6, LastLogIndex: 30, LastLogTerm: 5}} {
		v := quiet()
		unled("e#1", 6)(v)
		if err := Judge(v, Sender{Name: "e", Voter: true}, m); err != nil {
			t.Fatal(err)
		}
		if h := m.GetRPCHeader(); !votes(v.latest, string(h.ID)) || string(h.Addr) != "e#1" {
			t.Errorf("%T of %s at %s", m, h.ID, h.Addr)
		}
	}
}

// An entry that no sound leader of its term can have disproves the sender. A message that
// is late, comes twice, or cannot be compared does not.
func TestWhatDisprovesALeader(t *testing.T) {
	snapshot := func(v *voter) { v.base, v.commit = 40, 40 } // the log ends at 25
	for _, row := range []struct {
		why    string
		change func(*voter)
		m      *raft.AppendEntriesRequest
		want   uint64 // Refusal.Entry
	}{
		{"a committed entry once more", nil, entries("b#1", 5, 19, 5, of(5)), 0},
		{"an old message", nil, entries("b#1", 5, 9, 3, of(3), of(5), of(5)), 0},
		{"an old message, compacted here", nil, entries("b#1", 5, 1, 3, of(3)), 0},
		{"an old message, in front of the log and in it", nil, entries("b#1", 5, 1, 3, of(3), of(3)), 0},
		{"an old message that a snapshot covers", snapshot, entries("b#1", 5, 26, 3, of(3)), 0},
		{"another entry in place of a committed one", nil, entries("c#1", 6, 4, 3, of(5)), 5},
		{"the second of two", nil, entries("c#1", 6, 9, 3, of(3), of(6)), 11},
		{"a new leader's first entry in place of a committed one", nil, entries("c#1", 6, 19, 5, of(6)), 20},
		{"behind the committed ones", nil, entries("c#1", 6, 20, 5, of(6)), 0},
		{"an entry in front of the log, of a term behind the committed ones", nil, entries("c#1", 6, 1, 3, of(6)), 2},
		{"the last entry of a snapshot, in another term", snapshot, entries("b#1", 5, 39, 2, of(2)), 40},
		{"the same in its own", snapshot, entries("b#1", 5, 39, 3, of(3)), 0},
		{"an unknown type", nil, entries("b#1", 5, 20, 5, of(5), raft.Log{Term: 5, Type: 99}), 22},
		{"terms that fall", nil, entries("b#1", 5, 20, 5, of(4)), 21},
		{"a configuration that does not decode", nil, entries("b#1", 5, 20, 5, configured(5, []byte{0xc1})), 21},
		{"another leader of the term", nil, entries("c#1", 5, 4, 3, of(5)), 0},
		{"a deposed leader's", nil, entries("c#1", 4, 12, 3, of(4)), 0},
		{"a heartbeat", nil, entries("b#1", 5, 0, 0), 0},
	} {
		v := quiet()
		if row.change != nil {
			row.change(v)
		}
		var got uint64
		var no *Refusal
		err := Judge(v, Sender{Name: strings.TrimSuffix(string(row.m.ID), "#1"), Voter: true}, row.m)
		if errors.As(err, &no) {
			got = no.Entry
		}
		if got != row.want {
			t.Errorf("%s: entry %d (%v), want %d", row.why, got, err, row.want)
		}
	}
}
