package consensus

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/judge"
	"github.com/wardmote/wardmote/internal/timing"
)

// disproved remembers the leaders whose entries show that they should not lead: each has
// sent an entry that no sound leader of its term has (judge.Refusal.Entry). Two ways lead
// there: a false vote has elected a voter that lacks committed entries, or the leader's
// memory or disk has damaged an entry of its log.
//
// The judge refuses such an entry however often it comes. If a majority of the voters
// refuses the entries and answers the heartbeats, the leader commits nothing and yet leads
// for ever. So the heartbeats are refused too. Without answers from a majority the leader
// steps down after timing.LeaderLease, and its followers, which hear nothing any more,
// elect another.
//
// A sound leader loses nothing:
//
//   - An entry counts as proof only against the sender of the stream, for the term of the
//     message. Nobody disproves another voter without that voter's name: its certificate, or
//     a secret that all share.
//   - A sound leader of the term has all committed entries, and its log never changes an
//     entry within the term. A message that is old, late or sent twice shows entries of the
//     same log, and proves nothing. Nor does an entry that this voter cannot compare.
//   - So the proof is false only by a fault of this voter, or by a fault that passes: a bit
//     of a message that flipped in the leader's memory, or a comparison with an entry of the log
//     that a snapshot replaces at this moment. The refusal ends timing.Disproved
//     after the last proof, and the leader's next heartbeat is answered. It costs the leader
//     this one voter for that time, and only a majority of such voters its term.
//   - The voter that refuses stands with a pre-vote, which raises no term, and the others
//     refuse the pre-vote while they hear the leader. So a voter that is wrong, alone or for ever,
//     elects nobody and deposes nobody. It was of no use to the leader before: an entry
//     that a voter refuses is not committed by its help.
//
// A leader elected by false votes again and again can be elected as often. Between two of
// its terms a voter that has the committed entries may win, and ends the lack: its entries
// replace those of the leader of before. For this a majority of the voters must live without
// that leader. Its log ends in a newer term than theirs, so it votes for none of them, while
// they vote for it: until such a majority lives, the cluster grants nothing.
type disproved struct {
	mu      sync.Mutex
	leaders map[string]proof // by raft ID
}

// proof is the latest one against a leader.
type proof struct {
	term  uint64
	until time.Time
}

// note takes the judge's verdict on a message of entries. voters are the voters of the
// configurations here: nobody else can be elected without them, and they are few.
func (d *disproved) note(m *raft.AppendEntriesRequest, verdict error, voters func() []string) {
	if verdict == nil {
		return
	}
	var no *judge.Refusal
	if !errors.As(verdict, &no) || no.Entry == 0 {
		return
	}
	known := voters()
	if !slices.Contains(known, string(m.ID)) {
		return
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leaders == nil {
		d.leaders = make(map[string]proof)
	}
	for id := range d.leaders {
		if !slices.Contains(known, id) {
			delete(d.leaders, id)
		}
	}
	// The term of a malformed message may be anything: an old proof does not stand in the
	// way of a new one.
	if old := d.leaders[string(m.ID)]; m.Term >= old.term || now.After(old.until) {
		d.leaders[string(m.ID)] = proof{m.Term, now.Add(timing.Disproved)}
	}
}

// is reports whether the leader of the term has been disproved a moment ago.
func (d *disproved) is(leader string, term uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.leaders[leader]
	return p.term == term && time.Now().Before(p.until)
}
