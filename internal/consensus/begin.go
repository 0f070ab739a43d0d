package consensus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/logging"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/raftstore"
)

// raftDir is the directory of the raft store in the member's Dir.
const raftDir = "raft"

// Found starts a Raft of a founding voter; the record must name the founding.
// Found does not wait for the start, unless Run is far behind. A start that fails
// ends the node through Config.Fail.
func (s *Seat) Found(ctx context.Context) {
	select {
	case s.work <- func() {
		if err := s.Resume(); err != nil {
			s.cfg.Fail(err)
		}
	}:
	case <-ctx.Done():
	}
}

// Resume starts a Raft if the member's record says that this member votes, as a
// founding voter or on a store in Dir. Call Resume before Run. When Resume fails,
// no Raft runs.
func (s *Seat) Resume() error {
	rec := s.cfg.Record.Get()
	if rec.Founding == nil || s.Current() != nil {
		return nil
	}
	id := member.RaftID(s.cfg.Self.Name, rec.Generation)
	if !rec.Stored {
		if !slices.Contains(rec.Founding.Voters, id) {
			return nil // thin
		}
		// A store in Dir is of another generation, or of a founding that was cut
		// short before raft could speak to another voter: begin anew.
		if err := s.wipe(); err != nil {
			return err
		}
	}
	r, err := s.open(id)
	if err != nil {
		return err
	}
	empty, err := r.store.Empty()
	switch {
	case err != nil:
	case empty && rec.Stored:
		// The store was in use and is lost, with every vote and acknowledgement
		// of this voter. This ID must never vote again.
		s.cfg.Self.Log.Warn("raft store lost, joining as a new generation", "raft", id)
		if err := r.abandon(); err != nil {
			return err
		}
		return s.renew()
	case empty:
		err = r.bootstrap(rec.Founding.Voters)
	}
	if err == nil && !rec.Stored {
		err = s.markStored()
	}
	if err != nil {
		return errors.Join(err, r.abandon())
	}
	s.set(r)
	return nil
}

// Invited starts an empty Raft, so that the leader can add this member to the
// configuration, and returns the raft ID. If a Raft runs already, Invited returns
// its ID. A member that has retired, or that is in no cluster, refuses. When
// Invited fails because ctx has ended, a Raft may begin all the same.
func (s *Seat) Invited(ctx context.Context) (id string, err error) {
	var invited string
	var refused error
	if err := s.do(ctx, func() { invited, refused = s.invite() }); err != nil {
		return "", err // Run may write the other two still
	}
	return invited, refused
}

func (s *Seat) invite() (id string, err error) {
	rec := s.cfg.Record.Get()
	if s.retired || rec.Founding == nil {
		return "", errors.New("cluster: cannot vote")
	}
	if r := s.Current(); r != nil {
		return r.id, nil
	}
	if rec.Stored {
		if err := s.renew(); err != nil {
			return "", err
		}
	}
	if err := s.wipe(); err != nil {
		return "", err
	}
	// From here on the store counts as used: if the store is lost now, the next
	// start takes another generation.
	if err := s.markStored(); err != nil {
		return "", err
	}
	id = member.RaftID(s.cfg.Self.Name, s.cfg.Record.Get().Generation)
	r, err := s.open(id)
	if err != nil {
		return "", err
	}
	s.set(r)
	return id, nil
}

// open starts a Raft on the member's store.
func (s *Seat) open(id string) (*Raft, error) {
	logger := logging.HashiCorp(s.cfg.Self.Log)
	var store *raftstore.Store
	var snapshots raft.SnapshotStore
	var err error
	switch {
	case s.cfg.Engine != nil:
		if store, err = raftstore.New(s.cfg.Engine, 0, 0); err != nil {
			return nil, err
		}
		snapshots = raftstore.NewMemorySnapshots()
	case s.cfg.Dir == "":
		store, snapshots = raftstore.NewInMemory(), raftstore.NewMemorySnapshots()
	default:
		dir := filepath.Join(s.cfg.Dir, raftDir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
		if store, err = raftstore.OpenDurable(dir); err != nil {
			return nil, err
		}
		if snapshots, err = raftstore.OpenSnapshots(dir, logger); err != nil {
			store.Close()
			return nil, err
		}
	}
	return startRaft(id, s.cfg.NewTable(), store, snapshots, s.cfg.Dial, logger)
}

// markStored notes in the record that the store of this generation is in use.
func (s *Seat) markStored() error {
	return s.cfg.Record.Update(func(rec *identity.Record) { rec.Stored = true })
}

// renew takes a new generation for the next store and removes the present store.
func (s *Seat) renew() error {
	err := s.cfg.Record.Update(func(rec *identity.Record) {
		rec.Generation = max(rec.Generation+1, uint64(time.Now().UnixNano()))
		rec.Stored = false
	})
	if err != nil {
		return err
	}
	generation := s.cfg.Record.Get().Generation
	s.cfg.Advertise(func(m *member.Metadata) {
		m.Voter = false
		if !s.retired {
			m.Generation = generation
		}
	})
	return s.wipe()
}

// wipe removes the raft store of a member with a Dir.
func (s *Seat) wipe() error {
	if s.cfg.Dir == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(s.cfg.Dir, raftDir))
}
