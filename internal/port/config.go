package port

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"

	"github.com/wardmote/wardmote/transport"
)

// Config configures a [Port]. Open copies the fields and changes none.
type Config struct {
	// Network is used to listen and to dial. Default: transport.TCP().
	Network transport.Network

	// Bind is the address to listen on, "host:port"; port 0 picks a number.
	Bind string

	// Cluster is the cluster's name. Connections from and to members of a
	// cluster of another name are refused.
	Cluster string

	// Self is this member's name (1 to 128 printable bytes of UTF-8) and its
	// boot ID, which must not be 0.
	Self Peer

	// ClusterID returns the cluster's ID, zero while unknown. Each handshake
	// calls it, and it must not block. Nil: never known.
	ClusterID func() [16]byte

	// Admit has the last word on a connection that passed every other check. An
	// error refuses the connection: with the Status of a *RefusedError, else
	// with StatusRefused. Admit is called from many goroutines and must not
	// block. Nil admits all.
	Admit func(h Hello) error

	// TLS, if not nil, makes every stream TLS 1.3 with certificates on both
	// sides, whichever versions and ClientAuth it asks for. ClientCAs defaults
	// to RootCAs, ServerName to the dialled host. Packets are not encrypted by
	// it.
	TLS *tls.Config

	// Logger receives details for debugging, and warnings when accepting fails.
	// Nil: silent.
	Logger *slog.Logger

	// Foreign is told of each meeting with a member of another cluster that
	// passed TLS, whichever side dialled. h describes the stranger: From and
	// ClusterID are the stranger's, and Cluster is this member's own cluster
	// name if the names agree, else "". addr is the stranger's address. Foreign
	// is called from many goroutines and must not block. May be nil.
	Foreign func(h Hello, addr string)

	_ struct{}
}

// withDefaults checks c and fills in the defaults.
func (c Config) withDefaults() (Config, error) {
	if n := len(c.Self.Name); n == 0 || n > maxName {
		return c, fmt.Errorf("transport: config: Self.Name of %d bytes is not within 1-%d", n, maxName)
	}
	if !printable(c.Self.Name) {
		return c, fmt.Errorf("transport: config: Self.Name %q is not printable", c.Self.Name)
	}
	if c.Self.Boot == 0 {
		return c, errors.New("transport: config: Self.Boot is 0")
	}
	if c.Network == nil {
		c.Network = transport.TCP()
	}
	if c.ClusterID == nil {
		c.ClusterID = func() [16]byte { return [16]byte{} }
	}
	if c.Admit == nil {
		c.Admit = func(Hello) error { return nil }
	}
	if c.Foreign == nil {
		c.Foreign = func(Hello, string) {}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, nil
}
