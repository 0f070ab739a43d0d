package link

import (
	"net"
	"time"
)

// This file renews the stream to the leader before the stream's connection ends by
// age: a connection rests on a certificate or a secret that expires. A second stream
// attaches to the same leader on the same way, direct or relayed, and then the first
// is quit. Nobody is told of a change of leader, and the sessions' events go on: the
// leader routes the events to the second stream before the first one ends. A request
// under way on the first stream is repeated on the second.

// A Way is a stream to another member.
type Way struct {
	Conn  net.Conn
	Name  string          // of the member found there
	Named bool            // a certificate of the user's proves the name; others may take one that is not proved
	Voter bool            // the stream proves that the member has the voter role
	Bound []byte          // binds a proof to the TLS stream: see port.Conn.Binding; nil without TLS
	Renew <-chan struct{} // closed when the stream should be replaced; nil: never
}

// aged reports whether the stream should be replaced.
func (u *remote) aged() bool {
	select {
	case <-u.renew:
		return true
	default:
		return false
	}
}

// aging returns a channel that is closed when the upstream should be replaced, or
// nil if it never should be, or if the finder knows already.
func (f *finder) aging() <-chan struct{} {
	if up, ok := f.up.(*remote); ok && !up.aged() {
		return up.renew
	}
	return nil
}

// goAgain attaches to the present leader once more, the way of the present stream, if
// that stream should be replaced. After a failure goAgain tries again, at the pace of
// every place that was asked in vain, until the connection ends.
func (f *finder) goAgain(start func(place, string, bool) bool, up *remote, later func(time.Time)) {
	if up.aged() {
		start(place{f.before.Addr, up.via}, f.before.Name, true)
	}
}
