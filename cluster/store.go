package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// storeEngine is where a store keeps its bytes: a bolt file or memory. Its
// methods may be called from several goroutines, but the store runs one write
// at a time.
type storeEngine interface {
	FirstIndex() (uint64, error)
	LastIndex() (uint64, error)
	GetLog(index uint64, log *raftLog) error // raft's ErrLogNotFound itself if there is none
	StoreLogs(logs []*raftLog) error         // one transaction, gaps are allowed
	DeleteRange(min, max uint64) error       // one transaction
	Get(key []byte) ([]byte, error)          // errStoreNotFound if there is none
	Set(key, value []byte) error             // one transaction
	Close() error
}

const (
	storeCacheEntries = 1024
	storeCacheBytes   = 4 << 20

	// storeSlice is how many entries one transaction of a compaction deletes
	// at most: the leader's next write waits for one slice, not for all.
	storeSlice = 1024
)

// errStoreNotFound is what a missing key answers. Raft compares this text.
var errStoreNotFound = errors.New("not found")

var errStoreClosed = errors.New("closed")

// storeFailedError is what every write returns after the first one that
// failed, including that one. Whether that first one reached the disk is not
// known; those after it changed nothing.
type storeFailedError struct{ cause error }

func (e *storeFailedError) Error() string {
	return "cluster: the store refuses all writes: " + e.cause.Error()
}

func (e *storeFailedError) Unwrap() error { return e.cause }

// store is the log and the stable store that raft runs on.
//
// After a write has failed, every later one fails too: an fsync that failed
// once says nothing when it is repeated, so nothing may be acknowledged on top
// of it. A write that hangs is never given up either, since it may still land:
// it shows in StalledFor, and whoever watches that ends raft.
//
// It is no MonotonicLogStore on purpose, for raft would then delete the whole
// log after every snapshot it installs. A late snapshot would take with it
// entries beyond it that this voter has already acknowledged.
//
// All methods may be called at any time from any goroutine.
type store struct {
	engine storeEngine
	cache  *storeCache

	// writer is held, by having sent to it, over one transaction of the
	// engine. It is a channel because those who wait for it are served in
	// turn, so a compaction lets the leader's write pass between two slices.
	writer chan struct{}
	closed bool // guarded by writer

	origin  time.Time    // what began counts from, monotonic
	began   atomic.Int64 // when the running write began, in ns since origin plus 1; 0: none
	failure atomic.Pointer[storeFailedError]

	writes, batches atomic.Uint64
	slowest         atomic.Int64

	mu     sync.Mutex // never held over a call of the engine
	vote   storeVote  // as stored
	ballot storeVote  // a vote whose candidate is still to come
	term   storeTerm  // as stored
}

// storeVote is for whom this voter voted last, and when.
type storeVote struct {
	known     bool
	term      uint64
	candidate []byte
}

// storeTerm is the current term.
type storeTerm struct {
	known bool
	term  uint64
}

// storeStats counts since the store was opened.
type storeStats struct {
	Writes  uint64        // log entries and values written
	Batches uint64        // transactions, deletions included: each syncs the disk
	Slowest time.Duration // of those transactions
}

// The keys that raft uses, and the one that a whole vote is kept under.
var (
	storeKeyTerm     = []byte("CurrentTerm")
	storeKeyVoteTerm = []byte("LastVoteTerm")
	storeKeyVoteCand = []byte("LastVoteCand")
	storeKeyVote     = []byte("LastVote")
)

