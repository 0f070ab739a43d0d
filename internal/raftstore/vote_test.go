package raftstore

import (
	"slices"
	"testing"
)

func TestHalfAVoteIsForgotten(t *testing.T) {
	dir := t.TempDir()
	s := openDurable(t, dir)
	must(t, s.SetUint64([]byte("LastVoteTerm"), 4))
	must(t, s.Set([]byte("LastVoteCand"), []byte("old")))
	must(t, s.SetUint64([]byte("CurrentTerm"), 5))
	must(t, s.SetUint64([]byte("LastVoteTerm"), 5))
	if vote := readVote(t, s); vote != "4 old" {
		t.Errorf("vote %q before the candidate is stored", vote)
	}
	must(t, s.Close()) // a crash
	s = openDurable(t, dir)
	if vote := readVote(t, s); vote != "4 old" {
		t.Errorf("vote %q after a crash between term and candidate", vote)
	}
	if term, err := s.GetUint64([]byte("CurrentTerm")); term != 5 || err != nil {
		t.Errorf("term %d, %v", term, err)
	}
	if err := s.Set([]byte("LastVoteCand"), []byte("new")); err == nil {
		t.Error("a candidate was paired with a term of before the crash")
	}
	if err := s.Failed(); err != nil {
		t.Errorf("nothing was written, yet failed: %v", err)
	}
	must(t, s.SetUint64([]byte("LastVoteTerm"), 5))
	must(t, s.Set([]byte("LastVoteCand"), []byte("new")))
	if vote := readVote(t, s); vote != "5 new" {
		t.Errorf("vote %q", vote)
	}
}

func TestAVoteTakesTwoTransactions(t *testing.T) {
	engine := &faultyEngine{Engine: NewMemoryEngine()}
	s := newStore(t, engine, 8, 1<<20)
	vote := func() {
		must(t, s.SetUint64([]byte("CurrentTerm"), 7))
		must(t, s.SetUint64([]byte("LastVoteTerm"), 7))
		must(t, s.Set([]byte("LastVoteCand"), []byte("n1#2")))
	}
	vote()
	if calls := engine.took(); !slices.Equal(calls, []string{"set CurrentTerm", "set LastVote"}) {
		t.Errorf("a vote took %q", calls)
	}
	vote()
	if calls := engine.took(); len(calls) > 0 {
		t.Errorf("the same again took %q", calls)
	}
	// The vote on the disk counts, not the vote in an earlier Store's memory.
	s = newStore(t, engine, 8, 1<<20)
	vote()
	if calls := engine.took(); len(calls) > 0 {
		t.Errorf("the same after a restart took %q", calls)
	}
}

func TestAVoteOfAnotherTermOrCandidateIsWritten(t *testing.T) {
	engine := &faultyEngine{Engine: NewMemoryEngine()}
	s := newStore(t, engine, 8, 1<<20)
	must(t, s.SetUint64([]byte("CurrentTerm"), 0))
	for _, vote := range []vote{{1, []byte("a")}, {2, []byte("a")}, {2, []byte("b")}} {
		must(t, s.SetUint64([]byte("LastVoteTerm"), vote.term))
		must(t, s.Set([]byte("LastVoteCand"), vote.candidate))
	}
	if calls := engine.took(); len(calls) != 4 {
		t.Errorf("took %q", calls)
	}
}
