package founding

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// Step answers a Prepare, Accept, Chosen or Retire message of another member's
// ballot, or of this member's own. From is the process that asks, as named by its
// stream. A promise and an accepted value are stored
// before Step returns; if storing fails, the answer is CodeNo. A message of
// another type, without a sound body or in another process's ballot is answered with
// CodeBad. Step blocks
// while the record is stored, while this member enters a cluster and while it
// retires, and then returns early if ctx ends.
func (r *Runner) Step(ctx context.Context, from member.Process, t wire.Type, body []byte) (wire.Code, []byte) {
	switch t {
	case wire.Chosen:
		return r.stepChosen(ctx, from, body), nil
	case wire.Prepare:
		return r.stepPrepare(ctx, from, body)
	case wire.Accept:
		return r.stepAccept(ctx, from, body)
	case wire.Retire:
		return r.stepRetire(ctx, from, body)
	}
	return wire.CodeBad, nil
}

func (r *Runner) stepChosen(ctx context.Context, from member.Process, body []byte) wire.Code {
	var v wire.Founding
	if wire.Unmarshal(body, &v) != nil {
		return wire.CodeBad
	}
	if !r.adoptNamed(ctx, from.Name, v) {
		return wire.CodeNo
	}
	return wire.CodeOK
}

func (r *Runner) stepPrepare(ctx context.Context, asker member.Process, body []byte) (wire.Code, []byte) {
	var req wire.PrepareRequest
	if wire.Unmarshal(body, &req) != nil || !checkPrepare(req) || r.refusesBallot(asker, req.Ballot) {
		return wire.CodeBad, nil
	}
	b := req.Ballot
	theirs, own := termsOf(req), r.terms()
	r.tell(asker, differences(theirs, own))
	answer := wire.PrepareAnswer{
		Decided: r.value.Load(),
		Durable: r.cfg.Record.Durable(),
		Thin:    r.cfg.Thin,
		TTL:     uint64(r.cfg.TTL / time.Millisecond),
		Members: r.foundersSeen(),
		Differs: differences(own, theirs),
	}
	if answer.Refused = r.refusePrepare(req, theirs, own); answer.Refused != "" {
		answer.Claimed = req.Word == wire.WordNone && r.value.Load() == nil && slices.ContainsFunc(r.claimants(), func(c claim) bool { return c.heard })
		return wire.CodeNo, wire.Marshal(&answer)
	}
	floor, trouble := r.tokenFloor(ctx)
	if trouble != nil {
		answer.Refused = trouble.refusal()
		return wire.CodeNo, wire.Marshal(&answer)
	}
	rec, ok := r.updatePromise(req.Word, nil, func(p identity.Promise) (identity.Promise, bool) { return prepare(p, b) })
	answer.Promised, answer.Accepted, answer.Value = rec.Promise.Promised, rec.Promise.Accepted, rec.Promise.Value
	answer.Raft, answer.Token = member.RaftID(r.cfg.Self.Name, rec.Generation), max(rec.Token, floor)
	if !ok {
		return wire.CodeNo, wire.Marshal(&answer)
	}
	r.mu.Lock()
	r.pledged = pledge{asker.Name, asker.Boot, req.Word}
	if !r.cfg.Self.Is(asker) {
		r.yielded = time.Now()
	}
	r.mu.Unlock()
	return wire.CodeOK, wire.Marshal(&answer)
}

// refusePrepare returns why this member does not take part in a ballot, or "".
func (r *Runner) refusePrepare(req wire.PrepareRequest, theirs, own terms) string {
	if r.value.Load() == nil {
		if why := checkFloor(wire.Founding{Floor: req.Floor}, 0, r.highest()); why != "" {
			return why
		}
	}
	if req.Word != wire.WordNone {
		if theirs.declares() && own.declares() && exclude(theirs, own) {
			return "its configuration differs"
		}
		return r.refuseWord(req.Word, req.Group)
	}
	switch {
	case !r.Declared():
		return "it is no founder"
	case r.value.Load() != nil:
		return "it is in a cluster"
	case exclude(theirs, own):
		return "its configuration differs"
	}
	if others := r.claimants(); len(others) > 0 {
		return "it sees " + others[0].at.Name + ", a member of cluster " + clusterText(others[0].cluster)
	}
	return ""
}

// refuseWord returns why this member refuses a group that rests on a word, or "".
func (r *Runner) refuseWord(w wire.Word, members []wire.GroupMember) string {
	if r.value.Load() != nil && !r.leaderless() {
		return "a leader of its cluster answers it"
	}
	if r.cfg.Record.Durable() && w != wire.WordOperator {
		return "it has a Dir, whose cluster only an operator may end"
	}
	group := make([]member.Process, 0, len(members))
	for _, m := range members {
		group = append(group, member.Process(m))
	}
	slices.SortFunc(group, func(a, b member.Process) int { return strings.Compare(a.Name, b.Name) })
	return r.checkGroup(w, group)
}

func (r *Runner) stepAccept(ctx context.Context, from member.Process, body []byte) (wire.Code, []byte) {
	var req wire.AcceptRequest
	if wire.Unmarshal(body, &req) != nil || Check(req.Value) != nil || !checkGroupSizes(req.Group) || r.refusesBallot(from, req.Ballot) {
		return wire.CodeBad, nil
	}
	refused := r.refuseAccept(req)
	if refused == "" {
		refused = r.refuseFloor(ctx, req.Value)
	}
	if refused == "" {
		rec, ok := r.updatePromise(req.Word, &req.Value, func(p identity.Promise) (identity.Promise, bool) { return accept(p, req.Ballot, req.Value) })
		if ok {
			return wire.CodeOK, nil
		}
		refused = "another ballot is under way, of " + rec.Promise.Promised.Name
	}
	return wire.CodeNo, wire.Marshal(&wire.AcceptAnswer{Refused: refused})
}

