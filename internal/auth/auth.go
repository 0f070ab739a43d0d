package auth

import (
	"context"
	"encoding/hex"
	"net"
	"time"
)

// KeyID names a secret without telling the secret.
type KeyID [8]byte

// String returns the ID in hex.
func (id KeyID) String() string { return hex.EncodeToString(id[:]) }

// Identity is the part of the other side's identity proved by a handshake.
type Identity struct {
	Name  string    // of the member; "": no name is proved
	Boot  uint64    // of the process; 0: no boot is proved
	Voter bool      // the other side may act as a voter
	Key   KeyID     // of the secret on which the handshake rests; zero: none
	Until time.Time // the proof of either side ends; zero: never
}

// Method is a way for members to prove themselves to each other. Both functions do
// one side's half of a handshake on raw and return the protected connection. They
// return when ctx ends or a deadline of raw passes. A *RefusedError says that one side
// has refused the other; raw is left open, so that its alert is not lost. The functions
// may be called from many goroutines.
type Method interface {
	Server(ctx context.Context, raw net.Conn) (net.Conn, Identity, error)
	Client(ctx context.Context, raw net.Conn) (net.Conn, Identity, error)
}

// Plain is the Method without proof: both sides send plain text, and each may do
// anything.
type Plain struct{}

// Server returns raw itself.
func (Plain) Server(_ context.Context, raw net.Conn) (net.Conn, Identity, error) {
	return raw, Identity{Voter: true}, nil
}

// Client returns raw itself.
func (Plain) Client(_ context.Context, raw net.Conn) (net.Conn, Identity, error) {
	return raw, Identity{Voter: true}, nil
}
