//go:build linux

package storm

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wardmote/wardmote/cluster"
)

// memberEnv holds a member's settings, as JSON. With the variable set, the test binary is a
// member's program.
const memberEnv = "WARDMOTE_TEST_STORM_MEMBER"

func TestMain(m *testing.M) {
	text := os.Getenv(memberEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var s settings
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = runMember(s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the program ends:", err)
		os.Exit(1)
	}
}

// settings configure a member's program.
type settings struct {
	Name, Process  string // of the member; of this incarnation of it
	Bind, Dir      string
	Join           []string
	InitialSize    int
	TTL            time.Duration // of the cluster, and of the first client
	ShortTTL       time.Duration // of the second client
	Voters         int
	Sync           cluster.Sync
	Secrets        [][]byte // none: plain text
	JoinIsComplete bool
	OwnClock       bool // the clock of the library is replaced, and obeys the command clock
	Shift          int64
	Record         string // the file of the recording
	Store          string // the socket of the resources
	Work           string // a key of works, or "": only commands
	Pace           time.Duration
	Seed           uint64
}

// monotonic reads CLOCK_MONOTONIC, common to all processes of a host. For a process in a
// time namespace shift is the offset of the namespace.
func monotonic(shift int64) int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // no host is without the clock
	}
	return t.Nano() - shift
}

// command is a line to a member.
type command struct {
	ID   int
	Do   string // see program.obey
	Key  string
	N    int64
	Wait time.Duration // the longest time for the answer
	List [][]byte
}

// report is a line from a member: an answer, or news if ID is 0.
type report struct {
	ID     int
	News   string // leader, failed, queued
	Error  string
	Key    string
	Token  uint64
	Term   uint64
	Detail string
}
