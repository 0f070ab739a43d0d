package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// entry is a write: a line in a shard's ledger.
type entry struct {
	Shard  int         `json:"shard"`
	Token  fence.Token `json:"token"`
	Member string      `json:"member"`
	Seq    int         `json:"seq"` // the Seq of the previous entry plus 1
	At     time.Time   `json:"at"`  // the time of the write, inside the fence
}

// ledger is a shard's file and the fence that protects the file.
type ledger struct {
	file  *os.File
	fence *fence.File
}

func ledgerPath(folder string, shard int) string {
	return filepath.Join(folder, fmt.Sprintf("shard-%02d.jsonl", shard))
}

func openLedger(folder string, shard int) (*ledger, error) {
	path := ledgerPath(folder, shard)
	guard, err := fence.OpenFile(path + ".fence")
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errors.Join(err, guard.Close())
	}
	return &ledger{file: file, fence: guard}, nil
}

func (b *ledger) Close() error { return errors.Join(b.file.Close(), b.fence.Close()) }

// Claim shows the token of a new owner to the fence. The fence then refuses all
// earlier tokens.
func (b *ledger) Claim(t fence.Token) error { return b.fence.Claim(t) }

// Last returns the Seq of the last entry, or 0 if the ledger is empty.
func (b *ledger) Last() (int, error) {
	entries, err := readLedger(b.file.Name())
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	return entries[len(entries)-1].Seq, nil
}

// Append writes an entry, unless the fence has seen a later token: then the error
// is a *fence.StaleError and nothing was written. The fence compares and writes in
// one step, so that a pause between the two lets no stale write in.
func (b *ledger) Append(e entry) error {
	return b.fence.Do(e.Token, func() error {
		e.At = time.Now()
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		// One call of Write, so that a killed process writes the whole line or
		// nothing. To survive a power failure, call file.Sync as well.
		_, err = b.file.Write(append(line, '\n'))
		return err
	})
}

// readLedger returns the entries of a ledger in the order of the file.
func readLedger(path string) ([]entry, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var entries []entry
	for line := range bytes.Lines(text) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, len(entries)+1, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}
