package port

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/wardmote/wardmote/internal/auth"
	"github.com/wardmote/wardmote/internal/refused"
)

// maxParting is how many bytes of a refused side are read before the close.
const maxParting = 16 << 10

const noVoter = "raft connection under a certificate whose role is not voter"

// UnprovedError says that a dialled address answers, and that one side refuses the
// other's proof. Nothing is known of the other side: the answer may be anybody's.
type UnprovedError struct {
	Addr   string // as dialled
	Reason string
}

func (e *UnprovedError) Error() string { return "transport: " + e.Addr + ": " + e.Reason }

// Refusal says why the connection was refused. The first result is false: nothing
// shows another cluster.
func (e *UnprovedError) Refusal() (foreign bool, why string) { return false, e.Reason }

// matches reports whether a process may be the proved one.
func matches(proved auth.Identity, claimed Peer) bool {
	return (proved.Name == "" || proved.Name == claimed.Name) && (proved.Boot == 0 || proved.Boot == claimed.Boot)
}

func impostor(proved auth.Identity, claimed Peer) string {
	return fmt.Sprintf("claims to be %s and proves to be %s", claimed, Peer{proved.Name, proved.Boot})
}

// unproved returns the error of a dialling side's handshake, as an *UnprovedError if
// one side refuses the other.
func (p *Port) unproved(addr, what string, err error) error {
	err = auth.Explain(err)
	no, ok := errors.AsType[*auth.RefusedError](err)
	if !ok || errors.Is(err, errMagic) || errors.Is(err, errLayout) {
		return fmt.Errorf("transport: dial %s: %s%w", addr, what, err)
	}
	if !no.Theirs {
		p.cfg.Refused.Note(refused.Handshake, addr, no.Reason)
	}
	return &UnprovedError{addr, no.Reason}
}

// strange notes the failed handshake of an accepted connection, unless the network
// failed, and lets the other side read why.
func (p *Port) strange(raw net.Conn, err error) {
	no, ok := errors.AsType[*auth.RefusedError](err)
	if !ok {
		return
	}
	if !no.Theirs {
		p.cfg.Refused.Note(refused.Handshake, raw.RemoteAddr().String(), no.Reason)
	}
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && plain.Conn != nil {
		_, _ = raw.Write([]byte{tlsAlert, 3, 3, 0, 2, 2, 10}) // fatal: unexpected message
	}
	// Bytes unread at a close would reset the connection, and the reset could overtake
	// the alert. A dialling member hangs up when it has read the alert.
	_, _ = io.CopyN(io.Discard, raw, maxParting)
}
