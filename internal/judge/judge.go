package judge

import (
	"bytes"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/member"
)

// Sender is the other end of a stream, as the stream's beginning has shown it.
type Sender struct {
	Name  string // of the member
	Voter bool   // the member may act as a voter
	Self  bool   // the stream comes from this very raft
}

// Raft is the part of this voter's raft known to the rules. All methods return at once.
type Raft interface {
	ID() string
	Standing() (term uint64, leader string) // read together; "" if raft follows nobody
	CommitIndex() uint64
	Latest() raft.Configuration
	Committed() raft.Configuration
	TermAt(index uint64) (term uint64, ok bool) // of an entry in the log

	// Base returns the last entry of a snapshot that is in the table, or zeros. The
	// log need not have the entry.
	Base() (index, term uint64)

	// Confirmed reports whether the other voters have confirmed the sender of a
	// Doubt.
	Confirmed(Doubt) bool

	// Disproved reports whether the leader of a term has sent an entry a moment ago
	// that no leader of the term has: see Refusal.Entry.
	Disproved(leader string, term uint64) bool
}

// Refusal is a message that raft must not see.
type Refusal struct {
	Reason string

	// Entry is not zero if the message disproves its sender: the entry of this index in
	// the message is in the log of no sound leader of the message's term.
	Entry uint64
}

func (r *Refusal) Error() string { return r.Reason }

func refuse(format string, args ...any) error { return &Refusal{Reason: fmt.Sprintf(format, args...)} }

// disprove is refuse for a message with an entry that no sound leader has.
func disprove(entry uint64, format string, args ...any) error {
	return &Refusal{fmt.Sprintf(format, args...), entry}
}

// Doubt is a message that raft must not see unless other voters confirm the sender:
// as the leader of the term; for a vote, that the term is near to theirs; for the vote of
// a stranger, that nobody follows a leader; for an answer, the sender itself that it is in
// the term.
type Doubt struct {
	Sender   string // a raft ID
	Term     uint64
	Vote     bool
	Stranger bool // the candidate has no vote in the configuration here
	Answer   bool
}

func (d Doubt) Error() string {
	if d.Stranger {
		return fmt.Sprintf("%s is not known as a voter, and stands in term %d", d.Sender, d.Term)
	}
	if d.Answer {
		return fmt.Sprintf("term %d in the answer of %s is far ahead", d.Term, d.Sender)
	}
	if d.Vote {
		return fmt.Sprintf("term %d of the candidate %s is far ahead", d.Term, d.Sender)
	}
	return fmt.Sprintf("%s is not known as leader of term %d", d.Sender, d.Term)
}

// Judge returns nil if raft may see the request, which DecodeRequest returned. Else
// Judge returns a *Refusal or a Doubt. Judge changes a request that passes:
//
//   - Judge lowers the commit index of a message of entries to the last entry that the
//     message itself covers: entries behind may be left from an earlier leader.
//   - Judge clears the entry before, if that entry is Raft.Base: raft may not find it.
//   - Judge replaces the ID of a candidate that the configuration here does not know: see
//     judgeStranger.
func Judge(r Raft, from Sender, request any) error {
	h := request.(raft.WithRPCHeader).GetRPCHeader()
	if err := judgeSender(r, from, h.ID); err != nil {
		return err
	}
	switch m := request.(type) {
	case *raft.AppendEntriesRequest:
		return judgeEntries(r, m)
	case *raft.InstallSnapshotRequest:
		return judgeSnapshot(r, m)
	case *raft.RequestVoteRequest:
		return judgeVote(r, &m.RPCHeader, m.Term, m.LastLogTerm)
	case *raft.RequestPreVoteRequest:
		return judgeVote(r, &m.RPCHeader, m.Term, m.LastLogTerm)
	case *raft.TimeoutNowRequest:
		return judgeTimeout(r, from, m.ID)
	}
	return refuse("%T", request)
}

