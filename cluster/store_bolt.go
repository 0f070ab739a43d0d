package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

var (
	errStoreInUse   = errors.New("in use by another process")
	errStoreDamaged = errors.New("damaged")
)

// boltError says why a file cannot be used as a store. It matches errStoreInUse
// or errStoreDamaged, if it is one of these, and its cause.
type boltError struct {
	path  string
	kind  error // nil: the operating system refused
	cause error
}

func (e *boltError) Error() string {
	if e.kind == nil || errors.Is(e.cause, e.kind) {
		return fmt.Sprintf("cluster: store %s: %v", e.path, e.cause)
	}
	return fmt.Sprintf("cluster: store %s: %v: %v", e.path, e.kind, e.cause)
}

func (e *boltError) Unwrap() []error {
	if e.kind == nil {
		return []error{e.cause}
	}
	return []error{e.kind, e.cause}
}

// openBoltStore opens the store in dir and makes what is missing of it; an
// empty file is a new store. It waits a second for another process that has it
// open, and reads the file once from end to end, so that damage is an error
// here and not, later, a panic of bbolt or raft. The error is a *boltError.
func openBoltStore(dir string) (*store, error) {
	path := filepath.Join(dir, "raft.db")
	engine, err := openBoltEngine(path)
	if err != nil {
		return nil, boltErrorOf(path, err)
	}
	s, err := newStore(engine, newStoreCache(storeCacheEntries, storeCacheBytes))
	if err != nil {
		_ = engine.Close()
		return nil, boltErrorOf(path, err)
	}
	return s, nil
}

func boltErrorOf(path string, err error) error {
	var errno syscall.Errno
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return &boltError{path, errStoreInUse, err}
	case errors.As(err, &errno):
		return &boltError{path, nil, err}
	}
	return &boltError{path, errStoreDamaged, err}
}

// boltOptions are for every open: to sync is never left out. The list of free
// pages is, for it is written with each commit otherwise and can be had from
// the reading at the start.
func boltOptions() *bbolt.Options {
	return &bbolt.Options{
		Timeout:        time.Second,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
	}
}

// boltEngine keeps a store in a bolt file.
//
// raft-boltdb trusts every byte of the disk. Here each entry and value carries
// a checksum: one flipped bit in an entry would make this voter's table differ
// from the others' for good, and one in the term would let it vote twice.
type boltEngine struct {
	bolt *raftboltdb.BoltStore
}

func openBoltEngine(path string) (_ *boltEngine, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	var indexes []uint64
	var keys [][]byte
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Size() > 0:
		if indexes, keys, err = boltCheckFile(path); err != nil {
			return nil, err
		}
	}

	bolt, err := boltOpen(path)
	if err != nil {
		return nil, err
	}
	e := &boltEngine{bolt: bolt}
	defer func() {
		if err != nil {
			_ = e.Close()
		}
	}()
	if info == nil {
		// The file is synced, its name is not.
		if err := boltSyncDirectory(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	var log raftLog
	for _, index := range indexes {
		if err := e.GetLog(index, &log); err != nil {
			return nil, err
		}
	}
	for _, key := range keys {
		if _, err := e.Get(key); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// boltOpen opens the file to write. bbolt panics on much that it does not
// expect; boltCheckFile should have found it before, this is the second net.
func boltOpen(path string) (bolt *raftboltdb.BoltStore, err error) {
	defer boltRecover(&err)
	return raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: boltOptions()})
}

func boltRecover(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("bbolt: %v", r)
	}
}

