package judge

import (
	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/member"
)

// version is the first byte of every frame after the length and the checksum. Members
// of another version refuse the frame.
const version = 1

// kind is the byte after the version. Kinds travel on the wire: never renumber.
type kind byte

const (
	appendEntries   kind = 1
	requestVote     kind = 2
	requestPreVote  kind = 3
	installSnapshot kind = 4 // the snapshot's bytes follow the frame
	timeoutNow      kind = 5
	answers         kind = 64 // added to the kind of the request
)

// Limits of a message.
const (
	MaxFrame   = 4 << 20 // bytes of a frame, without the length
	MaxEntry   = 2 << 20 // bytes of an entry's data: twice the largest command
	MaxEntries = 64      // entries of a message
	MaxServers = 32      // servers of a configuration: far above seven voters and their successors

	maxID     = member.MaxName + 1 + 13 // bytes of a raft ID
	maxReason = 256                     // bytes of a refusal's text
	maxAnswer = 1 << 10                 // bytes of an answer's frame
	maxConfig = MaxServers * (2*maxID + 64)
	entryHead = 1 + 10 + 8 + 5 // bytes of an entry beside the data, at most
	frameHead = 1 << 10        // bytes of a message beside the entries, at most
)

// MaxSnapshot is the largest snapshot in bytes. An image takes about 46 bytes for a
// lock, and the table four times as many: a table with this image has 90 million
// locks and takes 16 GiB of memory, which no table reaches.
const MaxSnapshot = 4 << 30

// MaxNumber is the highest term and the highest index.
const MaxNumber = 1 << 62

// MaxLeap is the highest term to which a single server can take the others by a leap.
// The elections that follow go on from there.
const MaxLeap = MaxNumber / 2

// Leap is the largest rise of the term that a single message is believed for. A
// cluster that elects a leader twice a second takes six days for so many terms.
const Leap = 1 << 20

// Fit returns the number of entries, from the first, that fit into a message. Fit
// returns at least one, unless there are none.
func Fit(entries []*raft.Log) int {
	size := frameHead
	for i, e := range entries {
		size += entryHead + len(e.Data)
		if i > 0 && size > MaxFrame || i == MaxEntries {
			return i
		}
	}
	return len(entries)
}
