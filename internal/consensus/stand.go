package consensus

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// Evidence is the result of a look at a process.
type Evidence uint8

const (
	Unproven Evidence = iota // no answer, or an answer that says nothing
	Lives                    // the process has answered
	Ended                    // the connection was refused, or another process answered
)

// process is one run of the holder of a raft ID, as known after some streams.
type process struct {
	raftID  string
	boot    uint64
	streams uint64 // so far, from the newest process of the name
}

// stand has this voter stand for election at once, until ctx ends, when its
// leader's process has ended, instead of after an election timeout.
//
// A process that ends resets its streams, so a follower knows within a
// millisecond. Standing so early passes over the pre-vote and over the others'
// loyalty to their leader, as a leadership transfer does, so a voter that stood on
// the reset alone would depose a living leader whenever streams are renewed or a
// firewall forgets them. Hence:
//
//   - Only when no stream from the leader is left, and a new dial to the leader was
//     refused or answered by another process. A dial that times out proves nothing.
//     The rule also keeps a young leader, one that has led for less than a TTL, from
//     being deposed for anything but its process's end.
//   - Only a voter of the last committed configuration, with a majority of whose
//     voters it must agree first: they have lost that leader of that term too, have
//     no higher term, and no newer log.
//   - Once for each term.
//   - The voter with the newest log stands first, and of equals the first by ID; each
//     of the others waits as many votes, with their writes, as voters are better.
//
// None of this is needed for safety, which is raft's: an attempt too many costs
// an election.
//
// A leader that is only silent resets nothing. Raft's own timers would notice one
// to three timeouts later, each voter by itself and by chance, and two that notice
// at one moment would each vote for themselves. So a voter that has heard nothing
// for a timeout asks the others too, and stands when a majority has heard nothing
// for a timeout either: the very condition under which a pre-vote succeeds, with an
// order among the candidates. Raft's timers are the fallback.
//
// The first election has the same help. A candidate that finds no majority waits
// for its next attempt while the others start. So a voter that has never heard of
// a leader asks the others, again and again, and stands when a majority of them
// answers and has no leader either. This attempt takes the ordinary way, with a
// pre-vote.
func (r *Raft) stand(ctx context.Context) {
	pause := timing.ColdLook
	for {
		var look <-chan time.Time
		if r.cold() {
			look = time.After(pause)
			pause = min(2*pause, timing.MostColdLook)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.stream.lost:
			r.succeed(ctx, false)
		case <-r.silence:
			r.succeed(ctx, true)
		case <-r.coldNews:
			r.first(ctx)
		case <-look:
			r.first(ctx)
		}
	}
}

// succeed stands for election if the leader's process has ended, or, when the
// leader is only silent, if the silence has lasted for a timeout.
func (r *Raft) succeed(ctx context.Context, silent bool) {
	term := r.Term()
	q := wire.StandRequest{Leader: r.LeaderID(), Term: term}
	name, _, _ := member.ParseRaftID(q.Leader)
	from := r.stream.arrivals(name)
	if q.Leader == "" || q.Leader == r.id || r.stood.Load() >= term || !silent && (from.boot == 0 || from.open > 0) {
		return
	}
	lost := func() bool { return r.hasEnded(ctx, q.Leader, from.boot) }
	if silent {
		lost = r.silent
	} else {
		q.Boot = from.boot
	}
	if !r.agreed(ctx, &q, lost) {
		return
	}
	leader := r.LeaderID()
	if !lost() || leader != q.Leader && leader != "" || r.Term() != term || r.raft.State() == raft.Leader {
		return // the leader, another leader or a candidate came first
	}
	r.stood.Store(term)
	r.standNow()
}

// first stands for election if no voter has ever had a leader.
func (r *Raft) first(ctx context.Context) {
	if r.cold() && r.agreed(ctx, &wire.StandRequest{}, func() bool { return true }) && r.cold() {
		r.nudge()
	}
}

// standNow has raft stand for election at once, by the message that a leader sends
// to its chosen successor. The message reaches raft over a stream to itself: see
// stream.Dial.
func (r *Raft) standNow() {
	r.nudged.Add(1)
	r.cfg.Self.Log.Debug("standing for election at once", "raft", r.id, "term", r.Term())
	req := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(r.id), Addr: []byte(r.id)}}
	if err := r.trans.TimeoutNow(raft.ServerID(r.id), raft.ServerAddress(r.id), req, &raft.TimeoutNowResponse{}); err != nil {
		r.cfg.Self.Log.Debug("not standing for election", "raft", r.id, "error", err)
	}
}

