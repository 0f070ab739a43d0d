package raftstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"go.etcd.io/bbolt"

	"github.com/wardmote/wardmote/internal/files"
)

// checkFile reads the tree of pages in the file at path and returns the indexes
// of all entries and the keys of all values.
//
// bbolt does a similar check when it opens a file, but in a goroutine of its own,
// where a panic cannot be recovered, and through mapped memory, where a page
// behind the end of the file kills the process. So checkFile reads the file as
// bytes. Meanwhile checkFile holds bbolt's shared lock, which keeps writers out.
//
// checkFile then writes the meta pages once more, as they are, and flushes them: see
// segmentLog.writeAgain. bbolt flushes the pages of a transaction before it writes the meta
// page, so after a flush that failed only a meta page can be here and not on the disk.
// Opening the file commits a transaction, so the disk would miss the one in between. With
// all, every byte may be unflushed, and is written.
func checkFile(path string, all bool) (indexes []uint64, keys [][]byte, err error) {
	defer recoverPanic(&err)
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
	file, err := files.Open(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}

	size := int64(db.Info().PageSize)
	if size < minPage || size > maxPage {
		return nil, nil, fmt.Errorf("pages of %d bytes", size)
	}
	c := &checker{file: file, pageSize: size}
	newest := uint64(tx.ID())
	pages, err := c.metas(newest)
	switch {
	case err != nil:
		return nil, nil, err
	case pages > uint64(info.Size()/size):
		return nil, nil, fmt.Errorf("%d bytes of %d pages", info.Size(), pages)
	case pages < 2:
		return nil, nil, errors.New("too short for the meta pages")
	}
	c.seen = make([]bool, pages)
	c.seen[0], c.seen[1] = true, true
	if err := c.freelist(newest % 2); err != nil {
		return nil, nil, err
	}
	if indexes, keys, err = c.buckets(uint64(tx.Cursor().Bucket().RootPage())); err != nil {
		return nil, nil, err
	}
	again := 2 * size
	if all {
		again = info.Size()
	}
	if err := errors.Join(writeAgain(file, 0, again, false), file.Sync()); err != nil {
		return nil, nil, err
	}
	return indexes, keys, nil
}

// checker checks the pages of a file as of a single transaction.
type checker struct {
	file     io.ReaderAt
	pageSize int64
	seen     []bool // by page
}

const (
	headerLen    = 16 // of a page: its number, flags, count and overflow
	elementLen   = 16
	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketFlag   = 0x01
	maxDepth     = 64
	minPage      = 1 << 10
	maxPage      = 1 << 20
	metaLen      = 64 // behind the header of a meta page, with the checksum in the last 8 bytes
	metaPage     = 0x04
	noFreelist   = ^uint64(0)
)

// metas checks that the meta pages are whole and of the two latest transactions,
// and returns the number of pages in use.
//
// bbolt writes the pages in turn, and opens a file with a single whole page. The
// other one may have been the newer: then the last transaction, a vote or entries
// that this voter has acknowledged, is gone. A crash damages no meta page, because
// all of its bytes lie in one sector, which a disk writes whole or not at all.
func (c *checker) metas(newest uint64) (pages uint64, err error) {
	for meta := range uint64(2) {
		var page [headerLen + metaLen]byte
		if _, err := c.file.ReadAt(page[:], int64(meta)*c.pageSize); err != nil {
			return 0, err
		}
		body := page[headerLen:]
		sum := fnv.New64a()
		sum.Write(body[:metaLen-8])
		id, transaction := binary.NativeEndian.Uint64(page[:]), binary.NativeEndian.Uint64(body[metaLen-16:])
		switch {
		case id != meta || binary.NativeEndian.Uint16(page[8:]) != metaPage:
			return 0, fmt.Errorf("page %d is no meta page", meta)
		case sum.Sum64() != binary.NativeEndian.Uint64(body[metaLen-8:]):
			return 0, fmt.Errorf("meta page %d does not match its checksum", meta)
		case transaction%2 != meta || transaction != newest && transaction+1 != newest:
			return 0, fmt.Errorf("meta page %d is of transaction %d, and the last is %d", meta, transaction, newest)
		case transaction == newest:
			pages = binary.NativeEndian.Uint64(body[metaLen-24:])
		}
	}
	return pages, nil
}

// element is an item of a page: a child page, a value or a bucket.
type element struct {
	flags uint32
	child uint64
	key   []byte
	value []byte
}

