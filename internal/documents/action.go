package documents

// Action is the answer to an action, whatever its outcome.
type Action struct {
	Verb    string `json:"verb"` // as cluster.Verb in words
	Key     string `json:"key,omitempty"`
	Outcome string `json:"outcome"` // done, refused, uncertain
	Text    string `json:"text"`    // the outcome in words
	Error   string `json:"error,omitempty"`

	// Code is the kind of error: "" if done, otherwise one of the codes below.
	Code string `json:"code,omitempty"`
}

// The outcomes of an action.
const (
	Done      = "done"
	Refused   = "refused"   // nothing was changed
	Uncertain = "uncertain" // the change may or may not have been made, or goes on
)

// The codes of errors of actions.
const (
	CodeInput       = "input"        // a field is missing or cannot be used
	CodeMismatch    = "mismatch"     // the key or the token typed again is not the present one
	CodeForbidden   = "forbidden"    // by Options.Allow, or without Options.Allow
	CodeCrossOrigin = "cross-origin" // the request came from another site
	CodeHost        = "host"         // the request has the Host of another site
	CodeDenied      = "denied"       // by Security.Authorize
	CodeNotHeld     = "not-held"
	CodeNoSession   = "no-session"
	CodeNoQuorum    = "no-quorum"
	CodeTimeout     = "timeout"
	CodeBusy        = "busy" // too many actions at a time
	CodeFailed      = "failed"
)