// agreed completes q, asks the other voters, and reports whether a majority of the
// committed configuration, this voter included, agrees that this voter stands. It
// returns when this voter's turn has come. proved is asked before the others are.
func (r *Raft) agreed(ctx context.Context, q *wire.StandRequest, proved func() bool) bool {
	voters := r.committedVoters()
	if q.Leader == "" {
		voters = r.Voters() // before a first leader nobody knows the committed entries
	}
	if !slices.Contains(voters, r.id) || !r.Votes() || !proved() {
		return false
	}
	q.Candidate = r.id
	q.LastTerm, q.LastIndex = r.position()
	began := time.Now()
	yes, better := r.askAll(ctx, q, voters)
	if yes < len(voters)/2+1 {
		return false
	}
	// A vote takes a dial, an exchange, and two writes on each side. Far more than
	// that, because two candidates at one moment cost half a second, and a better
	// voter that has answered has the same proof and stands all but surely.
	stagger := min(timing.LeastStagger+2*time.Since(began)+4*r.store.FlushTime(), timing.MostStagger)
	select {
	case <-time.After(time.Duration(better) * stagger):
		return true
	case <-ctx.Done():
		return false
	}
}

// askAll puts q to the voters. It returns the number of voters that agree, this
// voter included, and the number of voters better placed to stand. Once a majority
// agrees, the rest have timing.LateAnswer left to answer.
func (r *Raft) askAll(ctx context.Context, q *wire.StandRequest, voters []string) (yes, better int) {
	ctx, cancel := context.WithTimeout(ctx, timing.LeastElection)
	defer cancel()
	type answer struct {
		ok     bool
		better bool
	}
	answers := make(chan answer, len(voters))
	asked := 0
	for _, voter := range voters {
		if voter == r.id || voter == q.Leader {
			continue
		}
		asked++
		q := *q
		q.Voter = voter
		r.watching.Go(func() {
			a, ok, err := r.cfg.AskStand(ctx, q)
			if err != nil {
				answers <- answer{}
				return
			}
			order := cmp.Or(newer(a.LastTerm, a.LastIndex, q.LastTerm, q.LastIndex), cmp.Compare(q.Candidate, voter))
			answers <- answer{ok, order > 0}
		})
	}
	yes = 1
	var late <-chan time.Time
	for ; asked > 0; asked-- {
		if yes > len(voters)/2 && late == nil {
			late = time.After(timing.LateAnswer)
		}
		select {
		case a := <-answers:
			if a.ok {
				yes++
			}
			if a.better {
				better++
			}
		case <-late:
			return yes, better
		}
	}
	return yes, better
}

// newer compares two positions in the log as raft does for a vote: +1 if the first
// is newer.
func newer(term, index, otherTerm, otherIndex uint64) int {
	return cmp.Or(cmp.Compare(term, otherTerm), cmp.Compare(index, otherIndex))
}

// MayStand answers the question of a voter that wants to stand for election at
// once: see wire.StandRequest. It tells the position of the newest entry here, and
// whether this voter agrees. MayStand looks at the leader itself, and returns when
// ctx ends at the latest.
func (r *Raft) MayStand(ctx context.Context, q wire.StandRequest) (a wire.StandAnswer, yes bool) {
	if q.Voter != r.id {
		return a, false
	}
	a.LastTerm, a.LastIndex = r.position()
	ahead := newer(a.LastTerm, a.LastIndex, q.LastTerm, q.LastIndex) > 0
	if q.Leader == "" {
		if ahead && r.cold() {
			r.coldNews.Wake() // that voter lives: this one may stand now
		}
		return a, !ahead && r.LeaderID() == "" && slices.Contains(r.Voters(), q.Candidate)
	}
	leader := r.LeaderID()
	if ahead || r.Term() > q.Term || leader != "" && leader != q.Leader || !slices.Contains(r.Voters(), q.Candidate) {
		return a, false
	}
	if q.Boot == 0 {
		return a, r.silent()
	}
	// This voter's own knowledge of the process goes first.
	boot := q.Boot
	name, _, _ := member.ParseRaftID(q.Leader)
	if known := r.stream.arrivals(name).boot; known != 0 {
		boot = known
	}
	return a, r.hasEnded(ctx, q.Leader, boot)
}

// hasEnded reports whether a process has been proved to have ended. A kernel
// closes the streams and the port of an ended process one after the other, so
// hasEnded looks again after a look that proves nothing, and while a stream from
// the process is open here: a firewall may refuse a dial and carry the streams.
//
// The verdict stands until the next stream from the process: the process may restart
// its raft, or be behind a firewall for a while, and lead again.
func (r *Raft) hasEnded(ctx context.Context, raftID string, boot uint64) bool {
	name, _, _ := member.ParseRaftID(raftID)
	ctx, cancel := context.WithTimeout(ctx, timing.LeastElection)
	defer cancel()
	for pause := timing.GoneAgain; ; pause *= 2 {
		from := r.stream.arrivals(name)
		p := process{raftID, boot, from.all}
		evidence := Ended
		if known := r.ended.Load(); known == nil || *known != p {
			evidence = r.cfg.Look(ctx, raftID, boot)
		}
		switch evidence {
		case Ended:
			if from.boot != boot || from.open == 0 {
				r.ended.Store(&p)
				return true
			}
		case Lives:
			return false
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
}

// position returns the term and the index of the newest entry.
func (r *Raft) position() (term, index uint64) {
	stats := r.raft.Stats() // which reads both together
	term, _ = strconv.ParseUint(stats["last_log_term"], 10, 64)
	index, _ = strconv.ParseUint(stats["last_log_index"], 10, 64)
	return term, index
}