// newStore returns a store over engine, which it owns from now on. When it
// fails the engine could not be read; closing it is then left to the caller.
func newStore(engine storeEngine, cache *storeCache) (*store, error) {
	s := &store{
		engine: engine,
		cache:  cache,
		writer: make(chan struct{}, 1),
		origin: time.Now(),
	}
	switch record, err := engine.Get(storeKeyVote); {
	case errors.Is(err, errStoreNotFound):
	case err != nil:
		return nil, fmt.Errorf("reading the last vote: %w", err)
	case len(record) < 8:
		return nil, fmt.Errorf("reading the last vote: %d bytes are too few", len(record))
	default:
		s.vote = storeVote{true, binary.BigEndian.Uint64(record), bytes.Clone(record[8:])}
	}
	switch term, err := s.getUint64(storeKeyTerm); {
	case errors.Is(err, errStoreNotFound):
	case err != nil:
		return nil, fmt.Errorf("reading the current term: %w", err)
	default:
		s.term = storeTerm{true, term}
	}
	return s, nil
}

// StalledFor returns how long the running write has been running, 0 if there
// is none.
func (s *store) StalledFor() time.Duration {
	began := s.began.Load()
	if began == 0 {
		return 0
	}
	return time.Since(s.origin) - time.Duration(began-1)
}

// Failed returns why the store refuses all writes, nil while it takes them.
func (s *store) Failed() error {
	if failure := s.failure.Load(); failure != nil {
		return failure
	}
	return nil
}

// Close waits for the running write, however long it hangs, and closes the
// engine. Later writes fail; a second Close does nothing.
func (s *store) Close() error {
	s.writer <- struct{}{}
	defer func() { <-s.writer }()
	if s.closed {
		return nil
	}
	s.closed = true
	s.failure.CompareAndSwap(nil, &storeFailedError{errStoreClosed})
	s.cache.dropFrom(0)
	return s.engine.Close()
}

func (s *store) stats() storeStats {
	return storeStats{
		Writes:  s.writes.Load(),
		Batches: s.batches.Load(),
		Slowest: time.Duration(s.slowest.Load()),
	}
}

// transact runs one transaction. The caller holds writer.
func (s *store) transact(writes int, run func() error) error {
	if err := s.Failed(); err != nil {
		return err
	}
	began := time.Since(s.origin)
	s.began.Store(int64(began) + 1)
	err := run()
	s.began.Store(0)

	s.batches.Add(1)
	// Only the holder of writer gets here, so this needs no compare-and-swap.
	s.slowest.Store(max(s.slowest.Load(), int64(time.Since(s.origin)-began)))
	if err != nil {
		failure := &storeFailedError{err}
		s.failure.Store(failure)
		s.cache.dropFrom(0) // what is stored now, only the engine can say
		return failure
	}
	s.writes.Add(uint64(writes))
	return nil
}

func (s *store) FirstIndex() (uint64, error) { return s.engine.FirstIndex() }
func (s *store) LastIndex() (uint64, error)  { return s.engine.LastIndex() }

// GetLog fills log with the entry at index. Its Data and Extensions are shared
// with the cache: read only.
func (s *store) GetLog(index uint64, log *raftLog) error {
	if s.cache.get(index, log) {
		return nil
	}
	return s.engine.GetLog(index, log)
}

func (s *store) StoreLog(log *raftLog) error { return s.StoreLogs([]*raftLog{log}) }

// StoreLogs writes all of logs or fails, and with it the store.
func (s *store) StoreLogs(logs []*raftLog) error {
	if len(logs) == 0 {
		return s.Failed()
	}
	s.writer <- struct{}{}
	defer func() { <-s.writer }()

	// What is overwritten leaves the cache before it changes, and what is new
	// enters it after, so that a reader never sees the cache behind the engine.
	first := logs[0].Index
	for _, log := range logs {
		first = min(first, log.Index)
	}
	s.cache.dropFrom(first)
	if err := s.transact(len(logs), func() error { return s.engine.StoreLogs(logs) }); err != nil {
		return err
	}
	s.cache.add(logs)
	return nil
}

