// Package sim runs whole clusters under faults in simulated time, and judges what their
// callers saw. The package has tests only; the judges are package history.
//
// A run is made from a seed. The seed draws a shape (3, 5 or 7 members, thin ones among them,
// 3, 5 or 7 voters, a TTL of 1 to 10 s, members in memory, with a Dir, with Sync Boot, with a
// complete Join, with secrets, a short log with snapshots, clocks of different rates and
// offsets) and a list of phases. The members are real nodes on simulated networks, clocks and
// disks, in one bubble of testing/synctest. Every member has callers, which use locks in every
// mode and option, sets, trees, owners, conditions, cells, values of locks, Once, Elect and
// Spread, watch and observe keys, resize the group of shards, break each other's locks, end each
// other's sessions, and write to resources that compare tokens.
//
// Nine towns of ten are light: one caller in each process works with locks, beside the one that
// leads and the one that works on shards. The others have four. Faults bring the states of the
// protocol about, calls cost most of the CPU time, and what many callers meet that few do not is
// in the heavy towns.
//
// # Phases
//
//   - Random ones: partitions, one-way cuts, loss and delay, pauses, processes that stand
//     still, kills and restarts, Stop and Leave, disks that hang or fail, half of all
//     processes killed at once, secrets rotated, wall clocks set.
//   - Directed ones: schedules in which a weaker rule is known to break. The old leader
//     stands still in a write, is cut off with one member, and wakes before that member's
//     trust is spent; a minority is cut and the leader dies; a pause across the end of
//     trust; a leader that flaps; a session that is cut while it is marked.
//   - Ambushes: the run reads the committed log, and strikes at the moment of an entry of
//     some kind, so that its answers are lost.
//   - Aimed ones: the run notes which states of the protocol came about: the leader's, the
//     session's, and that of the network between them. Processes are asked whether they lead,
//     and every fault counts until its end. testdata/states.txt lists the reachable triples;
//     one phase in three is aimed at a triple that has not been seen. A run of six simulated
//     hours fails if it has seen less than 95 % of them, or if its callers have hardly ever
//     done one of the rare things that a judge is there for.
//
// At the end all faults are over. Every call from before returns within a bound; each key that
// was in use is granted once more, somebody leads, exactly the shards of the last number have
// owners, and within ten seconds every process is shown the latest value of a common cell and
// the name of the one that leads; the clients close, and the table is empty.
//
// # What a run judges
//
// Everything that package history checks, by the callers' eyes and by the log: the run keeps
// a lock table of its own, which applies each entry once. The bytes of an entry must be the
// same on every replica, and the table keeps its invariants.
//
// When a grant returns, the run asks at once all other holders of the key that do not stand
// still. Stamps are those of the bubble's clock, made unique, so an overlap of no time at all
// is an overlap.
//
// # How to run
//
//	go test ./internal/sim                                 a short run of a fresh seed
//	WARDMOTE_SEED=7 go test -run TestSeed ./internal/sim   the whole run of a seed, aimed at nothing
//	WARDMOTE_SIM=1h GOMAXPROCS=1 go test -run TestSim …    fresh seeds for an hour
//
// The aims of a run depend on the states that the runs before it have seen. WARDMOTE_SIM_PLAN
// has the number of phases and the aims in order, and the command that a failed run prints has
// WARDMOTE_SIM_PLAN.
//
// WARDMOTE_SIM_FILE names a file that gets one line of JSON for each finished seed: suite,
// seed, simulated hours under faults, grants, faults, the triples seen, and violations.
// WARDMOTE_SIM_PHASES takes only the phases with that text in their names.
// WARDMOTE_SIM_FIRST ends the run after the first violation, and WARDMOTE_SIM_LESS is the
// time for a search for a shorter plan. A run uses one core: several processes, each with
// GOMAXPROCS=1, do more than one process with several. The end of TestSim prints how many
// seconds were simulated for each second of CPU time, and how many grants, calls and faults an
// hour had. TestSim fails if more than one search for an order of calls in a thousand, and one
// more, ran out of time. A violation comes with the seed, the plan and the history around it.
// The order of goroutines is not part of a seed: play a seed several times.
//
// # What is not simulated
//
//   - Raft's and memberlist's timers run at rate 1 and while a process stands still; a hung
//     write stands for a raft that stands still. Real stops are for real processes.
//   - Disks take writes whole or not at all; what a crash leaves of a file is for package
//     raftstore.
//   - Hosts do not sleep; a process that stands still comes close.
//   - A successor of a lost cluster begins a log of its own: from then on the run judges by
//     the callers' eyes alone.
package sim
