package attack

import (
	"bytes"
	"encoding/binary"
	"math"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// Types of entries in raft's log.
const (
	entryCommand       = 0
	entryConfiguration = 5
)

// entry is an entry of raft's log.
func entry(index, term uint64, kind int, data []byte) fields {
	return fields{"Index": index, "Term": term, "Type": kind, "Data": data}
}

// configuration encodes a configuration of raft with one voter.
func configuration(id string) []byte {
	b, err := msgpack.Marshal(map[string]any{"Servers": []any{map[string]any{"Suffrage": 0, "ID": id, "Address": id}}})
	if err != nil {
		panic(err)
	}
	return b
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

// raftAttacks speak raft in the leader's name to another voter.
var raftAttacks = []attack{
	{name: "an undecodable configuration", quick: true, settle: time.Second, run: func(a *attacker) string {
		_, err := a.raftCall(a.w.victim(), a.w.leader(), raftAppend, fields{"Term": a.know.term,
			"Entries": []any{entry(a.know.last+1, a.know.term, entryConfiguration, []byte{0xc1, 0xff, 0x00})}})
		return gained(err == nil, "appended")
	}},
	{name: "a configuration of the attacker alone", settle: time.Second, run: func(a *attacker) string {
		_, err := a.raftCall(a.w.victim(), a.w.leader(), raftAppend, fields{"Term": a.know.term + 1, "LeaderCommitIndex": a.know.last + 1,
			"Entries": []any{entry(a.know.last+1, a.know.term+1, entryConfiguration, configuration("intruder#1"))}})
		return gained(err == nil, "appended")
	}},
	{name: "forged entries", quick: true, settle: time.Second, run: func(a *attacker) string {
		_, err := a.raftCall(a.w.victim(), a.w.leader(), raftAppend, fields{"Term": a.know.term + 1, "LeaderCommitIndex": a.know.last + 1,
			"Entries": []any{entry(a.know.last+1, a.know.term+1, entryCommand, []byte("forged"))}})
		return gained(err == nil, "appended")
	}},
	{name: "a forged snapshot", settle: time.Second, run: func(a *attacker) string {
		_, err := a.raftCall(a.w.victim(), a.w.leader(), raftSnapshot, fields{"SnapshotVersion": 1, "Term": a.know.term + 1,
			"LastLogIndex": a.know.last + 100, "LastLogTerm": a.know.term + 1, "ConfigurationIndex": 1,
			"Configuration": configuration("intruder#1"), "Size": 4}, 1, 2, 3, 4)
		return gained(err == nil, "installed")
	}},
	{name: "a snapshot with an undecodable configuration", settle: time.Second, run: func(a *attacker) string {
		_, err := a.raftCall(a.w.victim(), a.w.leader(), raftSnapshot, fields{"SnapshotVersion": 1, "Term": a.know.term + 1,
			"LastLogIndex": a.know.last + 100, "LastLogTerm": a.know.term + 1, "ConfigurationIndex": 1,
			"Configuration": []byte{0xc1, 0xff}, "Size": 4}, 1, 2, 3, 4)
		return gained(err == nil, "installed")
	}},
	{name: "a snapshot of 1 TiB", settle: time.Second, lasts: true, run: func(a *attacker) string {
		t, err := a.raft(a.w.victim(), a.w.leader())
		if err != nil {
			return ""
		}
		return gained(a.pour(t, raftMessage(raftSnapshot, a.know.raftID(a.w.leader()), fields{"SnapshotVersion": 1, "Term": a.know.term + 1,
			"LastLogIndex": a.know.last + 100, "LastLogTerm": a.know.term + 1, "ConfigurationIndex": 1,
			"Configuration": configuration(a.know.raftID(a.w.leader())), "Size": int64(1) << 40})), "96 MB taken")
	}},
	{name: "a raft message of 4 GiB", settle: time.Second, lasts: true, run: func(a *attacker) string {
		t, err := a.raft(a.w.victim(), a.w.leader())
		if err != nil {
			return ""
		}
		head := raftMessage(raftAppend, a.know.raftID(a.w.leader()), fields{})
		// The map's head says one field more than there are; the last is Leader, of
		// 4 GiB.
		head[1]++
		head = append(append(head, 0xa6), "Leader"...)
		head = binary.BigEndian.AppendUint32(append(head, 0xc6), math.MaxUint32-16)
		return gained(a.pour(t, head), "96 MB taken")
	}},
	{name: "forged votes", quick: true, settle: time.Second, run: func(a *attacker) (gain string) {
		for i := range a.w.addrs {
			answer, err := a.raftCall(i, a.w.victim(), raftVote, fields{"Term": a.know.term + 5, "Candidate": []byte(a.know.raftID(a.w.victim())),
				"LastLogIndex": uint64(math.MaxUint64), "LastLogTerm": uint64(math.MaxUint64), "LeadershipTransfer": true})
			if err == nil && answer["Granted"] == true {
				gain = "a vote"
			}
		}
		return gain
	}},
	{name: "a term of 2^64-1", quick: true, settle: time.Second, run: func(a *attacker) string {
		for i := range a.w.addrs {
			_, _ = a.raftCall(i, a.w.victim(), raftVote, fields{"Term": uint64(math.MaxUint64), "Candidate": []byte(a.know.raftID(a.w.victim())),
				"LastLogIndex": uint64(math.MaxUint64), "LastLogTerm": uint64(math.MaxUint64), "LeadershipTransfer": true})
			_, _ = a.raftCall(i, a.w.victim(), raftAppend, fields{"Term": uint64(math.MaxUint64)})
		}
		return ""
	}},
	{name: "TimeoutNow", settle: time.Second, run: func(a *attacker) string {
		_, err := a.raftCall(a.w.victim(), a.w.leader(), raftTimeout, fields{})
		return gained(err == nil, "obeyed")
	}},
	{name: "garbage on raft's stream", settle: 300 * time.Millisecond, run: func(a *attacker) string {
		for n := range 16 {
			t, err := a.raft(a.w.victim(), a.w.leader())
			if err != nil {
				return ""
			}
			_, _ = t.Write(append([]byte{byte(n % 6)}, noise(4096, uint64(n))...))
		}
		return ""
	}},
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