// DeleteRange deletes the entries from min to max, both included.
//
// A compaction, which leaves later entries, is cut into slices from the oldest
// on, and other writes may pass between them: whenever it stops, what is left
// is a log without its oldest entries. Everything else is one transaction, for
// a conflicting tail cut half would leave either a gap, over which raft cannot
// start, or entries that the leader never wrote. That includes deleting all
// there is, which may be a conflict at the first entry.
func (s *store) DeleteRange(min, max uint64) error {
	for more := min <= max; more; {
		var err error
		if more, err = s.deleteSlice(min, max); err != nil {
			return err
		}
	}
	return nil
}

// deleteSlice deletes what one transaction may of min to max, and reports
// whether there is more.
func (s *store) deleteSlice(from, to uint64) (more bool, err error) {
	s.writer <- struct{}{}
	defer func() { <-s.writer }()

	if err := s.Failed(); err != nil {
		return false, err
	}
	// Asked for anew each time, since other writes may have passed.
	first, err := s.engine.FirstIndex()
	if err != nil {
		return false, err
	}
	last, err := s.engine.LastIndex()
	if err != nil {
		return false, err
	}
	if first == 0 || to < first || last < from {
		return false, nil
	}
	if from <= first && to < last {
		from = first
		if end := first + storeSlice - 1; end < to {
			to, more = end, true
		}
		s.cache.dropTo(to)
	} else {
		s.cache.dropFrom(from)
	}
	return more, s.transact(0, func() error { return s.engine.DeleteRange(from, to) })
}

// A vote is two calls of raft, term and then candidate, but it is stored as one
// record. Stored as two, a crash between them would leave the new term beside
// the old candidate, and that candidate, asking in the new term, would be told
// that it already has the vote, however old its log.
//
// So the term is only remembered, and the candidate writes both; until then
// the getters answer with the vote before, and after a restart the half vote
// never was. That is safe because raft tells nobody of a vote, neither the
// candidate nor, for its own, itself, before both calls have returned: nobody
// counts the vote that is forgotten. The term it was cast in is not forgotten:
// raft stores CurrentTerm first, in a write of its own that nothing delays.

// SetUint64 stores a number, unless it is stored already.
//
// A term that cannot be stored is the one failure it does not return, since
// raft would panic and take the whole process along. Raft then believes in a
// term that a restart forgets, which does no harm as long as nothing is done
// in it: a vote, its own included, and an entry are writes, and these fail from
// here on. Whoever watches Failed ends this raft, and must not vouch for its
// term meanwhile.
func (s *store) SetUint64(key []byte, value uint64) error {
	switch {
	case bytes.Equal(key, storeKeyVoteTerm):
		s.mu.Lock()
		s.ballot = storeVote{known: true, term: value}
		s.mu.Unlock()
		return s.Failed()
	case bytes.Equal(key, storeKeyTerm):
		_ = s.setTerm(value)
		return nil
	default:
		return s.set(key, binary.BigEndian.AppendUint64(nil, value))
	}
}

// Set stores a value.
func (s *store) Set(key, value []byte) error {
	if !bytes.Equal(key, storeKeyVoteCand) {
		return s.set(key, value)
	}
	s.mu.Lock()
	vote, ballot := s.vote, s.ballot
	s.ballot = storeVote{}
	s.mu.Unlock()
	if err := s.Failed(); err != nil {
		return err
	}
	if !ballot.known {
		return errors.New("cluster: a candidate to vote for, but no term")
	}
	if vote.known && vote.term == ballot.term && bytes.Equal(vote.candidate, value) {
		return nil
	}
	ballot.candidate = bytes.Clone(value)
	record := append(binary.BigEndian.AppendUint64(nil, ballot.term), value...)
	if err := s.set(storeKeyVote, record); err != nil {
		return err
	}
	s.mu.Lock()
	s.vote = ballot
	s.mu.Unlock()
	return nil
}

// setTerm stores the current term, unless it is stored already.
func (s *store) setTerm(term uint64) error {
	s.mu.Lock()
	unchanged := s.term == storeTerm{true, term}
	s.mu.Unlock()
	if unchanged {
		return s.Failed()
	}
	if err := s.set(storeKeyTerm, binary.BigEndian.AppendUint64(nil, term)); err != nil {
		return err
	}
	s.mu.Lock()
	s.term = storeTerm{true, term}
	s.mu.Unlock()
	return nil
}