// judgeSender compares the ID in the message with the stream.
func judgeSender(r Raft, from Sender, id []byte) error {
	name, _, _ := bytes.Cut(id, []byte("#"))
	switch {
	case from.Self != (string(id) == r.ID()):
		return refuse("message in the name of %q, which is this raft", id)
	case from.Self:
		return nil
	case !from.Voter:
		return refuse("%q may not act as a voter", from.Name)
	case string(name) != from.Name:
		return refuse("%q sends in the name of %q", from.Name, id)
	}
	return nil
}

func judgeEntries(r Raft, m *raft.AppendEntriesRequest) error {
	if m.PrevLogTerm > m.Term || (m.PrevLogEntry == 0) != (m.PrevLogTerm == 0) {
		return refuse("entries behind the entry %d of term %d in term %d", m.PrevLogEntry, m.PrevLogTerm, m.Term)
	}
	last := m.PrevLogTerm
	for _, l := range m.Entries {
		if l.Term < last || l.Term == 0 || l.Term > m.Term {
			return disprove(l.Index, "entry %d of term %d behind term %d in term %d", l.Index, l.Term, last, m.Term)
		}
		last = l.Term
		switch l.Type {
		case raft.LogCommand, raft.LogNoop, raft.LogBarrier:
		case raft.LogConfiguration:
			if _, err := Configuration(l.Data); err != nil {
				return disprove(l.Index, "entry %d: %v", l.Index, err)
			}
		default:
			return disprove(l.Index, "entry %d of the type %d", l.Index, l.Type)
		}
	}
	if stale, err := judgeLeader(r, m.ID, m.Term); stale || err != nil {
		return err
	}
	if m.PrevLogEntry == 0 && len(m.Entries) == 0 && r.Disproved(string(m.ID), m.Term) {
		return refuse("heartbeat of %q, whose entries in term %d were refused a moment ago", m.ID, m.Term)
	}
	if err := judgeCommitted(r, m.Entries); err != nil {
		return err
	}
	m.LeaderCommitIndex = min(m.LeaderCommitIndex, m.PrevLogEntry+uint64(len(m.Entries)))
	// Raft looks for the entry before in its log, and finds the snapshot's last entry
	// only until the log has an entry behind: then the leader would send the snapshot
	// for ever. A message without an entry before begins at the first entry of the log,
	// and raft compares nothing. Nor need it: both logs have this entry, since it is
	// committed, and so all entries in front of it.
	if index, term := r.Base(); m.PrevLogEntry == index && m.PrevLogTerm == term {
		m.PrevLogEntry, m.PrevLogTerm = 0, 0
	}
	return nil
}

// judgeCommitted compares entries with the committed ones.
//
// The log of a leader has all entries committed before its term, and keeps them. So an
// entry in place of a committed one disproves the leader, also if the message is old or
// comes twice. The committed entry may be known by nothing but the order of terms: an
// entry of a later term than a committed entry behind it is in no log with the committed
// one. A leader that lacks committed entries has such an entry: the first of its own term.
func judgeCommitted(r Raft, entries []*raft.Log) error {
	commit := r.CommitIndex()
	if len(entries) == 0 || entries[0].Index > commit {
		return nil
	}
	newest, known := committedTerm(r, commit)
	for _, l := range entries {
		if l.Index > commit {
			break
		}
		switch mine, ok := committedTerm(r, l.Index); {
		case ok && mine != l.Term:
			return disprove(l.Index, "entry %d of term %d in place of the committed entry of term %d", l.Index, l.Term, mine)
		case known && l.Term > newest:
			return disprove(l.Index, "entry %d of term %d in front of the committed entry %d of term %d", l.Index, l.Term, commit, newest)
		}
		if _, ok := r.TermAt(l.Index); !ok {
			return refuse("entry %d, which a snapshot covers here", l.Index)
		}
	}
	return nil
}

// committedTerm returns the term of a committed entry, if the log or the snapshot in the
// table shows it.
func committedTerm(r Raft, index uint64) (term uint64, ok bool) {
	if base, term := r.Base(); index == base && base != 0 {
		return term, true
	}
	return r.TermAt(index)
}

