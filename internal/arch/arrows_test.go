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

// Every arrow of the house, with its reason.
var arrows = []arrow{}
