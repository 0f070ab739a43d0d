package arch

// The floors of the house, from the roof down. An arrow leads to a package
// further down the list.
var floors = []string{
	"locks/lockstest",
	"locks",
	"cluster",
	"internal/link",
	"internal/voters",
	"internal/term/termtest",
	"internal/term",
	"internal/consensus",
	"internal/raftstore",
	"internal/founding",
	"internal/gossip",
	"internal/stream",
	"internal/port",
	"transport",
	"internal/simnet",
	"internal/logging",
	"internal/identity",
	"internal/wire",
	"internal/replica",
	"internal/member",
	"internal/wakeup",
	"internal/timing",
	"internal/machine",
	"fence",
}

// Reasons that many arrows share.
const (
	durations = "every duration stands in one table"
	wakeups   = "a change is told by a wake-up, and the woken goroutine looks for itself"
	members   = "a member is named by the same values everywhere"
	messages  = "messages have one encoding"
	commands  = "a command, its outcome and its events are the machine's types"
	wired     = "cluster makes the room and connects it to the others"
)

// Every arrow of the house, with the reason. A third party's arrow includes the
// sub-packages.
var arrows = []arrow{
	{"locks/lockstest", "locks", "a test takes locks through clients"},
	{"locks/lockstest", "cluster", "a test needs members"},
	{"locks/lockstest", "transport", "a test sets the quality of links, in words that users know"},
	{"locks/lockstest", "internal/simnet", "a test breaks the network in ways that no user's network offers"},

	{"locks", "cluster", "a client is made on a node"},
	{"locks", "fence", "every lock has a fencing token"},
	{"locks", "internal/replica", "the seam: a client reaches the table through one interface, never through a connection or an encoding"},
	{"locks", "internal/machine", commands},
	{"locks", "golang.org/x/sys", "the clock that counts a host's sleep"},

	{"cluster", "internal/link", wired},
	{"cluster", "internal/voters", wired},
	{"cluster", "internal/term", wired},
	{"cluster", "internal/consensus", wired},
	{"cluster", "internal/founding", wired},
	{"cluster", "internal/gossip", wired},
	{"cluster", "internal/port", wired},
	{"cluster", "internal/stream", "control messages are answered here, each by the room of its subject"},
	{"cluster", "internal/identity", "cluster opens and closes the member's record"},
	{"cluster", "internal/raftstore", "a test passes the store of its choice through the configuration"},
	{"cluster", "internal/replica", "a node gives its replica to package locks"},
	{"cluster", "internal/wire", messages},
	{"cluster", "internal/member", members},
	{"cluster", "internal/machine", "limits of the configuration are limits of the table"},
	{"cluster", "internal/timing", durations},
	{"cluster", "internal/wakeup", wakeups},
	{"cluster", "transport", "a user names the network in the configuration"},

	{"internal/link", "internal/term", "a node that leads reaches its own term without a stream"},
	{"internal/link", "internal/stream", "every other node reaches the leader over one stream"},
	{"internal/link", "internal/replica", "a link is the replica that package locks works on"},
	{"internal/link", "internal/machine", commands},
	{"internal/link", "internal/wire", messages},
	{"internal/link", "internal/member", members},
	{"internal/link", "internal/timing", durations},
	{"internal/link", "internal/wakeup", wakeups},

	{"internal/voters", "internal/machine", "the bound of TTLs and the format are raised by commands"},
	{"internal/voters", "internal/wire", messages},
	{"internal/voters", "internal/member", members},
	{"internal/voters", "internal/timing", durations},
	{"internal/voters", "internal/wakeup", wakeups},

	{"internal/term/termtest", "internal/term", "tests run the real term"},
	{"internal/term/termtest", "internal/machine", "tests check the table after every entry"},
	{"internal/term/termtest", "internal/replica", "tests of locks work on it as on a node"},
	{"internal/term/termtest", "internal/wire", messages},
	{"internal/term/termtest", "internal/wakeup", wakeups},

	{"internal/term", "internal/machine", "a term applies commands to the table"},
	{"internal/term", "internal/replica", "questions and answers are those of the seam"},
	{"internal/term", "internal/stream", "a term serves the streams of members"},
	{"internal/term", "internal/wire", messages},
	{"internal/term", "internal/timing", durations},
	{"internal/term", "internal/wakeup", wakeups},

	{"internal/consensus", "internal/raftstore", "raft runs on this store"},
	{"internal/consensus", "internal/identity", "whether and as which generation a member votes stands in its record"},
	{"internal/consensus", "internal/wire", "the fate of an entry is a verdict code"},
	{"internal/consensus", "internal/member", members},
	{"internal/consensus", "internal/logging", "raft's log lines become slog records"},
	{"internal/consensus", "internal/timing", durations},
	{"internal/consensus", "internal/wakeup", wakeups},
	{"internal/consensus", "github.com/hashicorp/raft", "the one caller of raft.NewRaft"},
	{"internal/consensus", "github.com/hashicorp/go-hclog", "raft wants this logger"},

	{"internal/raftstore", "github.com/hashicorp/raft", "the store has raft's interfaces"},
	{"internal/raftstore", "github.com/hashicorp/raft-boltdb", "the durable log"},
	{"internal/raftstore", "github.com/hashicorp/go-hclog", "raft's snapshot store wants this logger"},
	{"internal/raftstore", "go.etcd.io/bbolt", "damage is found before raft-boltdb opens the file"},

	{"internal/founding", "internal/identity", "a promise is stored before it is answered"},
	{"internal/founding", "internal/wire", messages},
	{"internal/founding", "internal/member", members},
	{"internal/founding", "internal/machine", "a cluster's ID and first token are the table's"},
	{"internal/founding", "internal/timing", durations},

	{"internal/gossip", "internal/wire", messages},
	{"internal/gossip", "internal/member", members},
	{"internal/gossip", "internal/machine", "members of another cluster are told apart by the cluster's ID"},
	{"internal/gossip", "internal/logging", "memberlist's log lines become slog records"},
	{"internal/gossip", "internal/timing", durations},
	{"internal/gossip", "internal/wakeup", wakeups},
	{"internal/gossip", "github.com/hashicorp/memberlist", "the one user of memberlist"},
	{"internal/gossip", "github.com/hashicorp/go-hclog", "memberlist wants a standard logger, which hclog makes"},

	{"internal/stream", "internal/wire", messages},
	{"internal/stream", "internal/member", "a stream is dialled to a process"},
	{"internal/stream", "internal/replica", "a question after the node's end fails with the node's error"},
	{"internal/stream", "internal/timing", durations},
	{"internal/stream", "internal/wakeup", wakeups},

	{"internal/port", "transport", "a port listens and dials on a network"},
	{"internal/port", "internal/timing", durations},

	{"transport", "internal/simnet", "the network for tests is simulated there"},
	{"transport", "internal/timing", durations},
	{"internal/simnet", "internal/timing", durations},
	{"internal/simnet", "internal/wakeup", wakeups},

	{"internal/logging", "github.com/hashicorp/go-hclog", "hashicorp's libraries log through it"},
	{"internal/identity", "internal/wire", "the record is stored in the encoding of messages"},
	{"internal/identity", "go.etcd.io/bbolt", "the record is durable, and its file lock keeps a second process out"},

	{"internal/wire", "internal/machine", "messages carry the table's types"},
	{"internal/wire", "github.com/vmihailenco/msgpack", "control messages are maps that may grow"},
	{"internal/replica", "internal/machine", commands},
	{"internal/member", "internal/machine", "a member's description names its cluster by ID"},
}
