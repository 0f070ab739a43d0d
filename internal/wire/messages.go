package wire

import "github.com/wardmote/wardmote/internal/machine"

// Hint names the leader, as far as the sender knows. A Hint proves nothing: the
// receiver asks the named leader, and only a leader answers.
type Hint struct {
	Term   uint64
	Leader string // the leader's member name; "" if unknown
	Addr   string
	Votes  bool     // the sender runs raft, and hears of a new leader from the election itself
	Voters []string // addresses of the voters known to the sender
}

// FindRequest asks for the leader. A sender that runs raft keeps the question until
// the sender knows news, and answers at the end of Wait in any case.
//
// News is a leader of a term above Above. With Lost, news is also a sign of life
// that the leader of term Above has given since the question came: the asker does
// not reach that leader.
type FindRequest struct {
	Above uint64
	Wait  uint64 // milliseconds
	Lost  bool
}

// AttachRequest is the first request on a member's stream to the leader, and shows
// the keys of the member's sessions: the stream may act for a session from then on.
// Further requests show more keys. On a stream under TLS only keys that the signer of a
// proof has sealed count: one proof is enough for a stream. So it is for the proof of a
// directory, which a stream shows ahead of a Forget.
type AttachRequest struct {
	Term uint64               // highest term of a leader that has served this member
	Keys []machine.SessionKey // of open sessions: the leader sends their events, and tells which have ended
	New  []machine.SessionKey // of sessions to be opened; the leader tells no end

	Proof *KeyProof // nil: proved before on this stream, or the stream has no TLS
	Dir   *DirProof // nil: nothing to forget
}

// MaxAttach is the largest number of keys in an AttachRequest, and of keys shown on a
// stream for sessions that are not open.
const MaxAttach = 16 << 10

// AttachAnswer is the leader's answer to an AttachRequest.
type AttachAnswer struct {
	Term    uint64
	TTL     uint64   // the largest TTL of a session, in milliseconds
	Members int      // the number of members attached to the leader; 0 in a Bound
	Voters  []string // the voters' addresses; none in a Bound
}

// VoterSet is the state of the voters as the leader sees them. The leader tells
// every attached member at the start and after each change.
type VoterSet struct {
	Term   uint64
	Index  uint64 // of the committed configuration
	Wanted int    // the number of voters aimed at with the members of now
	Voters []VoterState
}

// VoterState is a voter as the leader sees it.
type VoterState struct {
	Raft    string
	Addr    string
	Zone    string
	Present bool // its process is not known to have ended
	Reached bool // raft reaches it
	Current bool // it has caught up with the log
	Leaving bool
}

// Summary counts what the lock table has, and tells the leader's clock, for people to
// read. It stands in the answer to each beat, so that members without a copy of the table
// have something to show when no leader answers.
type Summary struct {
	Term     uint64
	Clock    int64  // of the leader's host, in nanoseconds of Unix time
	Commands uint64 // applied so far
	Granting bool   // the founding wait is over
	Members  uint32 // attached to the leader
	Keys     uint32 // held or waited for
	Grants   uint32
	Waits    uint32
	Sessions uint32
	Values   uint32
	Groups   uint32
	Shards   uint32
}

// DepartRequest asks the leader to replace a voter that wants to leave.
type DepartRequest struct {
	Name string
	Boot uint64
}

// ConfirmRequest asks a voter to confirm that the voter's term is not above Term.
type ConfirmRequest struct {
	Term  uint64
	Voter string // the raft ID of the voter; another incarnation answers no
}

// InviteRequest asks a thin member to run raft, so that the leader can add the
// member to the raft configuration.
type InviteRequest struct {
	Term uint64
}

// InviteAnswer names the raft ID that the leader may add.
type InviteAnswer struct {
	Raft    string
	Durable bool
}

// ProgressAnswer reports the progress of a member's raft log.
type ProgressAnswer struct {
	Raft    string
	Term    uint64
	Last    uint64 // index of the last entry
	Applied uint64 // index of the last applied entry
	Leaves  bool   // the member gives up its vote: it leaves for good, or has become thin
}

// RemovedNotice tells a member that its raft ID is no longer in the raft
// configuration.
type RemovedNotice struct {
	Raft string
	Term uint64
}

// GoodbyeNotice is the last message of a process: its raft and the contexts of its
// locks have ended. It counts only over a stream with this process in its preamble.
type GoodbyeNotice struct {
	Name string
	Boot uint64
}

// InConfigRequest asks the leader whether a raft ID is in the raft configuration.
type InConfigRequest struct {
	Raft string
}

// StandRequest asks a voter whether Candidate may stand for election at once. With
// a Leader, the voter says yes if that leader of Term is lost to the voter too.
// Without, the voter says yes if it follows no leader at all. In both cases a
// voter that has a newer log says no.
type StandRequest struct {
	Voter     string // the raft ID of the voter; another incarnation answers no
	Candidate string // a raft ID
	Leader    string // the raft ID of the lost leader, or ""
	Boot      uint64 // of the lost leader's process, which has ended; 0: the leader is silent
	Term      uint64 // of the lost leader
	LastTerm  uint64 // of the candidate's newest entry
	LastIndex uint64 // of the candidate's newest entry
}

// StandAnswer tells the position of a voter's newest entry, for yes and no alike.
type StandAnswer struct {
	LastTerm  uint64
	LastIndex uint64
}
