package history

// How a hold ended.
const (
	Released = "released" // by its holder, a moment after Valid
	Lost     = "lost"     // the holder was told
	Killed   = "killed"   // the process ended without a word
	Held     = ""         // the record ends before the hold
)

// Hold is a grant as its holder saw it, in one mode: Upgrade and Downgrade end one Hold and
// begin another one of the same Op. A Downgrade ends the exclusive Hold before the call,
// and the shared one begins with the call.
type Hold struct {
	ID      string `json:"id"` // unique; a later line of an ID replaces an earlier one
	Op      string `json:"op"` // the Acquire or Try
	Process string `json:"process"`
	Client  string `json:"client"`

	Keys   []string `json:"keys"`
	Mode   Mode     `json:"mode,omitempty"`
	N      int      `json:"n,omitempty"`
	Tree   bool     `json:"tree,omitempty"`
	Owner  string   `json:"owner,omitempty"`
	Sticky bool     `json:"sticky,omitempty"`
	Token  uint64   `json:"token"`

	// From is taken after the call that granted had returned. Valid is the latest stamp
	// that was taken *before* a call of Err that returned nil: at Valid or later the
	// library has said "held". From counts as no such word. Done is when a goroutine
	// that waited for the end of the lock's context woke, 0 if that was not seen.
	From  int64 `json:"from"`
	Valid int64 `json:"valid,omitempty"`
	Done  int64 `json:"done,omitempty"`

	End    int64  `json:"end,omitempty"` // when How was known
	How    string `json:"how,omitempty"`
	Reason string `json:"reason,omitempty"` // of the loss
}

// mode returns the mode.
func (h *Hold) mode() Mode {
	if h.Mode == "" {
		return Exclusive
	}
	return h.Mode
}

// Run is one run of a function that the library called: of Once, Elect or Spread.
type Run struct {
	ID      string `json:"id"` // unique; a later line of an ID replaces an earlier one
	Kind    string `json:"kind"`
	Process string `json:"process"`
	Client  string `json:"client"`
	Call    string `json:"call,omitempty"` // names the running call of Elect or Spread
	Key     string `json:"key"`            // the id of Once; the key of the shard or election
	Token   uint64 `json:"token,omitempty"`
	Of      int    `json:"of,omitempty"` // the number of shards that the call names
	From    int64  `json:"from"`
	To      int64  `json:"to,omitempty"` // 0: the process ended, or the record
	Result  string `json:"result,omitempty"`
	Failed  bool   `json:"failed,omitempty"` // Once: the function returned an error
}

// Kinds of runs.
const (
	RunOnce  = "once"
	RunLead  = "lead"
	RunShard = "shard"
)

// Show is one state that a sequence of Cell.Watch, Client.Watch or Observe has yielded.
type Show struct {
	Watch   string `json:"watch"` // names the sequence
	Process string `json:"process"`
	Kind    string `json:"kind"`
	Key     string `json:"key"`
	Value   string `json:"value,omitempty"` // ShowValue: a number that each change makes larger; "" is 0
	Token   uint64 `json:"token,omitempty"` // ShowHolder: 0 for none

	// After is taken before the sequence asked for the state: before its beginning, or when
	// the body has returned from the state before. At is taken when the body begins.
	After int64 `json:"after"`
	At    int64 `json:"at"`
}

// Kinds of shows.
const (
	ShowValue  = "value"
	ShowHolder = "holder"
)

// Write is an access to a fenced resource. The lines of one Resource stand in the order in
// which the resource took the writes, or N has that order.
type Write struct {
	Resource string `json:"resource"`
	N        int64  `json:"n,omitempty"`
	At       int64  `json:"at"`
	Process  string `json:"process,omitempty"`
	Token    uint64 `json:"token"`
	OK       bool   `json:"ok"`
}

