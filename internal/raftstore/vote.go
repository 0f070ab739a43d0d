package raftstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// vote is the last vote of this voter.
type vote struct {
	known     bool
	term      uint64
	candidate []byte
}

// term is the current term.
type term struct {
	known  bool
	number uint64
}

// The keys that raft uses, and the key of the whole vote.
var (
	keyTerm          = []byte("CurrentTerm")
	keyVoteTerm      = []byte("LastVoteTerm")
	keyVoteCandidate = []byte("LastVoteCand")
	keyVote          = []byte("LastVote")
)

// Raft stores a vote with two calls, first the term and then the candidate, but
// the Store writes a single record. With two records, a crash between the two
// writes would leave the new term beside the old candidate. That candidate,
// asking in the new term, would then be told that the vote is its own already,
// however old its log.
//
// So the call with the term only remembers the term, and the call with the
// candidate writes both. Until then the getters answer with the earlier vote,
// and after a restart the half vote never was. Forgetting the half vote is safe,
// because raft tells nobody of a vote before both calls have returned: neither
// the candidate nor, for its own vote, itself. So nobody counts the forgotten
// vote. The term of the vote is not forgotten: raft stores CurrentTerm first, in
// a write of its own that nothing delays.

// SetUint64 stores a number, unless the same number is stored already.
//
// A CurrentTerm that cannot be stored is the only failure that SetUint64 does
// not return, because raft would panic and end the whole process. Raft then
// believes in a term that a restart forgets. The forgotten term does no harm as
// long as raft does nothing in that term: a vote, even for itself, and an entry
// are writes, and all writes fail from now on. The caller that watches Failed
// ends this raft, and must not vouch for the raft's term meanwhile.
func (s *Store) SetUint64(key []byte, value uint64) error {
	switch {
	case bytes.Equal(key, keyVoteTerm):
		s.mu.Lock()
		s.pending = vote{known: true, term: value}
		s.mu.Unlock()
		return s.Failed()
	case bytes.Equal(key, keyTerm):
		_ = s.setTerm(value)
		return nil
	default:
		return s.set(key, binary.BigEndian.AppendUint64(nil, value))
	}
}

// Set stores a value. The candidate of a vote is refused unless the vote's term
// came before.
func (s *Store) Set(key, value []byte) error {
	if !bytes.Equal(key, keyVoteCandidate) {
		return s.set(key, value)
	}
	s.mu.Lock()
	stored, cast := s.vote, s.pending
	s.pending = vote{}
	s.mu.Unlock()
	if err := s.Failed(); err != nil {
		return err
	}
	if !cast.known {
		return errors.New("cluster: a vote for a candidate came without its term")
	}
	if stored.known && stored.term == cast.term && bytes.Equal(stored.candidate, value) {
		return nil
	}
	cast.candidate = bytes.Clone(value)
	record := append(binary.BigEndian.AppendUint64(nil, cast.term), value...)
	if err := s.set(keyVote, record); err != nil {
		return err
	}
	s.mu.Lock()
	s.vote = cast
	s.mu.Unlock()
	return nil
}

// setTerm stores the current term, unless the same term is stored already.
func (s *Store) setTerm(number uint64) error {
	s.mu.Lock()
	unchanged := s.term == term{true, number}
	s.mu.Unlock()
	if unchanged {
		return s.Failed()
	}
	if err := s.set(keyTerm, binary.BigEndian.AppendUint64(nil, number)); err != nil {
		return err
	}
	s.mu.Lock()
	s.term = term{true, number}
	s.mu.Unlock()
	return nil
}

func (s *Store) set(key, value []byte) error {
	s.lockWriter()
	defer s.unlockWriter()
	return s.transact(1, func() error { return s.engine.Set(key, value) })
}

// GetUint64 returns a number, or ErrNotFound if the number was never set.
func (s *Store) GetUint64(key []byte) (uint64, error) {
	if bytes.Equal(key, keyVoteTerm) {
		vote, err := s.lastVote()
		return vote.term, err
	}
	return s.getUint64(key)
}

// Get returns a value, or ErrNotFound if the value was never set.
func (s *Store) Get(key []byte) ([]byte, error) {
	if bytes.Equal(key, keyVoteCandidate) {
		vote, err := s.lastVote()
		return vote.candidate, err
	}
	return s.engine.Get(key)
}

func (s *Store) lastVote() (vote, error) {
	s.mu.Lock()
	last := s.vote
	s.mu.Unlock()
	if !last.known {
		return vote{}, ErrNotFound
	}
	// Never nil: raft takes a nil candidate for no vote at all.
	last.candidate = append([]byte{}, last.candidate...)
	return last, nil
}

func (s *Store) getUint64(key []byte) (uint64, error) {
	value, err := s.engine.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("cluster: %q holds %d bytes, not a number", key, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}
