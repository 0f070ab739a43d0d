package locks

import (
	"slices"

	"github.com/wardmote/wardmote/internal/machine"
)

// request is what is asked of the cluster for one key, or for several at once.
type acquireRequest struct {
	key         string   // the first of keys, if there are any
	keys        []string // in ascending order
	owner       string
	meta        []byte
	delay       uint64 // milliseconds
	ifToken     machine.Token
	of          uint32
	maxWaiters  uint32
	mode        machine.Mode
	priority    int8
	tree        bool
	conditional bool
	try         bool
	options     optionSet
	err         error // the first option's that cannot be used
}

func (r *acquireRequest) setErr(err error) {
	if r.err == nil {
		r.err = err
	}
}

func newAcquireRequest(key string, opts []Option) (acquireRequest, error) {
	r := acquireRequest{key: key}
	if err := checkKey(key); err != nil {
		return r, err
	}
	r.applyOptions(opts)
	return r, r.err
}

// newSetRequest is newRequest for several keys.
func newSetRequest(keys []string, opts []Option) (acquireRequest, error) {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	r := acquireRequest{keys: keys}
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

// all returns all keys that are asked for.
func (r *acquireRequest) allKeys() []string {
	if r.keys != nil {
		return r.keys
	}
	return []string{r.key}
}

// command is what the request is proposed as.
func (r *acquireRequest) command() machine.Acquire {
	c := machine.Acquire{
		Key:         r.key,
		Keys:        r.keys,
		Mode:        r.mode,
		Of:          r.of,
		Tree:        r.tree,
		Try:         r.try,
		MaxWaiters:  r.maxWaiters,
		Priority:    r.priority,
		Delay:       r.delay,
		Conditional: r.conditional,
		IfToken:     r.ifToken,
		Meta:        r.meta,
	}
	if r.keys != nil {
		c.Key = ""
	}
	return c
}