// freelist checks that the file has no list of free pages, or the empty list of a
// new file: bbolt would believe any other list.
func (c *checker) freelist(meta uint64) error {
	const at = headerLen + 4*4 + 2*8 // behind four numbers and the root bucket
	var field [8]byte
	if _, err := c.file.ReadAt(field[:], int64(meta)*c.pageSize+at); err != nil {
		return err
	}
	id := binary.NativeEndian.Uint64(field[:])
	if id == noFreelist {
		return nil
	}
	page, flags, err := c.page(id)
	if err != nil {
		return err
	}
	if flags != freelistPage || binary.NativeEndian.Uint16(page[10:]) != 0 {
		return fmt.Errorf("page %d is no empty freelist", id)
	}
	return nil
}

// buckets checks all pages from the root on. The file has no buckets, or both
// buckets of raft-boltdb, which makes them in its first transaction.
func (c *checker) buckets(root uint64) (indexes []uint64, keys [][]byte, err error) {
	found := make(map[string][]byte)
	err = c.tree(root, 0, nil, nil, func(e element) error {
		if e.flags != bucketFlag || len(e.value) < 16 {
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
	err = c.bucket(logs, func(e element) error {
		if len(e.key) != 8 {
			return fmt.Errorf("%q is no index", e.key)
		}
		indexes = append(indexes, binary.BigEndian.Uint64(e.key))
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	err = c.bucket(conf, func(e element) error {
		keys = append(keys, bytes.Clone(e.key))
		return nil
	})
	return indexes, keys, err
}

// bucket checks the pages of a bucket. A small bucket is a single page behind
// the bucket's header. A bucket inside the bucket is damage.
func (c *checker) bucket(header []byte, visit func(element) error) error {
	each := func(e element) error {
		if e.flags != 0 {
			return fmt.Errorf("%q is no value", e.key)
		}
		return visit(e)
	}
	if root := binary.NativeEndian.Uint64(header); root != 0 {
		return c.tree(root, 0, nil, nil, each)
	}
	page := header[16:]
	if len(page) < headerLen || binary.NativeEndian.Uint64(page) != 0 || binary.NativeEndian.Uint16(page[8:]) != leafPage {
		return errors.New("no page in a small bucket")
	}
	return eachElement(page, leafPage, nil, nil, each)
}

// tree checks a page and all pages below. Their keys must be at least low and
// below high, unless these are nil.
func (c *checker) tree(id uint64, depth int, low, high []byte, visit func(element) error) error {
	page, flags, err := c.page(id)
	switch {
	case err != nil:
		return err
	case depth > maxDepth:
		return fmt.Errorf("page %d lies too deep", id)
	case flags == leafPage:
		return eachElement(page, flags, low, high, visit)
	case flags != branchPage:
		return fmt.Errorf("page %d: unexpected flags %x", id, flags)
	}
	var children []element
	err = eachElement(page, flags, low, high, func(e element) error {
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

// page reads a page and its overflow pages. A page that was read before is
// damage.
func (c *checker) page(id uint64) (page []byte, flags uint16, err error) {
	var header [headerLen]byte
	high := uint64(len(c.seen))
	if id >= high {
		return nil, 0, fmt.Errorf("page %d of %d", id, high)
	}
	at := int64(id) * c.pageSize
	if _, err := c.file.ReadAt(header[:], at); err != nil {
		return nil, 0, err
	}
	flags = binary.NativeEndian.Uint16(header[8:])
	last := id + uint64(binary.NativeEndian.Uint32(header[12:]))
	if self := binary.NativeEndian.Uint64(header[:]); self != id || last >= high {
		return nil, 0, fmt.Errorf("page %d calls itself %d to %d of %d", id, self, last, high)
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

// eachElement visits the elements of a page. Their keys must rise. The bytes of
// the first element must begin behind the list of elements, and the bytes of
// each further element where the element before ends. So a wrong count or length
// is found, even if the mistake would only hide an element.
func eachElement(page []byte, flags uint16, low, high []byte, visit func(element) error) error {
	count := int(binary.NativeEndian.Uint16(page[10:]))
	if headerLen+count*elementLen > len(page) {
		return fmt.Errorf("%d elements in %d bytes", count, len(page))
	}
	if count == 0 && len(bytes.Trim(page[headerLen:min(len(page), headerLen+elementLen)], "\x00")) > 0 {
		return errors.New("no elements, but the bytes of an element") // bbolt clears its pages
	}
	var before []byte
	next := uint64(headerLen + count*elementLen)
	for i := range count {
		at := headerLen + i*elementLen
		field := func(n int) uint32 { return binary.NativeEndian.Uint32(page[at+4*n:]) }
		var e element
		var start, keyLen, valueLen uint64
		if flags == leafPage {
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
