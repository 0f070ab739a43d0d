package judge

import "github.com/hashicorp/raft"

// Word is the answer of a voter that is asked about a leader: its term, the leader
// that its raft follows, and a configuration with the log index of the committed one. A
// server that is asked about itself shows its latest configuration, which counts in
// elections.
type Word struct {
	Term    uint64
	Leader  string
	Index   uint64
	Servers []raft.Server
	Voted   bool // of this raft alone: it has voted for the sender in the term of the Doubt
}

// Shown returns the voters to ask about a Doubt, by the word of the doubted sender:
// the voters of the configuration that the sender shows, without the sender
// and this raft. ok is false if the word confirms nothing: the sender does not lead in
// the term, or the configuration is malformed, does not name this raft, or is older
// than the configuration that is committed here, at the index committed. A candidate
// leads in no term, and the configuration names the candidate and this raft as voters.
func Shown(self string, committed uint64, d Doubt, word Word) (voters []string, ok bool) {
	named, stands := false, false
	for _, s := range word.Servers {
		id, votes := string(s.ID), s.Suffrage == raft.Voter
		named = named || id == self && (votes || !d.Vote)
		stands = stands || id == d.Sender && votes
		if votes && id != self && id != d.Sender {
			voters = append(voters, id)
		}
	}
	ok = named && word.Index >= committed && CheckServers(word.Servers) == nil
	if d.Vote {
		return voters, ok && stands && word.Leader == "" && word.Term <= d.Term
	}
	return voters, ok && word.Leader == d.Sender && word.Term == d.Term
}

// Unled reports whether nobody that was asked follows a leader. Then this raft may vote
// for a candidate that it does not know.
func Unled(words map[string]Word) bool {
	for _, w := range words {
		if w.Leader != "" {
			return false
		}
	}
	return true
}

// Confirm reports whether the words confirm a Doubt about a leader. words has the
// answers by raft ID, the sender's among them, of the voters in the sender's
// configuration and in the own, and this raft's own word.
//
//   - A majority of the voters of the sender's configuration follows the sender in its
//     term. This raft counts as a voter, and as a yes only if it has voted for the sender
//     in the term: a sender alone with this raft is no majority otherwise.
//   - No voter that was asked follows another leader in that term or a later one.
//
// A configuration with a lone voter is confirmed by the voter itself: an invitation
// into a cluster of one member comes from there. Anybody can say so, and anybody can be
// voted for while there is no leader. Therefore nobody
// that was asked may follow another leader then, in any term: followers of a leader of
// the past give it up soon, and those of a living leader do not.
//
// One lie is left, to a process with the voter role: while no voter that is asked follows
// a leader, as in an election, the process can name itself alone, or itself and
// accomplices, and is confirmed. A majority of the own configuration that follows nobody
// is no objection: the removed voters of {A,B,C}, which became {D,E,C} while this raft C
// was away, follow nobody either, and would keep C away until each has heard of its
// removal. The liar gains what a voter that lies has.
func Confirm(self string, d Doubt, words map[string]Word) bool {
	voters, yes, own := 0, 0, 0
	for _, s := range words[d.Sender].Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		switch w, ok := words[string(s.ID)]; {
		case !ok:
		case string(s.ID) == self:
			if w.Voted {
				own = 1
			}
		case w.Leader == d.Sender && w.Term == d.Term:
			yes++
		}
	}
	alone := voters == 1 || yes <= voters/2
	for _, w := range words {
		if w.Leader != "" && w.Leader != d.Sender && (w.Term >= d.Term || alone) {
			return false
		}
	}
	return yes+own > voters/2
}

// Near reports whether the words confirm a Doubt about a candidate: a majority of the
// voters, of which there are so many with this raft, is in a term near to the
// candidate's.
func Near(d Doubt, voters int, words map[string]Word) bool {
	yes := 0
	for _, w := range words {
		if w.Term+Leap >= d.Term {
			yes++
		}
	}
	return yes > voters/2
}
