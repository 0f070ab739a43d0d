package consensus

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/judge"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// admission settles the judge's doubts: it asks other voters over control streams
// whether they follow the doubted sender. There is one inquiry at a time for each
// member, repeated with growing pauses while messages of the sender arrive. The
// outcome of the latest inquiry is kept.
type admission struct {
	ask func(ctx context.Context, d judge.Doubt) bool

	ctx    context.Context // ends with stop
	stop   context.CancelFunc
	asking sync.WaitGroup

	mu        sync.Mutex
	inquiries map[string]*inquiry // by the sender's name
}

// inquiry is a question about a doubt.
type inquiry struct {
	doubt judge.Doubt
	done  chan struct{} // closed when yes and after are set
	yes   bool
	pause time.Duration
	after time.Time // of the next attempt
	since time.Time // the sender has been in doubt since then
}

// maxInquiries bounds the members asked about.
const maxInquiries = 64

func newAdmission(r *Raft) *admission {
	a := &admission{ask: r.inquire, inquiries: make(map[string]*inquiry)}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}

// wait joins the inquiries. The caller has called stop.
func (a *admission) wait() {
	a.mu.Lock()
	a.inquiries = nil // none begins
	a.mu.Unlock()
	a.asking.Wait()
}

// confirmed reports whether the latest inquiry about the doubt has ended well.
func (a *admission) confirmed(d judge.Doubt) bool {
	name, _, _ := member.ParseRaftID(d.Sender)
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.inquiries[name]
	return q != nil && q.doubt == d && q.ended() && q.yes
}

func (q *inquiry) ended() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

// settle begins an inquiry, unless one is under way or the last one failed a moment
// ago. It waits for the outcome, timing.Follows at most, and reports whether the
// doubt is gone.
func (a *admission) settle(d judge.Doubt) bool {
	q := a.begin(d)
	if q == nil {
		return false
	}
	t := time.NewTimer(timing.Follows)
	defer t.Stop()
	select {
	case <-q.done:
		return q.doubt == d && q.yes
	case <-t.C:
	case <-a.ctx.Done():
	}
	return false
}

// begin returns the inquiry that the caller may wait for, or nil.
func (a *admission) begin(d judge.Doubt) *inquiry {
	name, _, _ := member.ParseRaftID(d.Sender)
	a.mu.Lock()
	defer a.mu.Unlock()
	pause, since := timing.LeastBackoff, time.Now()
	if last := a.inquiries[name]; last != nil {
		if !last.ended() || !last.yes && time.Since(last.after) < timing.Doubted {
			since = last.since
		}
		switch {
		case !last.ended(), last.doubt == d && last.yes:
			return last
		case time.Now().Before(last.after):
			return nil
		case last.doubt == d:
			pause = min(2*last.pause, timing.MostFollows)
		}
	}
	if a.inquiries == nil || a.ctx.Err() != nil || !a.room() {
		return nil
	}
	q := &inquiry{doubt: d, done: make(chan struct{}), pause: pause, since: since}
	a.inquiries[name] = q
	a.asking.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, timing.LeastElection)
		defer cancel()
		yes := a.ask(ctx, d)
		a.mu.Lock()
		q.yes, q.after = yes, time.Now().Add(pause)
		close(q.done)
		a.mu.Unlock()
	})
	return q
}

// lasts reports whether the sender of a doubt has been in doubt for so long that an
// operator should hear of it. A new leader is in doubt for a moment at a voter that was
// invited a moment ago, and for longer if the voters that know the leader are ending:
// neither is anybody's fault.
func (a *admission) lasts(d judge.Doubt) bool {
	name, _, _ := member.ParseRaftID(d.Sender)
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.inquiries[name]
	return q == nil || time.Since(q.since) >= timing.Doubted
}

// room forgets an ended inquiry if there are too many, and reports whether there is
// room for another one. The caller holds a.mu.
func (a *admission) room() bool {
	if len(a.inquiries) < maxInquiries {
		return true
	}
	for name, q := range a.inquiries {
		if q.ended() {
			delete(a.inquiries, name)
			return true
		}
	}
	return false
}

