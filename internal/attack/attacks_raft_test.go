package attack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Types of entries in raft's log.
const (
	entryCommand       = 0
	entryConfiguration = 5
)

// configuration encodes a configuration of raft with one voter.
func configuration(id string) []byte {
	return raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(id), Address: raft.ServerAddress(id)}}})
}

// much is more than any buffer on the way takes.
const much = 96 << 20

// pour sends much after a head, and reports whether the other side took all.
func (a *attacker) pour(t *talk, head []byte) bool {
	_ = t.SetDeadline(time.Now().Add(4 * time.Second))
	if _, err := t.Write(head); err != nil {
		return false
	}
	chunk := bytes.Repeat([]byte{0x42}, 1<<20)
	for range much >> 20 {
		if _, err := t.Write(chunk); err != nil {
			return false
		}
	}
	return true
}

// raftAttacks speak raft: in the leader's name, which a holder of a secret can take, and in the
// attacker's own.
var raftAttacks = slices.Concat(raftAttacksAs("the leader's name", (*town).leader), raftAttacksAs("its own name", func(*town) int { return itself }), []attack{
	{name: "raft messages of 4 MiB that never end", lasts: true, settle: time.Second, run: func(a *attacker) string {
		head, part := binary.BigEndian.AppendUint32(nil, 4<<20), make([]byte, 4<<20-1)
		var writes sync.WaitGroup
		defer writes.Wait()
		a.fill(250, func(n int) error {
			from := peer{fmt.Sprint("s", n/10), 7} // a holder of a certificate has one name
			t, err := a.dialFrom(a.w.victim(), n/100, hello{kind: kindRaft, from: from, id: a.know.cluster,
				to: peer{name(a.w.victim()), generation(a.know.raftID(a.w.victim()))}})
			if err != nil {
				if t, err = a.raftFrom(a.w.victim(), n/100, itself); err != nil {
					return err
				}
			}
			_ = t.SetDeadline(time.Now().Add(callWithin))
			_, err = t.Write(head)
			writes.Go(func() { _, _ = t.Write(part) })
			return err
		})
		return ""
	}},
	{name: "garbage on raft's stream", settle: 300 * time.Millisecond, run: func(a *attacker) string {
		for n := range 16 {
			t, err := a.raft(a.w.victim(), a.w.leader())
			if err != nil {
				if t, err = a.raft(a.w.victim(), itself); err != nil {
					return ""
				}
			}
			_, _ = t.Write(append([]byte{0, 0, byte(n), byte(n % 6)}, noise(4096, uint64(n))...))
		}
		return ""
	}},
})

// raftAttacksAs are messages of raft in the name of a server.
func raftAttacksAs(whose string, as func(*town) int) (all []attack) {
	add := func(what string, quick, lasts bool, run func(a *attacker, as int) string) {
		all = append(all, attack{name: what + ", in " + whose, quick: quick, lasts: lasts, settle: time.Second,
			run: func(a *attacker) string { return run(a, as(a.w)) }})
	}
	// entries appends an entry behind the log, in the present term or a later one.
	entries := func(a *attacker, as int, term uint64, e []byte) bool {
		return a.raftCall(a.w.victim(), as, raftAppend, []uint64{term, a.know.last, a.know.term, a.know.last + 1, 1}, e...)
	}
	snapshot := func(a *attacker, as int, config []byte, size uint64) []byte {
		_, id := a.know.as(as)
		return raftMessage(raftSnapshot, id, []uint64{a.know.term + 1, a.know.last + 100, a.know.term + 1, 1, size, uint64(len(config))}, config...)
	}
	send := func(a *attacker, as int, message []byte) bool {
		t, err := a.raft(a.w.victim(), as)
		return err == nil && t.raftSend(message)
	}

	// Broken messages, which nobody may send.
	add("an undecodable configuration", true, false, func(a *attacker, as int) string {
		broken := []byte{0xc1, 0xff, 0x00}
		present := entries(a, as, a.know.term, entry(a.know.term, entryConfiguration, broken))
		return gained(entries(a, as, a.know.term+1, entry(a.know.term+1, entryConfiguration, broken)) || present, "appended")
	})
	add("entries of an unknown type", false, false, func(a *attacker, as int) string {
		return gained(entries(a, as, a.know.term+1, entry(a.know.term+1, 77, nil)), "appended")
	})
	add("a snapshot with an undecodable configuration", false, false, func(a *attacker, as int) string {
		return gained(send(a, as, append(snapshot(a, as, []byte{0xc1, 0xff}, 4), 1, 2, 3, 4)), "installed")
	})
	add("a snapshot of noise", false, false, func(a *attacker, as int) string {
		noise := noise(1<<20, 5)
		return gained(send(a, as, append(snapshot(a, as, configuration(a.know.raftID(a.w.victim())), 1<<20), noise...)), "installed")
	})
	add("a snapshot of 1 TiB", false, true, func(a *attacker, as int) string {
		t, err := a.raft(a.w.victim(), as)
		return gained(err == nil && a.pour(t, snapshot(a, as, configuration(a.know.raftID(a.w.victim())), 1<<40)), "96 MB taken")
	})
	add("a raft message of 4 GiB", false, true, func(a *attacker, as int) string {
		t, err := a.raft(a.w.victim(), as)
		return gained(err == nil && a.pour(t, []byte{0xff, 0xff, 0xff, 0xff}), "96 MB taken")
	})
	add("a term of 2^64-1", true, false, func(a *attacker, as int) string {
		granted := false
		for i := range a.w.addrs {
			for _, term := range []uint64{math.MaxUint64, 1 << 62} {
				granted = a.raftCall(i, as, raftVote, []uint64{term, 1 << 61, 1 << 61}, 1) || granted
				granted = a.raftCall(i, as, raftAppend, []uint64{term, 0, 0, 0, 0}) || granted
			}
		}
		return gained(granted, "obeyed")
	})

	// Lies, which voters alone can tell.
	add("forged entries of the present term", true, false, func(a *attacker, as int) string {
		return gained(entries(a, as, a.know.term, entry(a.know.term, entryCommand, []byte("forged"))), "appended")
	})
	add("forged entries of a later term", true, false, func(a *attacker, as int) string {
		return gained(entries(a, as, a.know.term+1, entry(a.know.term+1, entryCommand, []byte("forged"))), "appended")
	})
	add("a configuration of the attacker alone", false, false, func(a *attacker, as int) string {
		return gained(entries(a, as, a.know.term+1, entry(a.know.term+1, entryConfiguration, configuration("intruder#1"))), "appended")
	})
	add("a forged heartbeat", false, false, func(a *attacker, as int) string {
		return gained(a.raftCall(a.w.victim(), as, raftAppend, []uint64{a.know.term + 1, 0, 0, 0, 0}), "obeyed")
	})
	add("forged votes", true, false, func(a *attacker, as int) (gain string) {
		for i := range a.w.addrs {
			if a.raftCall(i, as, raftVote, []uint64{a.know.term + 5, a.know.last + 1000, a.know.term + 1}, 1) {
				gain = "a vote"
			}
		}
		return gain
	})
	add("TimeoutNow", false, false, func(a *attacker, as int) string {
		return gained(a.raftCall(a.w.victim(), as, raftTimeout, nil), "obeyed")
	})
	return all
}

// gained returns gain if the attacker succeeded.
func gained(ok bool, gain string) string {
	if ok {
		return gain
	}
	return ""
}

// noise returns n bytes without a sense, the same for the same seed.
func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	for i := range b {
		seed = seed*6364136223846793005 + 1442695040888963407
		b[i] = byte(seed >> 56)
	}
	return b
}
