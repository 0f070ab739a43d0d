package judge

import "github.com/hashicorp/raft"

// JudgeAnswer returns nil if raft may see the answer of a server to a request, which
// DecodeAnswer has decoded, else a *Refusal or a Doubt. A candidate takes over the
// term of an answer, and a leader steps down for a higher term, so a leap is in doubt
// here too. Confirm it by the server's own word on another stream: a server whose
// term has leapt can hear no leader until the others follow.
//
// JudgeAnswer lowers a leap that goes beyond MaxLeap to MaxLeap. The elections after a
// leap to MaxLeap take the term beyond, and a voter that follows later must still be
// able to come near: the rest of the way is no leap.
func JudgeAnswer(r Raft, server string, request, answer any) error {
	own, _ := r.Standing()
	var asked uint64
	var term *uint64
	var yes bool
	switch a := answer.(type) {
	case *raft.AppendEntriesResponse:
		asked, term, yes = request.(*raft.AppendEntriesRequest).Term, &a.Term, a.Success
	case *raft.InstallSnapshotResponse:
		asked, term, yes = request.(*raft.InstallSnapshotRequest).Term, &a.Term, a.Success
	case *raft.RequestVoteResponse:
		asked, term, yes = request.(*raft.RequestVoteRequest).Term, &a.Term, a.Granted
	case *raft.RequestPreVoteResponse:
		asked, term, yes = request.(*raft.RequestPreVoteRequest).Term, &a.Term, a.Granted
	default:
		return nil // has no term
	}
	own = max(own, asked)
	switch {
	case yes && *term != asked:
		return refuse("yes in term %d to a question of term %d", *term, asked)
	case *term <= own+Leap:
		return nil
	case MaxLeap <= own:
		return refuse("answer of term %d", *term)
	}
	*term = min(*term, MaxLeap)
	if d := (Doubt{Sender: server, Term: *term, Answer: true}); !r.Confirmed(d) {
		return d
	}
	return nil
}
