package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
)

// SessionKey is the capability of a session. The client draws the key at random,
// and shows the key once to each stream by which it acts for the session. The
// session's ID is a hash of the key, so the ID may stand in every answer: a reader
// of the ID learns nothing that would let it act for the session.
//
// A key appears nowhere but in wire.AttachRequest. The methods of fmt and
// encoding/json print the session's ID in its place. Fmt calls no method on an
// unexported field, so a struct keeps a key behind a pointer.
type SessionKey [32]byte

// ID returns the ID of the key's session: the first half of the SHA-256 hash of
// "wardmote session" and the key.
func (k SessionKey) ID() SessionID {
	const label = "wardmote session"
	var b [len(label) + len(k)]byte
	copy(b[copy(b[:], label):], k[:])
	sum := sha256.Sum256(b[:])
	return SessionID(sum[:len(SessionID{})])
}

// A DirID names the directory of a process: the first half of a hash of the public key
// whose private key the directory keeps. Zero names no directory. A session carries the
// DirID of its process, and Forget needs the same one: see Forget.
type DirID [16]byte

// String names the session, and does not show the key.
func (k SessionKey) String() string {
	id := k.ID()
	return "key of session " + hex.EncodeToString(id[:])
}

// Format is String for every verb.
func (k SessionKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// MarshalJSON is String as JSON.
func (k SessionKey) MarshalJSON() ([]byte, error) { return []byte(`"` + k.String() + `"`), nil }
