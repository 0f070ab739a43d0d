package locks

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
)

// Options configures a Client. The zero value is sound. A value that cannot be
// used makes every call of the client fail with a *cluster.ConfigError.
type Options struct {
	// Name is what others see as the holder, in Status and HeldError: up to 128
	// bytes of valid UTF-8. It need not be unique. Default: the member's name.
	Name string

	// TTL is how long the cluster keeps the locks of a client that it does not
	// hear, in whole milliseconds: a crashed holder's keys are free after it, and a holder cut
	// off loses them a little before. At least 300 ms, at most the cluster's
	// TTL. Default: the cluster's TTL.
	TTL time.Duration

	// Meta is kept with the client's session: up to 4 KiB when encoded, which
	// adds a few bytes to each key and value. It is copied.
	Meta map[string]string

	// Trace is told what happens. Default: nobody is.
	Trace *Trace

	_ struct{}
}

// The least TTL of a session.
const minTTL = machine.MinTTL * time.Millisecond

// validate returns the encoded Meta, or what is wrong with the options.
func (o *Options) validate() ([]byte, *cluster.ConfigError) {
	switch {
	case len(o.Name) > machine.MaxName:
		return nil, configError("Options.Name", "%d bytes exceed %d", len(o.Name), machine.MaxName)
	case !utf8.ValidString(o.Name):
		return nil, configError("Options.Name", "not valid UTF-8")
	case o.TTL < 0:
		return nil, configError("Options.TTL", "%v is negative", o.TTL)
	case o.TTL > 0 && o.TTL < minTTL:
		return nil, configError("Options.TTL", "%v is below the least, %v", o.TTL, minTTL)
	}
	meta := encodeMeta(o.Meta)
	if len(meta) > machine.MaxMeta {
		return nil, configError("Options.Meta", "%d bytes when encoded exceed %d", len(meta), machine.MaxMeta)
	}
	return meta, nil
}

func configError(field, format string, args ...any) *cluster.ConfigError {
	return &cluster.ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// checkKey returns a *cluster.ConfigError for a key that cannot be used.
func checkKey(key string) error {
	switch {
	case key == "":
		return configError("key", "empty")
	case len(key) > machine.MaxKey:
		return configError("key", "%d bytes exceed %d", len(key), machine.MaxKey)
	case key[0] == 0:
		return configError("key", "keys that begin with a NUL byte are reserved")
	case !utf8.ValidString(key):
		return configError("key", "not valid UTF-8")
	}
	return nil
}

// encodeMeta writes m as its keys in ascending order, each with its value, all
// preceded by their lengths. An empty m is nothing.
func encodeMeta(m map[string]string) []byte {
	var b []byte
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = binary.AppendUvarint(b, uint64(len(k)))
		b = append(b, k...)
		b = binary.AppendUvarint(b, uint64(len(m[k])))
		b = append(b, m[k]...)
	}
	return b
}

// decodeMeta reads what encodeMeta wrote. Of anything else it returns what it
// understands: another version's client may have written it.
func decodeMeta(b []byte) map[string]string {
	if len(b) == 0 {
		return nil
	}
	m := make(map[string]string)
	next := func() (string, bool) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return "", false
		}
		s := string(b[size : size+int(n)])
		b = b[size+int(n):]
		return s, true
	}
	for len(b) > 0 {
		k, ok := next()
		if !ok {
			break
		}
		v, ok := next()
		if !ok {
			break
		}
		m[k] = v
	}
	return m
}
