package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// roles runs this member's raft while it has one: from founding, an invitation
// or a restart until it is removed or the node stops. Thin is the member
// without.
type roles struct {
	n *Node

	mu      sync.Mutex
	raft    *raftNode // nil: thin
	retired bool      // the disk failed: this process does not vote again
	orphan  time.Time // since when raft has known no leader; zero if it does
	work    chan func()

	changed pulse // raft started or stopped
}

const (
	// A voter that has seen no leader for so long asks whether it still is one.
	orphanAfter   = 10 * time.Second
	watchInterval = time.Second
	// A store that does not answer for so long will not be waited for.
	hungAfter = 10 * time.Second

	raftDir = "raft"
)

func newRoles(n *Node) *roles { return &roles{n: n, work: make(chan func(), 16)} }

// current is the running raft, or nil.
func (r *roles) current() *raftNode {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.raft
}

// run does the work that starts and stops raft, one piece at a time, and looks
// after a raft that has lost its cluster.
func (r *roles) run(ctx context.Context) {
	t := time.NewTicker(watchInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-r.work:
			f()
		case <-t.C:
			r.watch(ctx)
		}
	}
}

// do has f run by run, and waits for it.
func (r *roles) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case r.work <- func() {
		if ctx.Err() == nil { // else nobody waits for it any more
			f()
		}
		close(done)
	}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// found starts raft as one of the founding voters.
func (r *roles) found() {
	select {
	case r.work <- func() {
		if err := r.resume(); err != nil {
			r.n.fail(err)
		}
	}:
	case <-r.n.ctx.Done():
	}
}

// resume starts raft if the member's record says that it votes: after
// founding, and at a restart with a Dir.
func (r *roles) resume() error {
	rec := r.n.id.get()
	if rec.Founding == nil || r.current() != nil {
		return nil
	}
	founder := false
	id := raftID(r.n.cfg.Name, rec.Generation)
	for _, v := range rec.Founding.Voters {
		founder = founder || v == id
	}
	if !founder && !rec.Stored {
		return nil // thin
	}
	if !rec.Stored {
		// What lies there is another's, or of a founding that was cut short
		// before raft could speak to anyone: begin anew.
		if err := r.wipe(); err != nil {
			return err
		}
	}
	n, err := r.open(id)
	if err != nil {
		return err
	}
	empty, err := storeEmpty(n.store)
	if err != nil {
		return errors.Join(err, n.abandon())
	}
	switch {
	case empty && rec.Stored:
		// The store was in use and is gone, and with it what this voter
		// acknowledged. Under this ID it must never vote again.
		r.n.log.Warn("raft store lost, joining as a new generation", "raft", id)
		if err := n.abandon(); err != nil {
			return err
		}
		return r.renew()
	case empty:
		if err := n.bootstrap(rec.Founding.Voters); err != nil {
			return errors.Join(err, n.abandon())
		}
	}
	if !rec.Stored {
		if err := r.n.id.update(func(r *identityRecord) { r.Stored = true }); err != nil {
			return errors.Join(err, n.abandon())
		}
	}
	r.set(n)
	return nil
}

// invited starts an empty raft so that the leader can add it, and returns its
// ID. A raft that runs already is what the leader gets.
func (r *roles) invited(ctx context.Context) (string, error) {
	var id string
	var err error
	if e := r.do(ctx, func() { id, err = r.accept() }); e != nil {
		return "", e // and id and err may be written yet
	}
	return id, err
}

func (r *roles) accept() (string, error) {
	switch {
	case r.retired || r.n.founding.Load() == nil:
		return "", errors.New("cluster: cannot vote")
	case r.current() != nil:
		return r.current().id, nil
	}
	if r.n.id.get().Stored {
		if err := r.renew(); err != nil {
			return "", err
		}
	}
	if err := r.wipe(); err != nil {
		return "", err
	}
	// From here on the store counts as used: if it is lost now, the next start
	// takes another generation.
	if err := r.n.id.update(func(r *identityRecord) { r.Stored = true }); err != nil {
		return "", err
	}
	id := raftID(r.n.cfg.Name, r.n.id.get().Generation)
	n, err := r.open(id)
	if err != nil {
		return "", err
	}
	r.set(n)
	return id, nil
}

// removed stops raft for good after its ID has left the configuration.
func (r *roles) removed(id string) {
	n := r.current()
	if n == nil || n.id != id {
		return
	}
	r.n.log.Info("no longer a voter", "raft", id)
	r.set(nil)
	if err := n.stop(); err != nil {
		r.n.log.Warn("raft stop", "error", err)
	}
	if err := r.renew(); err != nil {
		r.n.fail(err)
	}
}

// restart has raft begin anew on its store. In memory there is none that
// outlives it: the member comes back as a new generation.
func (r *roles) restart(n *raftNode) {
	select {
	case r.work <- func() {
		if r.current() != n {
			return
		}
		r.n.log.Warn("raft is stuck, restarting it", "raft", n.id)
		r.set(nil)
		err := n.stop()
		if err == nil && r.n.cfg.Dir == "" {
			err = r.renew()
		} else if err == nil {
			err = r.resume()
		}
		if err != nil {
			r.n.fail(err)
		}
	}:
	default: // asked for already
	}
}

