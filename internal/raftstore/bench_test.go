package raftstore

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// BenchmarkStoreLogs compares a Store with the library below.
func BenchmarkStoreLogs(b *testing.B) {
	classes := map[string]func(b *testing.B) raft.LogStore{
		"bolt/bare": func(b *testing.B) raft.LogStore {
			s, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(b.TempDir(), "raft.db"), BoltOptions: boltOptions()})
			must(b, err)
			b.Cleanup(func() { s.Close() })
			return s
		},
		"bolt/store":   func(b *testing.B) raft.LogStore { return openWith(b, b.TempDir(), Options{BoltLog: true}) },
		"segments":     func(b *testing.B) raft.LogStore { return openDurable(b, b.TempDir()) },
		"unflushed":    func(b *testing.B) raft.LogStore { return openWith(b, b.TempDir(), Options{Unflushed: true}) },
		"memory/bare":  func(b *testing.B) raft.LogStore { return raft.NewInmemStore() },
		"memory/store": func(b *testing.B) raft.LogStore { return NewInMemory() },
	}
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		for _, n := range []int{1, 256} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				s := classes[name](b)
				logs := make([]*raft.Log, n)
				data := make([]byte, 256)
				next := uint64(1)
				b.ReportAllocs()
				for b.Loop() {
					for i := range logs {
						logs[i] = &raft.Log{Index: next, Term: 1, Data: data}
						next++
					}
					must(b, s.StoreLogs(logs))
					if next > 20_000 {
						b.StopTimer()
						first, err := s.FirstIndex()
						must(b, err)
						if next-first > 20_000 {
							must(b, s.DeleteRange(first, next-10_000))
						}
						b.StartTimer()
					}
				}
			})
		}
	}
}

// BenchmarkGetLog reads the newest entries, as replication does.
func BenchmarkGetLog(b *testing.B) {
	s := openDurable(b, b.TempDir())
	must(b, s.StoreLogs(entries(1, 1000, 1)))
	for name, logs := range map[string]interface{ GetLog(uint64, *raft.Log) error }{"cache": s, "engine": s.engine} {
		b.Run(name, func(b *testing.B) {
			var log raft.Log
			for i := uint64(0); b.Loop(); i++ {
				must(b, logs.GetLog(1+i%1000, &log))
			}
		})
	}
}