// refuseAccept returns why this member does not accept a value, or "".
func (r *Runner) refuseAccept(req wire.AcceptRequest) string {
	own := r.value.Load()
	if req.Word == wire.WordNone {
		switch {
		case own != nil:
			return "it is in a cluster"
		case !r.Declared():
			return "it is no founder"
		}
		return ""
	}
	if own != nil && (!r.hasRetired() || votes(r.cfg.Record.Get()) || !slices.Contains(req.Value.Predecessors, own.Cluster)) {
		return "it has not retired from cluster " + clusterText(own.Cluster)
	}
	return r.refuseWord(req.Word, req.Group)
}

// refuseFloor returns why this member does not accept the first token of a founding, or
// "".
func (r *Runner) refuseFloor(ctx context.Context, v wire.Founding) string {
	floor, trouble := r.tokenFloor(ctx)
	if trouble != nil {
		return trouble.refusal()
	}
	return checkFloor(v, floor, r.highest())
}

// pledge is a promise to take part in a ballot on a word.
type pledge struct {
	name string // the proposer
	boot uint64
	word wire.Word
}

// stepRetire retires this member from its cluster for the proposer of a ballot that the
// member has promised to take part in, on the same word. So every condition of the
// word has been checked here, and not by the asker alone: an operator's word was
// authorized, a member with a Dir has accepted no other word, and the group lacks
// nobody known to live (checkGroup).
//
// What can a hostile voter do? It cannot end a cluster that lives: a member refuses
// while a leader answers, confirmed by a majority, and a voter refuses while it
// reaches a majority of its configuration on fresh connections (Config.Retire). A
// minority that is cut off can be made to retire, on a word that its own
// configuration allows. The majority loses no quorum by that, and takes the retired
// members in again under other raft IDs as soon as the leader answers. With a Dir a
// retirement lasts until a successor, so only an operator's word counts there.
func (r *Runner) stepRetire(ctx context.Context, from member.Process, body []byte) (wire.Code, []byte) {
	var req wire.RetireRequest
	if wire.Unmarshal(body, &req) != nil {
		return wire.CodeBad, nil
	}
	answer := wire.RetireAnswer{}
	r.mu.Lock()
	pledged := r.pledged
	r.mu.Unlock()
	switch {
	case req.Word == wire.WordNone || pledged != pledge{from.Name, from.Boot, req.Word}:
		answer.Refused = "it has promised no such ballot"
	case req.Cluster == (machine.ClusterID{}) || req.Cluster != r.Cluster():
		answer.Refused = "it is not in that cluster"
	case !r.leaderless():
		answer.Refused = "a leader of its cluster answers it"
	case r.cfg.Retire == nil:
		answer.Refused = "it cannot retire"
	default:
		var err error
		if answer, err = r.cfg.Retire(ctx, req.Cluster); err != nil {
			answer.Refused = err.Error()
		}
	}
	if answer.Refused != "" {
		return wire.CodeNo, wire.Marshal(&answer)
	}
	r.mu.Lock()
	r.retired, r.spent = req.Cluster, max(r.spent, seenToken(answer))
	r.mu.Unlock()
	return wire.CodeOK, wire.Marshal(&answer)
}

// hasRetired reports whether this member has retired from its cluster.
func (r *Runner) hasRetired() bool {
	own := r.Cluster()
	r.mu.Lock()
	defer r.mu.Unlock()
	return own != (machine.ClusterID{}) && r.retired == own
}

// votes reports whether the member may vote in its cluster. A member without a vote
// has nothing to stop when it retires, and may be invited by a leader that retires
// later: such a member has a vote again.
func votes(rec identity.Record) bool { return rec.Founding != nil && rec.Stored && !rec.RetiredHere() }

// updatePromise changes this member's promise by a rule of the kernel, stores the
// promise and returns the stored record. The value to be accepted is nil for a mere
// promise. Ok is false if the rule refuses, and for the acceptance of a member that
// votes. Without a word the promise of a member of a cluster is void.
func (r *Runner) updatePromise(w wire.Word, accepted *wire.Founding, rule func(identity.Promise) (identity.Promise, bool)) (rec identity.Record, ok bool) {
	err := r.cfg.Record.Update(func(stored *identity.Record) {
		rec = *stored // the answer tells exactly the stored record
		if stored.Founding != nil && w == wire.WordNone {
			return // a cluster was adopted meanwhile, and the promise is void
		}
		if accepted != nil && votes(*stored) {
			return // invited meanwhile
		}
		if stored.Promise, ok = rule(stored.Promise); ok && accepted != nil {
			stored.Shunned = shun(stored.Shunned, *accepted)
		}
		rec = *stored
	})
	if err != nil {
		r.cfg.Self.Log.Error("founding promise not stored", "error", err, "next", "check the disk of Dir")
		return identity.Record{}, false
	}
	return rec, ok
}

// foundersSeen returns the number of living founders without a cluster, or 0 if
// the founders are declared by name: then their number is known.
func (r *Runner) foundersSeen() int {
	if len(r.cfg.Founders) > 0 {
		return 0
	}
	return len(r.founders())
}
