package locks

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/meter"
)

// acquireRequest is a call's request for one key, or for several keys at once.
type acquireRequest struct {
	key     string          // the first of cmd.Keys if there are several keys
	cmd     machine.Acquire // filled in by the options; command completes it
	meta    string          // of the option Meta, encoded: cmd.Meta without the entries of Trace.Acquiring
	owner   string          // of the option Reentrant
	options optionSet       // the options given
	series  []*meter.Series // count the request by its label; nil: none
	err     error           // a *cluster.ConfigError of the first part that cannot be used

	call    Call
	began   time.Time       // when the call began
	tracing *traced         // the call
	traced  context.Context // of Trace.Acquiring; nil: the call's
}

// newAcquireRequest returns the request of call for key with opts.
func newAcquireRequest(call Call, key string, opts []Option) acquireRequest {
	r := acquireRequest{call: call, key: key, err: checkKey(key)}
	r.applyOptions(opts)
	return r
}

// usedRequests has requests whose calls have returned. Options are functions, so a request
// is always on the heap.
var usedRequests = sync.Pool{New: func() any { return new(acquireRequest) }}

// takeRequest is newAcquireRequest in memory that giveBack takes back.
func takeRequest(call Call, key string, opts []Option) *acquireRequest {
	r := usedRequests.Get().(*acquireRequest)
	r.call, r.key, r.err = call, key, checkKey(key)
	r.applyOptions(opts)
	return r
}

// giveBack is called when the call of r has ended. Nothing refers to r by then.
func (r *acquireRequest) giveBack() {
	*r = acquireRequest{}
	usedRequests.Put(r)
}

// newSetRequest returns the request for all of keys at once with opts.
func newSetRequest(keys []string, opts []Option) acquireRequest {
	keys = slices.Sorted(slices.Values(keys))
	r := acquireRequest{call: CallAcquireAll, cmd: machine.Acquire{Keys: keys}, err: checkSet(keys, 1)}
	if r.err == nil {
		r.key = keys[0]
	}
	r.applyOptions(opts)
	if r.err == nil && r.cmd.Tree {
		r.err = checkSet(keys, machine.TreeShare)
	}
	r.refuseOptions(optPermits|optPriority|optDelay|optIfToken|optReentrant|optSticky, "AcquireAll")
	return r
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

// traceCtx returns the context for Trace functions about the request. ctx has the
// values of the call's.
func (r *acquireRequest) traceCtx(ctx context.Context) context.Context {
	if r.traced != nil {
		return r.traced
	}
	return ctx
}

// addMeta adds the entries of more that the call's own Meta does not have, if all of
// them fit.
func (r *acquireRequest) addMeta(more map[string]string) {
	if len(more) == 0 {
		return
	}
	meta := decodeMeta(r.cmd.Meta)
	if meta == nil {
		meta = make(map[string]string, len(more))
	}
	addMissing(meta, more)
	if encoded := encodeMeta(meta); len(encoded) <= machine.MaxMeta {
		r.cmd.Meta = encoded
	}
}

// checkSet returns a *cluster.ConfigError for keys, in ascending order, that
// cannot be used together. The limits are divided by share.
func checkSet(keys []string, share int) error {
	switch {
	case len(keys) == 0:
		return configError("keys", "none")
	case len(keys) > machine.MaxKeys/share:
		return configError("keys", "%d exceed %d", len(keys), machine.MaxKeys/share)
	}
	size, levels := 0, 0
	for i, key := range keys {
		if err := checkKey(key); err != nil {
			return err
		}
		if i > 0 && keys[i-1] == key {
			return configError("keys", "%q is there twice", key)
		}
		size += len(key)
		levels += strings.Count(key, "/")
	}
	if most := machine.MaxKeyBytes / share; size > most {
		return configError("keys", "%d bytes in all exceed %d", size, most)
	}
	if most := machine.MaxLevels / share; levels > most {
		return configError("keys", "%d slashes in all exceed %d", levels, most)
	}
	return nil
}

// checkContext returns a *cluster.ConfigError for a nil context: checked before
// anything else, so that the call changes nothing.
func checkContext(ctx context.Context) error {
	if ctx == nil {
		return configError("ctx", "nil")
	}
	return nil
}

// checkKey returns a *cluster.ConfigError for a key that cannot be used.
func checkKey(key string) error {
	if reserved(key) {
		return configError("key", "keys that begin with a NUL byte are reserved")
	}
	return checkText("key", key, machine.MaxKey)
}

// checkPrefix returns a *cluster.ConfigError if no key can begin with prefix.
func checkPrefix(prefix string) error {
	switch {
	case prefix == "":
		return nil
	case reserved(prefix):
		return configError("prefix", "keys that begin with a NUL byte are reserved")
	}
	return checkText("prefix", prefix, machine.MaxKey)
}

// checkText returns a *cluster.ConfigError unless text is valid UTF-8 of 1 to
// limit bytes.
func checkText(field, text string, limit int) error {
	switch {
	case text == "":
		return configError(field, "empty")
	case len(text) > limit:
		return configError(field, "%d bytes exceed %d", len(text), limit)
	case !utf8.ValidString(text):
		return configError(field, "not valid UTF-8")
	}
	return nil
}

// reserved reports whether a key is reserved for this package.
func reserved(key string) bool { return key != "" && key[0] == 0 }

// firstKey sorts before all keys of users.
const firstKey = "\x01"
