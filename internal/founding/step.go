package founding

import (
	"fmt"
	"time"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// Step answers a Prepare, Accept or Chosen message of another member's ballot,
// or of this member's own. A promise and an accepted value are stored before Step
// returns; if storing fails, the answer is CodeNo. A message of another type or
// without a sound body is answered with CodeBad.
func (r *Runner) Step(t wire.Type, body []byte) (wire.Code, []byte) {
	switch t {
	case wire.Chosen:
		return r.stepChosen(body), nil
	case wire.Prepare, wire.Accept:
	default:
		return wire.CodeBad, nil
	}
	if !r.Declared() || r.value.Load() != nil {
		return wire.CodeNo, wire.Marshal(&wire.PrepareAnswer{})
	}
	if t == wire.Prepare {
		return r.stepPrepare(body)
	}
	return r.stepAccept(body)
}

func (r *Runner) stepChosen(body []byte) wire.Code {
	var v wire.Founding
	if wire.Unmarshal(body, &v) != nil {
		return wire.CodeBad
	}
	if r.Adopt(v) != nil {
		return wire.CodeNo
	}
	return wire.CodeOK
}

func (r *Runner) stepPrepare(body []byte) (wire.Code, []byte) {
	var req wire.PrepareRequest
	if wire.Unmarshal(body, &req) != nil {
		return wire.CodeBad, nil
	}
	b := req.Ballot
	if own := r.declaredSize(0); req.Size != own || req.Voters != r.cfg.Voters {
		r.cfg.Conflict(member.Process{Name: b.Name, Boot: b.Boot}, fmt.Sprintf(
			"it expects %d first members and %d voters, this member %d and %d", req.Size, req.Voters, own, r.cfg.Voters))
		return wire.CodeNo, wire.Marshal(&wire.PrepareAnswer{})
	}
	return r.updatePromise(func(p identity.Promise) (identity.Promise, bool) { return prepare(p, b) })
}

func (r *Runner) stepAccept(body []byte) (wire.Code, []byte) {
	var req wire.AcceptRequest
	if wire.Unmarshal(body, &req) != nil || Check(req.Value) != nil {
		return wire.CodeBad, nil
	}
	return r.updatePromise(func(p identity.Promise) (identity.Promise, bool) { return accept(p, req.Ballot, req.Value) })
}

// updatePromise changes this member's promise by a rule of the kernel, stores
// and answers the result. The code is CodeNo if the rule refuses.
func (r *Runner) updatePromise(rule func(identity.Promise) (identity.Promise, bool)) (wire.Code, []byte) {
	var rec identity.Record
	ok := false
	err := r.cfg.Record.Update(func(stored *identity.Record) {
		if stored.Founding != nil {
			return // a cluster was adopted meanwhile, and the promise is void
		}
		stored.Promise, ok = rule(stored.Promise)
		rec = *stored // the answer tells exactly the stored record
	})
	if err != nil {
		r.cfg.Self.Log.Error("founding promise not stored", "error", err)
		return wire.CodeNo, wire.Marshal(&wire.PrepareAnswer{})
	}
	answer := wire.PrepareAnswer{
		Promised: rec.Promise.Promised,
		Accepted: rec.Promise.Accepted,
		Value:    rec.Promise.Value,
		Raft:     member.RaftID(r.cfg.Self.Name, rec.Generation),
		Durable:  r.cfg.Record.Durable(),
		Token:    rec.Token,
		TTL:      uint64(r.cfg.TTL / time.Millisecond),
		Members:  r.foundersSeen(),
	}
	if !ok {
		return wire.CodeNo, wire.Marshal(&answer)
	}
	return wire.CodeOK, wire.Marshal(&answer)
}

// foundersSeen returns the number of living founders without a cluster, or 0 if
// the founders are declared by name: then their number is known.
func (r *Runner) foundersSeen() int {
	seen := 0
	if len(r.cfg.Founders) == 0 {
		for _, s := range r.cfg.Members.Alive() {
			if s.Meta.Founder && !s.Meta.InCluster() {
				seen++
			}
		}
	}
	return seen
}
