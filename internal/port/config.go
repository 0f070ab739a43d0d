package port

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/wardmote/wardmote/internal/auth"
	"github.com/wardmote/wardmote/internal/meter"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
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

	// Advertised returns the address at which this member wants to be reached, at
	// most 128 printable bytes. The address is part of each answer: a dialler
	// learns whether the answerer claims the dialled address. The call must not
	// block. Nil: never told.
	Advertised func() string

	// Admit has the last word on a connection that passed every other check. An
	// error refuses the connection: with the Status of a *RefusedError, else
	// with StatusRefused. Admit is called from many goroutines and must not
	// block. Nil admits all.
	Admit func(h Hello) error

	// Living reports whether a member's process is known to live at this host, an
	// IP address as Host returns it. The process's connections
	// may take the places kept for known members. Living is called from many
	// goroutines, for connections beyond a cap alone, and must not block. Nil: no
	// process is known.
	Living func(from Peer, ip netip.Addr) bool

	// Known reports whether a member's process is known to live, wherever. Connections of
	// processes that are not known have a bound of their own. Known is called from many
	// goroutines, for each connection, and must not block. Nil: every process is known.
	Known func(from Peer) bool

	// Auth proves both sides of each connection to each other. Packets are not
	// protected by it. Default: auth.Plain, which proves nothing.
	Auth auth.Method

	// Age is the greatest age of a connection on the accepting side; the dialling
	// side renews after three quarters at least and seven eighths at most. Default:
	// timing.StreamAge.
	Age time.Duration

	// Logger receives details for debugging, and warnings when accepting fails.
	// Nil: silent.
	Logger *slog.Logger

	// Refused counts refused connections. May be nil.
	Refused *refused.Log

	// Meter counts the bytes of this port. Nil: nobody reads the counts.
	Meter *meter.Node

	// Foreign is told of each meeting with a member of another cluster that
	// passed TLS, whichever side dialled. h describes the stranger: From and
	// ClusterID are the stranger's, and Cluster is this member's own cluster
	// name if the names agree, else "". addr is the stranger's address: the address
	// where it listens if dialled, else the other end of its connection. Foreign
	// is called from many goroutines and must not block. May be nil.
	Foreign func(h Hello, addr string, dialled bool)

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
	if c.Advertised == nil {
		c.Advertised = func() string { return "" }
	}
	if c.Admit == nil {
		c.Admit = func(Hello) error { return nil }
	}
	if c.Living == nil {
		c.Living = func(Peer, netip.Addr) bool { return false }
	}
	if c.Known == nil {
		c.Known = func(Peer) bool { return true }
	}
	if c.Foreign == nil {
		c.Foreign = func(Hello, string, bool) {}
	}
	if c.Auth == nil {
		c.Auth = auth.Plain{}
	}
	c.Age = cmp.Or(c.Age, timing.StreamAge)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, nil
}