// Fact is one consequence of an entry of the committed log, as a replica applied it.
type Fact struct {
	Index   uint64 `json:"index"`
	N       int    `json:"n,omitempty"` // the order within the entry
	At      int64  `json:"at"`          // when the first replica applied the entry
	Kind    string `json:"kind"`
	Term    uint64 `json:"term,omitempty"`
	Session string `json:"session,omitempty"`
	Client  string `json:"client,omitempty"` // the name of the session's client
	Node    string `json:"node,omitempty"`

	Keys     []string `json:"keys,omitempty"`
	Mode     Mode     `json:"mode,omitempty"`
	Permits  int      `json:"permits,omitempty"`
	Tree     bool     `json:"tree,omitempty"`
	Seq      uint64   `json:"seq,omitempty"` // of the request, in its session
	Priority int      `json:"priority,omitempty"`
	Token    uint64   `json:"token,omitempty"`
	Last     uint64   `json:"last,omitempty"`  // Granted: the last token of a block, see Sticky
	Group    string   `json:"group,omitempty"` // Assigned
	Shard    int      `json:"shard,omitempty"`
	Text     string   `json:"text,omitempty"`
}

// Kinds of facts.
const (
	Leads    = "leads"  // a term began
	Opened   = "opened" // a session
	Ending   = "ending" // a session is granted nothing from now on
	Expired  = "expired"
	Closed   = "closed"
	Marked   = "marked" // silent
	Heard    = "heard"  // no longer silent
	Queued   = "queued"
	Left     = "left" // a waiter, without a grant
	Granted  = "granted"
	Extended = "extended" // the block of tokens of a Sticky grant, up to Last
	Freed    = "freed"
	Assigned = "assigned" // a shard to a caller
)

// Mark is a fault, or another moment that a reader of the history wants to see.
type Mark struct {
	At   int64  `json:"at"`
	Kind string `json:"kind"`
	Who  string `json:"who,omitempty"` // a process, for Start, Kill, Freeze and Thaw
	Text string `json:"text,omitempty"`
}

// Kinds of marks that the checkers read. All others are for people.
const (
	Start  = "start"  // a process
	Kill   = "kill"   // a process, and also its end by Stop or Leave
	Freeze = "freeze" // a process stands still
	Thaw   = "thaw"
	Heal   = "heal" // from now on there is no fault: Limits.Live counts from the last one
	Fault  = "fault"

	// Calm: by now Limits.Keys and Limits.Works have been served since the last Heal. Whoever
	// makes the mark has given them Limits.Live for it.
	Calm = "calm"

	// Succeeded: from now on a successor of a lost cluster answers, whose table may lack
	// the values, the runs of Once and the capacities from before.
	Succeeded = "succeeded"

	Joins  = "joins"  // Text names a group of shards, Who a caller that comes
	Leaves = "leaves" // or goes
)

// Remains is something that should be gone at the end.
type Remains struct {
	What string `json:"what"`
	N    int64  `json:"n"`
	Most int64  `json:"most,omitempty"` // as many may remain
	Text string `json:"text,omitempty"`
}

// Limits are the bounds that Check holds the history to. A zero bound is not checked.
type Limits struct {
	// Live bounds, in nanoseconds, the time from the last Heal until every call that
	// waits has returned. The callers must hold for a short time only.
	Live int64 `json:"live,omitempty"`

	// Told bounds the time from the next grant, or from a Thaw if the process was stopped
	// then, until the context of a lost lock has ended (Hold.Done).
	Told int64 `json:"told,omitempty"`

	// Trust bounds for how long a lock is held without a word of the cluster: a holder whose
	// process stood still for longer is never told again that it holds.
	Trust int64 `json:"trust,omitempty"`

	// Keys must be granted, and Works, which are keys of elections and shards, must have an
	// owner, between the last Heal and the mark Calm.
	Keys  []string `json:"keys,omitempty"`
	Works []string `json:"works,omitempty"`

	// Settle is how long after the latest Mark, but Calm, a shard may still begin to run
	// elsewhere.
	Settle int64 `json:"settle,omitempty"`

	// Passes is how many later requests of a higher priority may pass a waiter; 0 is 16.
	Passes int `json:"passes,omitempty"`

	// Patience bounds the search for an order of the calls of one component, in
	// nanoseconds of the judging process; 0 is 2 s. A search that takes longer finds
	// nothing, and Searches.Undecided counts it.
	Patience int64 `json:"patience,omitempty"`
}
