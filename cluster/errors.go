package cluster

import (
	"errors"
	"fmt"

	"github.com/wardmote/wardmote/internal/replica"
)

// ErrStopped is returned by every call on a node that has stopped.
var ErrStopped = replica.ErrStopped

// ErrNoQuorum says that no leader backed by a majority of the voters could be
// reached. The error of a call also wraps the end of the caller's context.
var ErrNoQuorum = replica.ErrNoQuorum

// ErrFounding says that the cluster was founded less than a TTL ago and grants
// nothing yet, since survivors of an earlier cluster may still trust their
// locks. Only calls that do not wait return it.
var ErrFounding = errors.New("cluster: founded less than a TTL ago, grants nothing yet")

// ErrVersion says that a voter or the leader does not understand the request
// yet: the cluster is being upgraded, and that member is of an earlier version.
// Nothing was changed by the attempt. It works once all members are upgraded.
var ErrVersion = replica.ErrVersion

// ErrDenied says that Security.Authorize has refused the request. The error is a
// *DeniedError. Nothing was changed; after a Recover, other members may have promised
// to take part.
var ErrDenied = replica.ErrDenied

// DeniedError is a request refused by Security.Authorize, of this member, of the
// leader, or of a member asked to take part in a Recover. The error matches
// ErrDenied.
type DeniedError struct {
	Verb   Verb
	Key    string // "" if the request is about no key
	Reason string // the text of Authorize's error: up to 256 bytes, printable
}

func (e *DeniedError) Error() string {
	text := "cluster: " + e.Verb.String()
	if e.Key != "" {
		text += fmt.Sprintf(" %q", e.Key)
	}
	return text + ": denied: " + e.Reason
}

// Is reports whether target is ErrDenied.
func (e *DeniedError) Is(target error) bool { return target == ErrDenied }

// ConfigError reports a value that cannot be used, and the reason. Nothing was
// started or changed.
type ConfigError struct {
	Field  string // for example "Config.TTL", "key"
	Reason string // for example "10ms is below the least, 300ms"
}

func (e *ConfigError) Error() string { return "wardmote: " + e.Field + ": " + e.Reason }

// errNilContext is the error of a call with a nil context. The call has changed
// nothing.
var errNilContext error = &ConfigError{"ctx", "nil"}