// inquire asks the voters that can settle a doubt, and reports whether they confirm
// the sender: see judge.Confirm, judge.Near and judge.Unled.
func (r *Raft) inquire(ctx context.Context, d judge.Doubt) bool {
	own := r.Voters()
	words := make(map[string]judge.Word)
	if d.Vote && !d.Stranger {
		return r.askWords(ctx, d, own, words, func() bool { return judge.Near(d, len(own), words) })
	}
	first, ok := r.word(ctx, d, d.Sender)
	if !ok || d.Answer {
		return ok && first.Term >= d.Term
	}
	_, at := r.fsm.configuration()
	voters, ok := judge.Shown(r.id, at, d, first)
	if !ok {
		return false
	}
	words[d.Sender] = first
	here := judge.Word{Voted: r.store.VotedFor(d.Term, d.Sender)}
	here.Term, here.Leader = r.trans.rules.Standing()
	words[r.id] = here
	if d.Stranger {
		return r.askWords(ctx, d, append(voters, own...), words, func() bool { return judge.Unled(words) })
	}
	return r.askWords(ctx, d, append(voters, own...), words, func() bool { return judge.Confirm(r.id, d, words) })
}

// askWords asks the voters for their words until all have answered, or until enough
// is true and the others have had timing.SignOfLife to say otherwise.
func (r *Raft) askWords(ctx context.Context, d judge.Doubt, voters []string, words map[string]judge.Word, enough func() bool) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		voter string
		word  judge.Word
		ok    bool
	}
	asked := map[string]bool{r.id: true, d.Sender: !d.Vote || d.Stranger}
	answers := make(chan answer, len(voters))
	left := 0
	var asking sync.WaitGroup
	for _, voter := range voters {
		if asked[voter] {
			continue
		}
		asked[voter] = true
		left++
		asking.Go(func() {
			w, ok := r.word(ctx, d, voter)
			answers <- answer{voter, w, ok}
		})
	}
	defer asking.Wait()
	defer cancel()
	var late <-chan time.Time
	for ; left > 0; left-- {
		if late == nil && enough() {
			late = time.After(timing.SignOfLife)
		}
		select {
		case a := <-answers:
			if a.ok {
				words[a.voter] = a.word
			}
		case <-late:
			return enough()
		}
	}
	return enough()
}

// word asks a voter whom it follows.
func (r *Raft) word(ctx context.Context, d judge.Doubt, voter string) (w judge.Word, ok bool) {
	a, err := r.cfg.AskFollows(ctx, wire.FollowsRequest{Voter: voter, Leader: d.Sender, Term: d.Term})
	if err != nil || len(a.Servers) > judge.MaxServers {
		return w, false
	}
	w = judge.Word{Term: a.Term, Leader: a.Leader, Index: a.Index}
	for _, s := range a.Servers {
		suffrage := raft.Nonvoter
		if s.Voter {
			suffrage = raft.Voter
		}
		w.Servers = append(w.Servers, raft.Server{Suffrage: suffrage, ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.ID)})
	}
	return w, true
}

// Follows answers another voter that asks which leader this raft follows: see
// wire.FollowsRequest. ok is false if another raft ID is asked.
func (r *Raft) Follows(q wire.FollowsRequest) (a wire.FollowsAnswer, ok bool) {
	if q.Voter != r.id {
		return a, false
	}
	a.Term, a.Leader = r.trans.rules.Standing()
	c, at := r.fsm.configuration()
	if q.Leader == r.id {
		// The latest one counts in the election of this raft, and names a voter that was
		// added a moment ago.
		c = r.trans.rules.Latest()
	}
	a.Index = at
	for _, s := range c.Servers {
		a.Servers = append(a.Servers, wire.FollowsServer{ID: string(s.ID), Voter: s.Suffrage == raft.Voter})
	}
	return a, true
}