func boltSyncDirectory(path string) error {
	if runtime.GOOS == "windows" {
		return nil // cannot sync a directory, and need not
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (e *boltEngine) FirstIndex() (uint64, error)       { return e.bolt.FirstIndex() }
func (e *boltEngine) LastIndex() (uint64, error)        { return e.bolt.LastIndex() }
func (e *boltEngine) DeleteRange(from, to uint64) error { return e.bolt.DeleteRange(from, to) }
func (e *boltEngine) Close() error                      { return e.bolt.Close() }

const boltSumLen = 4

var boltSums = crc32.MakeTable(crc32.Castagnoli)

// boltLogSum covers what raft hands to others of an entry: all but the time.
func boltLogSum(log *raftLog, extensions []byte) uint32 {
	var head [25]byte
	binary.BigEndian.PutUint64(head[0:], log.Index)
	binary.BigEndian.PutUint64(head[8:], log.Term)
	head[16] = byte(log.Type)
	binary.BigEndian.PutUint64(head[17:], uint64(len(log.Data)))
	sum := crc32.Update(0, boltSums, head[:])
	sum = crc32.Update(sum, boltSums, log.Data)
	return crc32.Update(sum, boltSums, extensions)
}

// boltValueSum covers the key too: one value under the other's key is damage.
func boltValueSum(key, value []byte) uint32 {
	return crc32.Update(crc32.Update(0, boltSums, key), boltSums, value)
}

// StoreLogs writes copies that carry their checksums behind the Extensions, the
// one place in an entry that raft leaves to its user.
func (e *boltEngine) StoreLogs(logs []*raftLog) error {
	copies := make([]raftLog, len(logs))
	sealed := make([]*raftLog, len(logs))
	for i, log := range logs {
		copies[i] = *log
		extensions := make([]byte, 0, len(log.Extensions)+boltSumLen)
		extensions = append(extensions, log.Extensions...)
		copies[i].Extensions = binary.BigEndian.AppendUint32(extensions, boltLogSum(log, log.Extensions))
		sealed[i] = &copies[i]
	}
	return e.bolt.StoreLogs(sealed)
}

func (e *boltEngine) GetLog(index uint64, log *raftLog) (err error) {
	defer boltRecover(&err)
	var read raftLog
	switch err := e.bolt.GetLog(index, &read); {
	case err == errRaftLogNotFound:
		return err // raft compares it
	case err != nil:
		return fmt.Errorf("reading entry %d: %w", index, err)
	}
	end := len(read.Extensions) - boltSumLen
	if end < 0 || read.Index != index || boltLogSum(&read, read.Extensions[:end]) != binary.BigEndian.Uint32(read.Extensions[end:]) {
		return fmt.Errorf("entry %d: %w", index, errStoreDamaged)
	}
	if read.Extensions = read.Extensions[:end:end]; end == 0 {
		read.Extensions = nil
	}
	*log = read
	return nil
}

func (e *boltEngine) Set(key, value []byte) error {
	sealed := binary.BigEndian.AppendUint32(make([]byte, 0, boltSumLen+len(value)), boltValueSum(key, value))
	return e.bolt.Set(key, append(sealed, value...))
}

func (e *boltEngine) Get(key []byte) ([]byte, error) {
	sealed, err := e.bolt.Get(key)
	switch {
	case errors.Is(err, raftboltdb.ErrKeyNotFound):
		return nil, errStoreNotFound
	case err != nil:
		return nil, fmt.Errorf("reading %q: %w", key, err)
	case len(sealed) < boltSumLen || boltValueSum(key, sealed[boltSumLen:]) != binary.BigEndian.Uint32(sealed):
		return nil, fmt.Errorf("value of %q: %w", key, errStoreDamaged)
	}
	return sealed[boltSumLen:], nil
}

// boltCheckFile reads the tree of pages in the file at path and returns the
// indexes of the entries and the keys of the values in it.
//
// bbolt does much the same when it opens a file, but in a goroutine of its own,
// where a panic cannot be recovered, and through mapped memory, where a page
// that the file is too short for kills the process. So this reads the file as
// bytes. bbolt's shared lock, held meanwhile, keeps writers out.
func boltCheckFile(path string) (indexes []uint64, keys [][]byte, err error) {
	defer boltRecover(&err)
	options := boltOptions()
	options.ReadOnly = true
	db, err := bbolt.Open(path, 0o600, options)
	if err != nil {
		return nil, nil, err
	}
	defer db.Close()
	tx, err := db.Begin(false)
	if err != nil {
		return nil, nil, err
	}
	defer tx.Rollback()
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}

	size := db.Info().PageSize
	if info.Size() < tx.Size() {
		return nil, nil, fmt.Errorf("%d bytes of %d", info.Size(), tx.Size())
	}
	pages := uint64(tx.Size()) / uint64(size)
	c := &boltCheck{file: file, pageSize: size, seen: make([]bool, pages)}
	if pages < 2 {
		return nil, nil, errors.New("no room for the meta pages")
	}
	c.seen[0], c.seen[1] = true, true
	if err := c.freelist(uint64(tx.ID()) % 2); err != nil {
		return nil, nil, err
	}
	return c.buckets(uint64(tx.Cursor().Bucket().RootPage()))
}

// boltCheck checks the pages of one state of a file.
type boltCheck struct {
	file     io.ReaderAt
	pageSize int
	seen     []bool // by page
}

const (
	boltHeaderLen  = 16 // of a page: its number, flags, count and overflow
	boltElementLen = 16
	boltBranch     = 0x01
	boltLeaf       = 0x02
	boltFreelist   = 0x10
	boltBucketFlag = 0x01
	boltMaxDepth   = 64
	boltNoFreelist = ^uint64(0)
)

// boltElement is what a page lists: a child, a value or a bucket.
type boltElement struct {
	flags uint32
	child uint64
	key   []byte
	value []byte
}

// freelist checks that there is none, but for the empty one of a new file, or
// bbolt would believe it.
func (c *boltCheck) freelist(meta uint64) error {
	const at = boltHeaderLen + 4*4 + 2*8 // behind four numbers and the root
	var field [8]byte
	if _, err := c.file.ReadAt(field[:], int64(meta)*int64(c.pageSize)+at); err != nil {
		return err
	}
	id := binary.NativeEndian.Uint64(field[:])
	if id == boltNoFreelist {
		return nil
	}
	page, flags, err := c.page(id)
	if err != nil {
		return err
	}
	if flags != boltFreelist || binary.NativeEndian.Uint16(page[10:]) != 0 {
		return fmt.Errorf("page %d is no empty freelist", id)
	}
	return nil
}

// buckets checks all pages from the root on: there are no buckets, or the two
// of raft-boltdb, whose first transaction makes both.
func (c *boltCheck) buckets(root uint64) (indexes []uint64, keys [][]byte, err error) {
	found := make(map[string][]byte)
	err = c.tree(root, 0, nil, nil, func(e boltElement) error {
		if e.flags != boltBucketFlag || len(e.value) < 16 {
			return fmt.Errorf("%q is no bucket", e.key)
		}
		found[string(e.key)] = bytes.Clone(e.value)
		return nil
	})
	if err != nil || len(found) == 0 {
		return nil, nil, err
	}
	logs, conf := found["logs"], found["conf"]
	if logs == nil || conf == nil || len(found) != 2 {
		return nil, nil, errors.New("not the buckets of a raft store")
	}
	err = c.bucket(logs, func(e boltElement) error {
		if len(e.key) != 8 {
			return fmt.Errorf("%q is no index", e.key)
		}
		indexes = append(indexes, binary.BigEndian.Uint64(e.key))
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	err = c.bucket(conf, func(e boltElement) error {
		keys = append(keys, bytes.Clone(e.key))
		return nil
	})
	return indexes, keys, err
}

// bucket checks a bucket's pages, which are behind its header if they are one
// small one. There are no buckets in it.
func (c *boltCheck) bucket(header []byte, visit func(boltElement) error) error {
	each := func(e boltElement) error {
		if e.flags != 0 {
			return fmt.Errorf("%q is no value", e.key)
		}
		return visit(e)
	}
	if root := binary.NativeEndian.Uint64(header); root != 0 {
		return c.tree(root, 0, nil, nil, each)
	}
	page := header[16:]
	if len(page) < boltHeaderLen || binary.NativeEndian.Uint64(page) != 0 || binary.NativeEndian.Uint16(page[8:]) != boltLeaf {
		return errors.New("no page in a small bucket")
	}
	return boltEachElement(page, boltLeaf, nil, nil, each)
}

// tree checks the page id and all below it, whose keys must be at least low and
// below high if these are given.
func (c *boltCheck) tree(id uint64, depth int, low, high []byte, visit func(boltElement) error) error {
	page, flags, err := c.page(id)
	switch {
	case err != nil:
		return err
	case depth > boltMaxDepth:
		return fmt.Errorf("page %d lies too deep", id)
	case flags == boltLeaf:
		return boltEachElement(page, flags, low, high, visit)
	case flags != boltBranch:
		return fmt.Errorf("page %d: unexpected flags %x", id, flags)
	}
	var children []boltElement
	err = boltEachElement(page, flags, low, high, func(e boltElement) error {
		children = append(children, e)
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(children) == 0:
		return fmt.Errorf("page %d: a branch without children", id)
	}
	for i, child := range children {
		end := high
		if i+1 < len(children) {
			end = children[i+1].key
		}
		if err := c.tree(child.child, depth+1, child.key, end, visit); err != nil {
			return err
		}
	}
	return nil
}

// page reads a page and those it runs over into, each for the first time.
func (c *boltCheck) page(id uint64) (page []byte, flags uint16, err error) {
	var header [boltHeaderLen]byte
	high := uint64(len(c.seen))
	if id >= high {
		return nil, 0, fmt.Errorf("page %d of %d", id, high)
	}
	at := int64(id) * int64(c.pageSize)
	if _, err := c.file.ReadAt(header[:], at); err != nil {
		return nil, 0, err
	}
	flags = binary.NativeEndian.Uint16(header[8:])
	last := id + uint64(binary.NativeEndian.Uint32(header[12:]))
	if self := binary.NativeEndian.Uint64(header[:]); self != id || last >= high {
		return nil, 0, fmt.Errorf("page %d says to be %d to %d of %d", id, self, last, high)
	}
	for i := id; i <= last; i++ {
		if c.seen[i] {
			return nil, 0, fmt.Errorf("page %d is used twice", i)
		}
		c.seen[i] = true
	}
	page = make([]byte, (last-id+1)*uint64(c.pageSize))
	_, err = c.file.ReadAt(page, at)
	return page, flags, err
}

// boltEachElement visits what page lists. It is in order, and each one's bytes
// begin where those of the one before end, the first one's behind the list: a
// wrong count or length shows, even one that would only hide an element.
func boltEachElement(page []byte, flags uint16, low, high []byte, visit func(boltElement) error) error {
	count := int(binary.NativeEndian.Uint16(page[10:]))
	if boltHeaderLen+count*boltElementLen > len(page) {
		return fmt.Errorf("%d elements in %d bytes", count, len(page))
	}
	if count == 0 && len(bytes.Trim(page[boltHeaderLen:min(len(page), boltHeaderLen+boltElementLen)], "\x00")) > 0 {
		return errors.New("no elements, but the bytes of one") // bbolt clears its pages
	}
	var before []byte
	next := uint64(boltHeaderLen + count*boltElementLen)
	for i := range count {
		at := boltHeaderLen + i*boltElementLen
		field := func(n int) uint32 { return binary.NativeEndian.Uint32(page[at+4*n:]) }
		var e boltElement
		var start, keyLen, valueLen uint64
		if flags == boltLeaf {
			e.flags = field(0)
			start, keyLen, valueLen = uint64(field(1)), uint64(field(2)), uint64(field(3))
		} else {
			start, keyLen = uint64(field(0)), uint64(field(1))
			e.child = binary.NativeEndian.Uint64(page[at+8:])
		}
		start += uint64(at)
		if keyLen == 0 || start != next || start+keyLen+valueLen > uint64(len(page)) {
			return fmt.Errorf("element %d does not fit", i)
		}
		next = start + keyLen + valueLen
		e.key = page[start : start+keyLen]
		e.value = page[start+keyLen : start+keyLen+valueLen]
		switch {
		case i == 0 && low != nil && bytes.Compare(e.key, low) < 0,
			i > 0 && bytes.Compare(e.key, before) <= 0,
			high != nil && bytes.Compare(e.key, high) >= 0:
			return fmt.Errorf("element %d is out of order", i)
		}
		before = e.key
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}
