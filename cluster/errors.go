package cluster

import (
	"errors"

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

// ConfigError reports a value that cannot be used, and the reason. Nothing was
// started or changed.
type ConfigError struct {
	Field  string // for example "Config.TTL", "key"
	Reason string // for example "10ms is below the least, 300ms"
}

func (e *ConfigError) Error() string { return "wardmote: " + e.Field + ": " + e.Reason }

// errBeside ends a cluster founded beside a living cluster.
var errBeside = errors.New("cluster: founded beside a living cluster of the same name; restart this member so that it joins that one")
