package history

// Kind is the kind of a call.
type Kind string

// The calls. Acquire stands for every call that waits for a grant and shows the lock:
// Acquire, AcquireAll, Do, Elect and Spread.
const (
	Acquire     Kind = "acquire"
	Try         Kind = "try"         // TryAcquire
	Release     Kind = "release"     // of the grant of the op Grant
	HandOver    Kind = "handover"    // of the grant of the op Grant, to the client Value
	Upgrade     Kind = "upgrade"     // of the grant of the op Grant: Token is the new one
	Downgrade   Kind = "downgrade"   // of the grant of the op Grant
	SetCapacity Kind = "capacity"    // of Keys[0], to N
	Break       Kind = "break"       // of the grant with Token, of Keys[0]
	EndSession  Kind = "end session" // of the client Value
	Ask         Kind = "ask"
	SetValue    Kind = "set"    // of Keys[0], to Value, under the grant of the op Grant
	Get         Kind = "get"    // of the value of Keys[0], alone or with a grant: Value
	Update      Kind = "update" // of the cell Keys[0], from Old to Value
	Once        Kind = "once"   // under the id Keys[0]: Value is the result
	Resize      Kind = "resize" // of the shards of the group Keys[0], from Of to N
)

// Mode is how a key is held.
type Mode string

// The modes.
const (
	Exclusive Mode = "x"
	Shared    Mode = "s"
	Permits   Mode = "p" // N of them
)

// Outcome is the end of a call.
type Outcome string

// The outcomes.
const (
	// Done: the call returned nil, and took effect between Call and Return.
	Done Outcome = "done"

	// Refused: the call returned an error that says that nothing was changed: the key is
	// held, the wait would close a cycle, the capacity is too small, the key was granted
	// since the token, the lock was released or lost before.
	Refused Outcome = "refused"

	// Unknown: the call returned any other error, or none at all. The call may take effect
	// at any moment after Call, once, or never. An Acquire of unknown outcome may be
	// granted unseen and be withdrawn later. The zero Outcome is Unknown too.
	Unknown Outcome = "unknown"
)

// Classes of errors, for Op.Err. A recorder may use others for errors that no checker
// knows.
const (
	ErrHeld       = "held"       // Try: somebody else holds, or waits, or keeps the key
	ErrDeadlock   = "deadlock"   //
	ErrCapacity   = "capacity"   // the request does not fit the capacity
	ErrWaiters    = "waiters"    // MaxWaiters: as many wait already
	ErrChanged    = "changed"    // IfToken: the key was granted since
	ErrTooOld     = "too old"    // IfToken: forgotten
	ErrLost       = "lost"       // the lock or its session
	ErrReleased   = "released"   //
	ErrMode       = "mode"       // not possible in this mode
	ErrNotHeld    = "not held"   // Break
	ErrContext    = "context"    // the caller's ctx ended
	ErrClosed     = "closed"     // the client or the node has ended
	ErrUncertain  = "uncertain"  // Update: written or not
	ErrOnce       = "once"       // Once: the earlier run failed
	ErrUnfinished = "unfinished" // Once: the earlier run has an unknown result
	ErrOther      = "other"
)

// Op is one call of the library.
//
// Process names an incarnation: a process of a member from its start until its end, such
// as "member-2/3" for the third. Client names one client object, and Caller a goroutine
// that makes one call after the other. All three names are unique in the history.
type Op struct {
	ID      string `json:"id"` // unique in the history; a later line of an ID replaces an earlier one
	Process string `json:"process"`
	Client  string `json:"client"`
	Caller  string `json:"caller,omitempty"`
	Kind    Kind   `json:"kind"`

	// The request.
	Keys     []string `json:"keys,omitempty"`
	Mode     Mode     `json:"mode,omitempty"` // of Acquire and Try; "" is Exclusive
	N        int      `json:"n,omitempty"`    // permits wanted, or the new capacity or number
	Of       int      `json:"of,omitempty"`   // the capacity that a request for permits names, or the number to resize from
	Tree     bool     `json:"tree,omitempty"`
	Owner    string   `json:"owner,omitempty"` // Reentrant: locks of one Client and Owner share a grant
	If       uint64   `json:"if,omitempty"`    // IfToken
	Cond     bool     `json:"cond,omitempty"`  // If counts
	Priority int      `json:"priority,omitempty"`
	Most     int      `json:"most,omitempty"`   // the option MaxWaiters
	Delay    int64    `json:"delay,omitempty"`  // the option Delay
	Lazy     bool     `json:"lazy,omitempty"`   // of Acquire and Try: the release takes effect some time after its Return
	Sticky   bool     `json:"sticky,omitempty"` // of Acquire and Try
	Grant    string   `json:"grant,omitempty"`  // the ID of the Acquire or Try, for calls about a lock
	Old      string   `json:"old,omitempty"`    // Update: the value that was seen; recorded, with Value, before it is sent
	Value    string   `json:"value,omitempty"`

	// Call is taken before the call. Return is taken after it, and 0 while the call has
	// not returned. Queued is the moment by which the request is known to wait in the
	// queue, 0 if that is not known; a request that begins anew in another session has the
	// moment of the new one.
	Call   int64 `json:"call"`
	Return int64 `json:"return,omitempty"`
	Queued int64 `json:"queued,omitempty"`

	Outcome Outcome `json:"outcome,omitempty"`
	Err     string  `json:"err,omitempty"`    // a class of errors
	Text    string  `json:"text,omitempty"`   // the error, for people
	Token   uint64  `json:"token,omitempty"`  // of the grant
	Shared  bool    `json:"shared,omitempty"` // Acquire and Try: the owner held the key before, see Owner
	Ran     bool    `json:"ran,omitempty"`    // Once: this call ran the function

	// Retried: the call asked again in another session. An earlier request of it may have
	// been granted unseen, and lost.
	Retried bool `json:"retried,omitempty"`
}

// known reports whether the outcome is known.
func (o *Op) known() bool { return o.Outcome == Done || o.Outcome == Refused }

// grants reports whether the call showed its caller a new grant.
func (o *Op) grants() bool {
	return (o.Kind == Acquire || o.Kind == Try) && o.Outcome == Done && !o.Shared
}

// mode returns the mode.
func (o *Op) mode() Mode {
	if o.Mode == "" {
		return Exclusive
	}
	return o.Mode
}
