package locks

import (
	"slices"

	"github.com/wardmote/wardmote/internal/machine"
)

// acquireRequest is a call's request for one key, or for several keys at once.
type acquireRequest struct {
	key     string          // the first of cmd.Keys if there are several keys
	cmd     machine.Acquire // filled in by the options; command completes it
	owner   string          // of the option Reentrant
	options optionSet       // the options given
	err     error           // of the first option that cannot be used
}

// newAcquireRequest returns the request for key with opts, or a
// *cluster.ConfigError.
func newAcquireRequest(key string, opts []Option) (acquireRequest, error) {
	r := acquireRequest{key: key}
	if err := checkKey(key); err != nil {
		return r, err
	}
	r.applyOptions(opts)
	return r, r.err
}

// newSetRequest returns the request for all of keys at once with opts, or a
// *cluster.ConfigError.
func newSetRequest(keys []string, opts []Option) (acquireRequest, error) {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	r := acquireRequest{cmd: machine.Acquire{Keys: keys}}
	switch {
	case len(keys) == 0:
		return r, configError("keys", "none")
	case len(keys) > machine.MaxKeys:
		return r, configError("keys", "%d exceed %d", len(keys), machine.MaxKeys)
	}
	size := 0
	for i, key := range keys {
		if err := checkKey(key); err != nil {
			return r, err
		}
		if i > 0 && keys[i-1] == key {
			return r, configError("keys", "%q is there twice", key)
		}
		size += len(key)
	}
	if size > machine.MaxKeyBytes {
		return r, configError("keys", "%d bytes in all exceed %d", size, machine.MaxKeyBytes)
	}
	r.key = keys[0]
	r.applyOptions(opts)
	r.refuseOptions(optPermit|optPriority|optDelay|optIfToken|optReentrant, "AcquireAll")
	return r, r.err
}

// allKeys returns all keys of the request, in ascending order.
func (r *acquireRequest) allKeys() []string {
	if r.cmd.Keys != nil {
		return r.cmd.Keys
	}
	return []string{r.key}
}

// command returns the command to propose, without Session, Seq, Under and Seen.
func (r *acquireRequest) command() machine.Acquire {
	cmd := r.cmd
	if cmd.Keys == nil {
		cmd.Key = r.key
	}
	return cmd
}
