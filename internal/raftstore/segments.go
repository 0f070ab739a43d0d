package raftstore

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// logDir is the directory of the segments, in the directory of the store.
const logDir = "log"

// keyLog is the key under which the bolt file notes that the log is in segments: the log's
// ID, and the newest segment that was in use, 0 before the first. So a bolt file without its
// log, a log without its bolt file and a lost last segment are found when the store is
// opened.
var keyLog = []byte("Log")

// segmentEngine keeps the log in segments, and the term and the vote in a bolt file: they
// change with an election alone, and raft-boltdb has served them for years.
type segmentEngine struct {
	log  *segmentLog
	bolt *boltEngine
}

// openSegments opens the log that belongs to the bolt file, or makes it if nothing was ever
// stored. The engine closes both. When openSegments fails, the bolt file stays open.
func openSegments(bolt *boltEngine, disk logDisk, o Options, first, limit int64) (*segmentEngine, error) {
	id, noted, made, err := bolt.noted()
	if err != nil {
		return nil, err
	}
	if !made {
		if err := bolt.checkUnused(disk); err != nil {
			return nil, err
		}
		// The ID comes before the files, so that files without an ID are a loss.
		rand.Read(id[:]) // never fails
		if err := bolt.noteLog(id, 0); err != nil {
			return nil, err
		}
	}
	c := segmentConfig{disk: disk, id: id, sync: !o.Unflushed, first: first, limit: limit, all: o.WasUnflushed,
		note: func(number uint64) error { return bolt.noteLog(id, number) }}
	var log *segmentLog
	if noted == 0 {
		log, err = newLog(c)
	} else {
		log, err = openLog(c, noted)
	}
	if err != nil {
		return nil, err
	}
	return &segmentEngine{log, bolt}, nil
}

// noted reads what keyLog says.
func (e *boltEngine) noted() (id logID, newest uint64, made bool, err error) {
	value, err := e.Get(keyLog)
	switch {
	case errors.Is(err, ErrNotFound):
		return id, 0, false, nil
	case err != nil:
		return id, 0, false, err
	case len(value) != len(id)+8:
		return id, 0, false, fmt.Errorf("%w: the value of %q", ErrDamaged, keyLog)
	}
	return logID(value), binary.BigEndian.Uint64(value[len(id):]), true, nil
}

func (e *boltEngine) noteLog(id logID, newest uint64) error {
	return e.Set(keyLog, binary.BigEndian.AppendUint64(id[:], newest))
}

// checkUnused returns an error if the store has been in use without keyLog.
func (e *boltEngine) checkUnused(disk logDisk) error {
	switch used, err := e.used(); {
	case err != nil:
		return err
	case used:
		return fmt.Errorf("%w: its entries are in the bolt file", ErrOtherLog)
	}
	names, err := disk.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, ok := segmentNumber(name); ok {
			return fmt.Errorf("%w: the bolt file with the votes is lost", ErrDamaged)
		}
	}
	return nil
}

// used reports whether raft has stored something.
func (e *boltEngine) used() (bool, error) {
	last, err := e.LastIndex()
	if err != nil || last > 0 {
		return true, err
	}
	for _, key := range [][]byte{keyTerm, keyVote} {
		if _, err := e.Get(key); !errors.Is(err, ErrNotFound) {
			return true, err
		}
	}
	return false, nil
}

// holdsLog returns an error that matches ErrOtherLog if the log is in segments.
func (e *boltEngine) holdsLog() error {
	_, _, made, err := e.noted()
	if err == nil && made {
		err = fmt.Errorf("%w: its entries are in segments", ErrOtherLog)
	}
	return err
}

func (e *segmentEngine) FirstIndex() (uint64, error)              { return e.log.FirstIndex() }
func (e *segmentEngine) LastIndex() (uint64, error)               { return e.log.LastIndex() }
func (e *segmentEngine) GetLog(index uint64, log *raft.Log) error { return e.log.GetLog(index, log) }
func (e *segmentEngine) StoreLogs(logs []*raft.Log) error         { return e.log.StoreLogs(logs) }
func (e *segmentEngine) DeleteRange(min, max uint64) error        { return e.log.DeleteRange(min, max) }
func (e *segmentEngine) Get(key []byte) ([]byte, error)           { return e.bolt.Get(key) }
func (e *segmentEngine) Set(key, value []byte) error              { return e.bolt.Set(key, value) }
func (e *segmentEngine) Close() error                             { return errors.Join(e.log.Close(), e.bolt.Close()) }
func (e *segmentEngine) flush() error                             { return errors.Join(e.log.flush(), e.bolt.flush()) }
