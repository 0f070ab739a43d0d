package locks

import (
	"unicode/utf8"

	"github.com/wardmote/wardmote/internal/machine"
)

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

// checkPrefix returns a *cluster.ConfigError if no key can begin with prefix.
func checkPrefix(prefix string) error {
	switch {
	case len(prefix) > machine.MaxKey:
		return configError("prefix", "%d bytes exceed %d", len(prefix), machine.MaxKey)
	case reserved(prefix):
		return configError("prefix", "keys that begin with a NUL byte are reserved")
	case !utf8.ValidString(prefix):
		return configError("prefix", "not valid UTF-8")
	}
	return nil
}

// reserved reports whether a key is reserved for this package.
func reserved(key string) bool { return key != "" && key[0] == 0 }

// firstKey sorts before all keys of users.
const firstKey = "\x01"

// keyAfter returns the least key that sorts after the last of keys.
func keyAfter(keys []machine.Status) string { return keys[len(keys)-1].Key + "\x00" }
