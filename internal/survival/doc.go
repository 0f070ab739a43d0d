// Package survival holds executable models of the rules for the founding, repair
// and succession of a cluster. The tests look at every state within the bounds of
// the models, and print the shortest way to a bad state:
//
//	go test -v ./internal/survival
//	WARDMOTE_FULL=1 go test ./internal/survival
//
// The first takes seconds, the second a minute. The package has no code besides
// the tests, and imports none of the modelled rooms: internal/founding,
// internal/voters and cluster state the same rules for the real thing.
//
// # What is modelled
//
// Slots stand for addresses. A slot has a single process at a time, named like the
// slot. A restart puts a process without memory and with another raft ID into the
// slot, and no message reaches the earlier process any more. Since rules ask only
// whether a process is the present process of its name, restarts need not be counted, and many explorations below are complete
// for any number of restarts, voter changes and cuts.
//
// The first model is the first founding (founding_model_test.go): declared
// founders, two ballots at once, messages lost, doubled or as late as the explorer
// likes. Bounds: three founders and three restarts; five
// founders, two groups of four, four restarts; two voter changes.
//
// The second model is everything after (succession_model_test.go and the files
// beside it): voters change, the network is cut and heals, processes restart on
// either side or crash with their Dir, ballots end a cluster X and found its
// successor Y, and again a successor of Y. Bounds: three members, a single ballot and
// any number of restarts, voter changes and cuts; two ballots with three restarts;
// four and five members with cuts chosen for the execution in question. A plain
// test run has narrower bounds than these. Raft is taken for granted: voters
// change singly, with a majority of the earlier and the later voters, and a single
// voter may hear late.
//
// # What is checked
//
//   - Never do two clusters grant. A cluster grants if a process has a majority
//     of the newest voters on its side of the cut, and its silence has passed.
//   - Never does a cluster grant while a holder in another cluster still trusts a
//     lock.
//   - Never has a cluster two leaders, and never does a retirement take the
//     majority from a living cluster.
//   - From every state, a calm end (calm_model_test.go) leads to a granting cluster,
//     and every member is in that cluster or in none.
//
// # The rules of a founding, with the argument for each
//
//   - Quorum: as many founders as the largest of the voters, m/2+1, and m less a
//     majority of the voters plus 1. The value names the voters. At most the
//     members outside a majority of the voters can have forgotten, too few for the
//     quorum. Where all promises are on disk, m/2+1 is enough.
//   - A later ballot repeats the newest accepted value, as in Paxos, unless a
//     majority of its voters promise under other raft IDs: the value makes no cluster.
//   - A founded member answers Prepare with its founding, and the asker adopts
//     the founding if named there under its present raft ID. Adoption from a leader
//     only is a dead end when the news of the choice are lost: the only member with
//     the news cannot lead alone, and the others may not follow.
//   - Everybody else, an unnamed proposer included, adopts from a leader only. A
//     member passing on a founding from memory keeps a dead cluster alive for ever,
//     through any sequence of single restarts.
//   - Voters come from the founders, and stay so many as to leave fewer members
//     outside a majority of the voters than any quorum: two voters of three never
//     become a single voter. The quorum counts names, and rests on both conditions.
//
// # The rules of a succession
//
//   - Whole group: every listed address promises, and every listed address accepts,
//     each by the same process. So there is an instant, after the last promise and
//     before the first acceptance, when exactly these processes lived. A voter
//     of X among them has retired. A process without a cluster at its promise, and in
//     X since, refuses to accept. So no voter of X lives at the instant, and X can
//     take in nobody afterwards. A majority is not enough, nor the acceptance of the
//     new voters alone, nor promises counted by name.
//   - No rule about known voters replaces the list: C is cut off from A and B. A and
//     B take in D and E, restart, and come back on C's side. C sees a newer process
//     of every voter known to C.
//   - Retirement: with its promise a voter of a cluster ended by the ballot leaves
//     the cluster for good, and stays out if the ballot fails. The voter refuses
//     while in reach of a leader with a majority, or of a majority of the voters in
//     its latest entry. The last committed entry is not enough: a voter counting
//     voters removed since, and another such voter, would block a dead cluster's
//     succession for ever. A voter that was away counts too many
//     as well, but only until the voter with the later entry has retired.
//   - Shunning: after accepting a value, a member never adopts on its own name a
//     founding ended by the value. The late news of an earlier choice could otherwise
//     raise the ended cluster again. A leader of the ended cluster with a majority
//     proves the value never accepted by all, and may be followed.
//   - A member of a cluster not ended by the ballot answers with its founding instead
//     of a promise, as in a first founding.
//   - An accepted value is repeated unless a majority of its voters is lost, or the
//     ballot ends its cluster.
//   - Silence of the largest bound, from the founding on: holders of X trust their
//     locks until then.
//   - Meeting: a silent cluster does not grant while in reach of a member of another
//     cluster. The members of the silent cluster leave on meeting a leader, with a
//     majority, of the predecessor, of a cluster after its first grant, or of a silent
//     cluster with a lower ID. A member leaves a cluster without answers on meeting
//     any leader with a majority. Leaving never endangers a lock, so the last rule
//     needs no proof of descent.
//   - Descent: a successor names its predecessors and theirs. A voter starting with a
//     Dir asks every member in reach before voting, and a member answers with its
//     present and its former clusters.
//   - Without a list, an operator or AssumeGone, members of a dead cluster found
//     nothing. Once the last member has restarted, the first founding applies.
//
// # The cases that remain
//
// rules_test.go takes out each rule alone and shows the consequence. The same file
// shows false words, fatal to any set of rules: an incomplete list called complete;
// an address with two processes behind; a running process counted as deleted;
// AssumeGone shorter than a cut; a lost Dir counted as never lost; disks called gone
// and back while no member of the successor is up.
//
// # What is not modelled
//
// Tokens, the length of durations, sessions, lying disks, lying members, and raft
// itself. Time is a single step: a silence passes only after everything due before.
package survival