func (s *store) set(key, value []byte) error {
	s.writer <- struct{}{}
	defer func() { <-s.writer }()
	return s.transact(1, func() error { return s.engine.Set(key, value) })
}

// GetUint64 returns a number, errStoreNotFound if it was never set.
func (s *store) GetUint64(key []byte) (uint64, error) {
	if bytes.Equal(key, storeKeyVoteTerm) {
		vote, err := s.lastVote()
		return vote.term, err
	}
	return s.getUint64(key)
}

// Get returns a value, errStoreNotFound if it was never set.
func (s *store) Get(key []byte) ([]byte, error) {
	if bytes.Equal(key, storeKeyVoteCand) {
		vote, err := s.lastVote()
		return vote.candidate, err
	}
	return s.engine.Get(key)
}

func (s *store) lastVote() (storeVote, error) {
	s.mu.Lock()
	vote := s.vote
	s.mu.Unlock()
	if !vote.known {
		return storeVote{}, errStoreNotFound
	}
	// Never nil: raft takes a nil candidate for no vote at all.
	vote.candidate = append([]byte{}, vote.candidate...)
	return vote, nil
}

func (s *store) getUint64(key []byte) (uint64, error) {
	value, err := s.engine.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("cluster: %q holds %d bytes, not a number", key, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

// storeCache keeps the newest entries of a log, without gaps, so that sending
// them to followers and applying them reads no disk. Its bounds count entries
// and bytes; a compaction leaves it all that is not compacted.
type storeCache struct {
	limit int // bytes

	mu    sync.RWMutex
	ring  []raftLog // the entry at index i is at i modulo the length
	first uint64    // it holds the entries from first
	next  uint64    // to before next
	bytes int
}

// newStoreCache returns a cache for that many entries and bytes; 0 entries
// cache nothing.
func newStoreCache(entries, bytes int) *storeCache {
	return &storeCache{ring: make([]raftLog, entries), limit: bytes}
}

func (c *storeCache) slot(index uint64) *raftLog { return &c.ring[index%uint64(len(c.ring))] }

func (c *storeCache) get(index uint64, log *raftLog) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if index < c.first || c.next <= index {
		return false
	}
	*log = *c.slot(index)
	return true
}

// add takes copies of logs, the newest of the log. Not the pointers: raft's
// are into its futures, which would be kept with all that hangs on them.
func (c *storeCache) add(logs []*raftLog) {
	if len(c.ring) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, log := range logs {
		c.cutFrom(log.Index)
		if c.next != log.Index {
			c.cutFrom(0) // after a gap
			c.first, c.next = log.Index, log.Index
		}
		if c.next-c.first == uint64(len(c.ring)) {
			c.cutOldest()
		}
		*c.slot(log.Index) = *log
		c.next++
		c.bytes += storeCacheCost(log)
		for c.bytes > c.limit {
			c.cutOldest()
		}
	}
}

// dropFrom forgets the entries from index on.
func (c *storeCache) dropFrom(index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cutFrom(index)
}

// dropTo forgets the entries up to and with index.
func (c *storeCache) dropTo(index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.first < c.next && c.first <= index {
		c.cutOldest()
	}
}

func (c *storeCache) cutFrom(index uint64) {
	for c.first < c.next && index < c.next {
		c.next--
		c.cut(c.next)
	}
}

func (c *storeCache) cutOldest() {
	c.cut(c.first)
	c.first++
}

func (c *storeCache) cut(index uint64) {
	slot := c.slot(index)
	c.bytes -= storeCacheCost(slot)
	*slot = raftLog{}
}

// storeCacheCost is what an entry counts for: its bytes and about a header.
func storeCacheCost(log *raftLog) int { return len(log.Data) + len(log.Extensions) + 128 }
