package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// RefusedError is the refusal of one side of a handshake by the other. The failures
// of a network are no refusals.
type RefusedError struct {
	Reason string // in words
	Err    error  // may be nil
	Theirs bool   // the other side has refused this one, as far as this side can know
}

func (e *RefusedError) Error() string { return e.Reason }

func (e *RefusedError) Unwrap() error { return e.Err }

// Reasons for operators to act on.
const (
	noCommonSecret = "no common secret, or another Config.Cluster" // keys derive from both
	noTLS          = "speaks plain text: only one side has Security.Secrets or Security.TLS"
	hungUp         = "hung up on the TLS handshake: perhaps only this side has Security.Secrets or Security.TLS"
	otherSecurity  = "one side has Security.TLS, and the other side does not"
	yourProof      = "does not accept this member's certificate, and its log says why: "
)

func refuse(reason string) error { return &RefusedError{Reason: reason} }

// Explain returns err as a *RefusedError if err is a refusal: of a handshake, or of
// the first read after the dialling side's handshake, since in TLS 1.3 the dialling
// side is done before the accepting side has judged the certificate.
func Explain(err error) error {
	if _, known := errors.AsType[*RefusedError](err); known || err == nil {
		return err
	}
	if alert, ok := remoteAlert(err); ok {
		return &RefusedError{yourProof + strings.TrimPrefix(alert, "tls: "), err, true}
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return &RefusedError{noTLS, err, false}
	}
	if ofNetwork(err) {
		return err
	}
	return &RefusedError{err.Error(), err, false}
}

// explainTo is Explain for the dialling side's handshake, in which a plain text
// member says nothing and hangs up.
func explainTo(err error) error {
	if alert, ok := remoteAlert(err); ok && alert == noProtocol {
		return &RefusedError{otherSecurity, err, true}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return &RefusedError{hungUp, err, true}
	}
	return Explain(err)
}

// noProtocol is the alert of a side without a common application protocol.
const noProtocol = "tls: no application protocol"

// unsupportedProtocols begins the error of the accepting side in the same case.
const unsupportedProtocols = "tls: client requested unsupported application protocols"

// remoteAlert returns the text of an alert sent by the other side. Package tls has no
// exported type for the alert.
func remoteAlert(err error) (text string, ok bool) {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return "", false
	}
	return op.Err.Error(), true
}

// ofNetwork reports whether err is a failure to reach the other side, or to wait.
func ofNetwork(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
