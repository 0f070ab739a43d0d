package locks

import (
	"slices"

	"github.com/wardmote/wardmote/internal/machine"
)

// request is what is asked of the cluster for one key, or for several at once.
type request struct {
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

// optionSet says which options a request was given, of those that do not go
// with everything.
type optionSet uint8

const (
	optShared optionSet = 1 << iota
	optPermit
	optTree
	optReentrant
	optPriority
	optDelay
	optIfToken
)

// names of the options, in the order in which they are complained of.
var optionNames = []struct {
	opt  optionSet
	name string
}{
	{optPermit, "Permit"},
	{optPriority, "Priority"},
	{optDelay, "Delay"},
	{optIfToken, "IfToken"},
	{optReentrant, "Reentrant"},
	{optTree, "Tree"},
	{optShared, "Shared"},
}

func (r *request) given(o optionSet) { r.options |= o }

func (r *request) refuse(err error) {
	if r.err == nil {
		r.err = err
	}
}

// excludes refuses the options of a set, which do not go with what.
func (r *request) excludes(set optionSet, what string) {
	for _, o := range optionNames {
		if r.options&set&o.opt != 0 {
			r.refuse(configError(o.name, "cannot be combined with %s", what))
		}
	}
}

func newRequest(key string, opts []Option) (request, error) {
	r := request{key: key}
	if err := checkKey(key); err != nil {
		return r, err
	}
	r.apply(opts)
	return r, r.err
}

// newSetRequest is newRequest for several keys.
func newSetRequest(keys []string, opts []Option) (request, error) {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	r := request{keys: keys}
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
	r.apply(opts)
	r.excludes(optPermit|optPriority|optDelay|optIfToken|optReentrant, "AcquireAll")
	return r, r.err
}

// apply takes the options, and refuses those that contradict each other: the
// table would refuse them too, but only after it was asked.
func (r *request) apply(opts []Option) {
	for _, o := range opts {
		if o != nil {
			o(r)
		}
	}
	if r.options&optPermit != 0 {
		r.excludes(optTree|optShared, "Permit")
	}
	if r.options&optTree != 0 {
		r.excludes(optPriority, "Tree")
	}
	if r.options&optIfToken != 0 {
		r.excludes(optReentrant, "IfToken")
	}
}

// all returns all keys that are asked for.
func (r *request) all() []string {
	if r.keys != nil {
		return r.keys
	}
	return []string{r.key}
}

// command is what the request is proposed as.
func (r *request) command() machine.Acquire {
	c := machine.Acquire{
		Key:  r.key,
		Keys: r.keys,
		Spec: machine.Spec{
			Mode:        r.mode,
			Of:          r.of,
			Tree:        r.tree,
			Priority:    r.priority,
			Delay:       r.delay,
			Conditional: r.conditional,
			IfToken:     r.ifToken,
			Meta:        string(r.meta),
		},
		Try:        r.try,
		MaxWaiters: r.maxWaiters,
	}
	if r.keys != nil {
		c.Key = ""
	}
	return c
}