func judgeSnapshot(r Raft, m *raft.InstallSnapshotRequest) error {
	if m.LastLogIndex == 0 || m.LastLogTerm == 0 || m.LastLogTerm > m.Term ||
		m.ConfigurationIndex == 0 || m.ConfigurationIndex > m.LastLogIndex {
		return refuse("snapshot of the entry %d of term %d, with the configuration of %d, in term %d",
			m.LastLogIndex, m.LastLogTerm, m.ConfigurationIndex, m.Term)
	}
	if m.Size <= 0 || m.Size > MaxSnapshot {
		return refuse("snapshot of %d bytes", m.Size)
	}
	if _, err := Configuration(m.Configuration); err != nil {
		return refuse("snapshot: %v", err)
	}
	if stale, err := judgeLeader(r, m.ID, m.Term); stale || err != nil {
		return err
	}
	mine, known := r.TermAt(m.LastLogIndex)
	if commit := r.CommitIndex(); m.LastLogIndex < commit || m.LastLogIndex == commit && known && mine != m.LastLogTerm {
		return refuse("snapshot of the entry %d, although the entry %d is committed here", m.LastLogIndex, commit)
	}
	return nil
}

// judgeLeader judges the sender of entries or a snapshot. A message of an earlier
// term is stale: raft answers with its own term and does nothing else.
func judgeLeader(r Raft, sender []byte, term uint64) (stale bool, err error) {
	own, leader := r.Standing()
	switch {
	case term < own:
		return true, nil
	case term == own && leader != "":
		if leader != string(sender) {
			return false, refuse("%q leads in term %d, in which %q leads", sender, term, leader)
		}
		return false, nil
	}
	id := string(sender)
	if _, _, err := member.ParseRaftID(id); err != nil {
		return false, refuse("sender %q", id)
	}
	if term <= own+Leap && (votes(r.Latest(), id) || votes(r.Committed(), id)) {
		return false, nil
	}
	if d := (Doubt{Sender: id, Term: term}); !r.Confirmed(d) {
		return false, d
	}
	return false, nil
}

func judgeVote(r Raft, h *raft.RPCHeader, term, lastTerm uint64) error {
	id := string(h.ID)
	if lastTerm >= term {
		return refuse("candidate of term %d with an entry of term %d", term, lastTerm)
	}
	own, leader := r.Standing()
	if !votes(r.Latest(), id) {
		if leader != "" || term > own+Leap {
			return refuse("candidate %q, which has no vote here", id)
		}
		return judgeStranger(r, h, term)
	}
	if term > own+Leap {
		if d := (Doubt{Sender: id, Term: term, Vote: true}); !r.Confirmed(d) {
			return d
		}
	}
	return nil
}

// judgeStranger judges a candidate without a vote in the configuration here. This raft may
// have been away while the configuration changed, or may have been added a moment ago and
// have no entry yet; and the election may need its vote.
//
// The vote endangers nothing: an election takes a majority of the candidate's
// configuration, and a voter's own configuration has no part in the argument. But raft
// compares the ID of a candidate with its configuration all the same. So raft is shown the
// ID of a voter that raft knows; raft tells candidates apart, and remembers its vote, by
// the address.
func judgeStranger(r Raft, h *raft.RPCHeader, term uint64) error {
	id := string(h.ID)
	if _, _, err := member.ParseRaftID(id); err != nil {
		return refuse("candidate %q", id)
	}
	if d := (Doubt{Sender: id, Term: term, Vote: true, Stranger: true}); !r.Confirmed(d) {
		return d
	}
	for _, s := range r.Latest().Servers {
		if s.Suffrage == raft.Voter {
			h.ID = []byte(s.ID)
			break
		}
	}
	return nil
}

func judgeTimeout(r Raft, from Sender, sender []byte) error {
	if _, leader := r.Standing(); !from.Self && leader != string(sender) {
		return refuse("%q orders an election, and %q leads", sender, leader)
	}
	if !votes(r.Latest(), r.ID()) {
		return refuse("an election is ordered, and this server has no vote")
	}
	return nil
}

// votes reports whether a server is a voter of a configuration.
func votes(c raft.Configuration, id string) bool {
	for i := range c.Servers {
		if s := &c.Servers[i]; string(s.ID) == id {
			return s.Suffrage == raft.Voter
		}
	}
	return false
}
