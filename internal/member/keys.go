package member

import (
	"errors"
	"fmt"
	"strings"
)

const (
	// MaxKeys is the limit of the secrets that a member knows.
	MaxKeys = 8

	// MaxRelease is the limit of a release in a member's description, in bytes.
	MaxRelease = 32

	keyID = 8 // bytes of a secret's ID
)

// KeyIDs returns the IDs of the secrets that the member knows, the newest first.
func (m Metadata) KeyIDs() (ids [][keyID]byte) {
	for keys := m.Keys; len(keys) >= keyID; keys = keys[keyID:] {
		ids = append(ids, [keyID]byte([]byte(keys[:keyID])))
	}
	return ids
}

// SetKeyIDs sets the IDs of the secrets that the member knows. IDs beyond MaxKeys are
// left out.
func (m *Metadata) SetKeyIDs(ids [][keyID]byte) {
	keys := make([]byte, 0, MaxKeys*keyID)
	for _, id := range ids[:min(len(ids), MaxKeys)] {
		keys = append(keys, id[:]...)
	}
	m.Keys = string(keys)
}

// Check returns why no member can have this description, or nil.
func (m Metadata) Check() error {
	if m.Zone != "" {
		if err := CheckName(m.Zone); err != nil {
			return fmt.Errorf("zone: %w", err)
		}
	}
	if len(m.Release) > MaxRelease || strings.ContainsFunc(m.Release, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return errors.New("not a release")
	}
	if n := len(m.Keys); n%keyID != 0 || n > MaxKeys*keyID {
		return errors.New("not a list of keys")
	}
	return nil
}