// renew wipes the store and takes a new generation for the next.
func (r *roles) renew() error {
	err := r.n.id.update(func(rec *identityRecord) {
		rec.Generation = max(rec.Generation+1, uint64(time.Now().UnixNano()))
		rec.Stored = false
	})
	if err != nil {
		return err
	}
	r.n.gossip.update(func(m *metadata) {
		m.Voter = false
		if !r.retired {
			m.Generation = r.n.id.get().Generation
		}
	})
	return r.wipe()
}

// wipe removes the raft store of a member with a Dir.
func (r *roles) wipe() error {
	if r.n.cfg.Dir == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(r.n.cfg.Dir, raftDir))
}

// open starts raft on the member's store.
func (r *roles) open(id string) (*raftNode, error) {
	logger := newHCLogger(r.n.log)
	var st *store
	var snaps raftSnapshotStore
	var err error
	switch {
	case r.n.cfg.engine != nil:
		if st, err = newStore(r.n.cfg.engine, newStoreCache(0, 0)); err != nil {
			return nil, err
		}
		snaps = newMemorySnapshots()
	case r.n.cfg.Dir == "":
		st, snaps = newMemoryStore(), newMemorySnapshots()
	default:
		dir := filepath.Join(r.n.cfg.Dir, raftDir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
		if st, err = openBoltStore(dir); err != nil {
			return nil, err
		}
		if snaps, err = openFileSnapshots(dir, logger); err != nil {
			st.Close()
			return nil, err
		}
	}
	return startRaft(id, st, snaps, r.n.dialRaft, logger)
}

func storeEmpty(s *store) (bool, error) {
	last, err := s.LastIndex()
	if err != nil || last > 0 {
		return false, err
	}
	term, err := s.GetUint64([]byte("CurrentTerm"))
	if err != nil && err.Error() == "not found" {
		return true, nil
	}
	return term == 0, err
}

// set makes n the running raft, and runs its leadership.
func (r *roles) set(n *raftNode) {
	r.mu.Lock()
	r.raft, r.orphan = n, time.Time{}
	r.mu.Unlock()
	if n != nil {
		n.lead(r.n)
		id := r.n.id.get().Generation
		r.n.gossip.update(func(m *metadata) { m.Generation = id })
	}
	r.changed.fire()
	r.n.link.wake()
}

// stop ends raft with the node.
func (r *roles) stop() error {
	n := r.current()
	if n == nil {
		return nil
	}
	var last machine.Token
	n.table.view(func(t *machine.State) { last = t.LastToken() })
	r.set(nil)
	ended := make(chan error, 1)
	go func() { ended <- n.stop() }()
	var err error
	t := time.NewTimer(hungAfter)
	defer t.Stop()
	select {
	case err = <-ended:
	case <-t.C:
		return errDiskStalled // it is left to itself: nobody can end such a write
	}
	if r.n.cfg.Dir != "" {
		err = errors.Join(err, r.n.id.update(func(rec *identityRecord) { rec.Token = max(rec.Token, uint64(last)) }))
	}
	return err
}

// watch looks after the running raft.
func (r *roles) watch(ctx context.Context) {
	n := r.current()
	if n == nil {
		return
	}
	if err := n.table.parted(); err != nil {
		r.retire(n, err)
		return
	}
	if err := n.store.Failed(); err != nil || n.store.StalledFor() > hungAfter {
		if err == nil {
			err = errDiskStalled
		}
		r.retire(n, fmt.Errorf("raft store: %w", err))
		return
	}
	voter := false
	for _, id := range n.voters() {
		voter = voter || id == n.id
	}
	r.n.gossip.update(func(m *metadata) { m.Voter = voter })
	if n.leaderID() != "" {
		r.orphan = time.Time{}
		return
	}
	now := time.Now()
	if r.orphan.IsZero() {
		r.orphan = now
	}
	if now.Sub(r.orphan) < orphanAfter {
		return
	}
	// No leader speaks to this raft. If the node has found one by itself, that
	// leader knows whether it ever will.
	name, addr, ok := r.n.link.leader()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	f, err := r.n.control.ask(ctx, place{addr: addr, name: name}, wire.InConfig, wire.Marshal(&wire.InConfigRequest{Raft: n.id}))
	if err == nil && f.Code == wire.CodeNo {
		r.removed(n.id)
	}
}

// retire ends raft on a disk that failed, or whose table has parted from the
// others'. The member goes on, thin. Whether the last write reached the disk nobody
// knows, so it never votes again under this ID.
func (r *roles) retire(n *raftNode, why error) {
	r.retired = true
	r.n.log.Error("this member votes no more", "error", why)
	r.n.event(Event{Kind: NodeFailed, Detail: why.Error()})
	r.set(nil)
	r.n.gossip.update(func(m *metadata) { m.Generation, m.Voter = 0, false })
	// Nobody waits for this: a write that hangs for ever would keep the stop,
	// and must not keep the node.
	go func() {
		n.stop()
		// The next start must not vote under this ID either.
		if err := r.renew(); err != nil {
			r.n.log.Warn("failed raft store not retired for good", "error", err)
		}
	}()
}
