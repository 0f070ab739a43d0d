package consensus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

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
	if rec.RetiredHere() || rec.Stored && s.stamped() {
		return s.finishDeparture(rec)
	}
	if rec.Stored && rec.Unflushed != "" && rec.Unflushed != s.cfg.HostBoot() {
		// The host went down with writes that were not flushed, or the directory came
		// from another host. Votes and acknowledgements of this ID may be lost.
		s.cfg.Self.Log.Warn("raft store not flushed before its host went down, joining as a new generation", "raft", id,
			"next", "nothing, if the host was restarted; this member votes again once it has caught up")
		return s.renew()
	}
	var first []string // the configuration of the first entry
	if !rec.Stored {
		if first = rec.Founding.Voters; !slices.Contains(first, id) {
			return nil // thin
		}
		if err := s.begin(rec); err != nil {
			return err
		}
	}
	r, err := s.open(id, first)
	if err != nil {
		return err
	}
	empty, err := r.store.Empty()
	switch {
	case err != nil:
		return errors.Join(err, r.abandon())
	case empty:
		// The store was in use and is lost, with every vote and acknowledgement
		// of this voter. This ID must never vote again.
		s.cfg.Self.Log.Warn("raft store lost, joining as a new generation", "raft", id,
			"next", "find out who removed the files in Dir; this member votes again once it has caught up")
		if err := r.abandon(); err != nil {
			return err
		}
		return s.renew()
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
	if s.retired || rec.Founding == nil || rec.RetiredHere() {
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
	if err := s.setAside(s.cfg.Record.Get()); err != nil {
		return "", err
	}
	// From here on the store counts as used: if the store is lost now, the next
	// start takes another generation.
	if err := s.markStored(); err != nil {
		return "", err
	}
	id = member.RaftID(s.cfg.Self.Name, s.cfg.Record.Get().Generation)
	r, err := s.open(id, nil)
	if err != nil {
		return "", err
	}
	s.set(r)
	return id, nil
}

// open starts a Raft on the member's store. first, if any, are the voters of the
// founding, and become the log's first entry in an empty store.
func (s *Seat) open(id string, first []string) (*Raft, error) {
	logger := logging.HashiCorp(s.cfg.Self.Log)
	var store *raftstore.Store
	var snapshots raft.SnapshotStore
	var dir string
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
		dir = filepath.Join(s.cfg.Dir, raftDir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
		if store, err = s.openStore(dir); err != nil {
			return nil, err
		}
		if snapshots, err = raftstore.OpenSnapshots(dir, logger); err == nil {
			err = raftstore.CheckWhole(store, snapshots)
		}
		if err != nil {
			store.Close()
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
	}
	store.Measure(&s.cfg.Self.Meter.Writes)
	store.Before(s.cfg.Disk.Write)
	if len(first) > 0 {
		if err := s.bootstrap(id, first, store, snapshots); err != nil {
			return nil, errors.Join(err, store.Close())
		}
	}
	return startRaft(id, s.cfg.NewTable(), store, snapshots, dir, &s.cfg, logger)
}

// openStore opens the store in Dir. The record tells of unflushed writes before the first
// of them, and until a flush of all of them.
func (s *Seat) openStore(dir string) (*raftstore.Store, error) {
	o := s.cfg.Store
	o.WasUnflushed = s.cfg.Record.Get().Unflushed != ""
	mark := ""
	if s.cfg.Store.Unflushed {
		if mark = s.cfg.HostBoot(); mark == "" {
			return nil, errors.New("cluster: this host tells no boot ID at the moment, which unflushed writes need")
		}
	}
	note := func() error {
		if s.cfg.Record.Get().Unflushed == mark {
			return nil
		}
		return s.cfg.Record.Update(func(rec *identity.Record) { rec.Unflushed = mark })
	}
	if mark != "" {
		if err := note(); err != nil {
			return nil, err
		}
	}
	store, err := raftstore.OpenDurable(dir, o)
	if err != nil {
		return nil, err
	}
	if err := note(); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// bootstrap writes the founding configuration as the first entry, the same bytes on
// every founding voter, unless the log has entries; then bootstrap notes in the
// record that the store is in use. Both before raft runs: a raft that runs may vote,
// and a crash before the note would let the same ID begin anew on an empty store.
func (s *Seat) bootstrap(id string, voters []string, store *raftstore.Store, snapshots raft.SnapshotStore) error {
	cfg := raft.DefaultConfig()
	cfg.LocalID, cfg.Logger = raft.ServerID(id), logging.HashiCorp(s.cfg.Self.Log)
	var c raft.Configuration
	for _, v := range voters {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(v), Address: raft.ServerAddress(v)})
	}
	// Without a transport: raft's present protocol needs none to write an entry.
	if err := raft.BootstrapCluster(cfg, store, store, snapshots, nil, c); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
		return fmt.Errorf("cluster: bootstrap: %w", err)
	}
	return s.markStored()
}

// markStored notes in the record that the store of this generation is in use.
func (s *Seat) markStored() error {
	return s.cfg.Record.Update(func(rec *identity.Record) { rec.Stored = true })
}

// renew takes a new generation for the next store and moves the present store
// aside.
func (s *Seat) renew() error {
	before := s.cfg.Record.Get()
	err := s.cfg.Record.Update(func(rec *identity.Record) {
		rec.Generation = max(rec.Generation+1, uint64(max(s.cfg.Self.Clock.Wall().UnixNano(), 0)))
		rec.Stored, rec.Unflushed = false, ""
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
	return s.setAside(before)
}
