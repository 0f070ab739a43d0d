package raftstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// vote is the last vote of this voter.
type vote struct {
	term      uint64
	candidate []byte // never nil: raft takes a nil candidate for no vote at all
}

// newVote reads the record of a vote: 8 bytes of the term, then the candidate.
func newVote(record []byte) *vote {
	return &vote{binary.BigEndian.Uint64(record), append([]byte{}, record[8:]...)}
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

// SetUint64 stores a number.
//
// A CurrentTerm that cannot be stored is the only failure that SetUint64 does
// not return, because raft would panic and end the whole process. Raft then
// believes in a term that a restart forgets. The forgotten term does no harm as
// long as raft does nothing in that term: a vote, even for itself, and an entry
// are writes, and all writes fail from now on. The caller that watches Failed
// ends this raft, and must not vouch for the raft's term meanwhile.
func (s *Store) SetUint64(key []byte, value uint64) error {
	if bytes.Equal(key, keyVoteTerm) {
		s.pending.Store(&value)
		return s.Failed()
	}
	err := s.set(key, binary.BigEndian.AppendUint64(nil, value))
	if bytes.Equal(key, keyTerm) {
		return nil
	}
	return err
}

// Set stores a value. The candidate of a vote is refused unless the vote's term
// came before.
func (s *Store) Set(key, value []byte) error {
	if !bytes.Equal(key, keyVoteCandidate) {
		return s.set(key, value)
	}
	term := s.pending.Swap(nil)
	if err := s.Failed(); err != nil {
		return err
	}
	if term == nil {
		return errors.New("cluster: a vote for a candidate came without its term")
	}
	record := append(binary.BigEndian.AppendUint64(nil, *term), value...)
	if err := s.set(keyVote, record); err != nil {
		return err
	}
	s.vote.Store(newVote(record))
	return nil
}

// set writes a value, unless the same value is stored already. While no write
// has failed and no other write runs, the engine's value is on the disk. The
// comparison is part of the transaction: a disk that hangs may hang the reading,
// and StalledFor must tell.
func (s *Store) set(key, value []byte) error {
	s.lockWriter()
	defer s.unlockWriter()
	return s.transact(func() error {
		if stored, err := s.engine.Get(key); err == nil && bytes.Equal(stored, value) {
			return nil
		}
		return s.engine.Set(key, value)
	})
}

// GetUint64 returns a number, or ErrNotFound if the number was never set.
func (s *Store) GetUint64(key []byte) (uint64, error) {
	if bytes.Equal(key, keyVoteTerm) {
		vote := s.vote.Load()
		if vote == nil {
			return 0, ErrNotFound
		}
		return vote.term, nil
	}
	value, err := s.engine.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("cluster: %q holds %d bytes, not a number", key, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

// Get returns a value, or ErrNotFound if the value was never set.
func (s *Store) Get(key []byte) ([]byte, error) {
	if !bytes.Equal(key, keyVoteCandidate) {
		return s.engine.Get(key)
	}
	vote := s.vote.Load()
	if vote == nil {
		return nil, ErrNotFound
	}
	return append([]byte{}, vote.candidate...), nil
}

// VotedFor reports whether the last vote is for the candidate in the term.
func (s *Store) VotedFor(term uint64, candidate string) bool {
	vote := s.vote.Load()
	return vote != nil && vote.term == term && string(vote.candidate) == candidate
}
