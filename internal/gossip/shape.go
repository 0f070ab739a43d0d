package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/memberlist"

	"github.com/wardmote/wardmote/internal/wire"
)

// This file checks the bytes of other members before memberlist reads them.
// memberlist decodes all it understands: packets that unpack to 40 MiB,
// user messages of 20 MiB, room for a million members for a number in a header. The
// check admits the messages that wardmote's members send, and no other.

// The messages of memberlist, by their first byte.
const (
	msgPing         = 0
	msgIndirectPing = 1
	msgAck          = 2
	msgSuspect      = 3
	msgAlive        = 4
	msgDead         = 5
	msgPushPull     = 6
	msgCompound     = 7
	msgNack         = 11
	msgCRC          = 12
	msgError        = 13
)

const (
	// maxEntry is the largest member in a push-pull message: 78 bytes of name,
	// maxMeta of description, 16 of address, and 150 for the names of fields,
	// numbers and versions.
	maxEntry = 640

	// maxMessage is the largest message of a stream: a list of all members that a
	// member may know. Each message of an honest member therefore passes.
	maxMessage = maxKnown*maxEntry + 1024

	// maxSmall is the largest other message of a stream: a ping, an answer, an error.
	maxSmall = 1024
)

var (
	errLabel = errors.New("of another cluster")
	errShape = errors.New("not of this protocol")
)

// unlabel removes the cluster's name from the front of b.
func unlabel(b []byte, cluster string) ([]byte, error) {
	rest, label, err := memberlist.RemoveLabelHeaderFromPacket(b)
	if err != nil || label != cluster {
		return nil, errLabel
	}
	return rest, nil
}

// checkPacket checks an opened packet: the cluster's name, then one message or
// several, each of one value. It returns the number of requests to ping a third
// member, each of which costs this member a goroutine.
func checkPacket(b []byte, cluster string) (indirect int, err error) {
	b, err = unlabel(b, cluster)
	if err != nil {
		return 0, err
	}
	if len(b) > 5 && b[0] == msgCRC {
		b = b[5:] // memberlist compares the sum
	}
	if len(b) == 0 || b[0] != msgCompound {
		return checkMessage(b)
	}
	return checkCompound(b[1:])
}

// checkCompound checks the messages of a compound packet: their number, a length of
// two bytes each, the messages.
func checkCompound(b []byte) (indirect int, err error) {
	if len(b) < 1 || len(b) < 1+2*int(b[0]) {
		return 0, errShape
	}
	lengths := b[1 : 1+2*int(b[0])]
	b = b[1+len(lengths):]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		n := int(binary.BigEndian.Uint16(lengths))
		if n > len(b) {
			return 0, errShape
		}
		i, err := checkMessage(b[:n])
		if err != nil {
			return 0, err
		}
		indirect += i
		b = b[n:]
	}
	return indirect, nil
}

// checkMessage checks one message of a packet.
func checkMessage(b []byte) (indirect int, err error) {
	if len(b) == 0 {
		return 0, errShape
	}
	switch b[0] {
	case msgIndirectPing:
		indirect = 1
	case msgPing, msgAck, msgSuspect, msgAlive, msgDead, msgNack:
	default:
		return 0, errShape
	}
	return indirect, checkValue(b[1:])
}

// checkValue checks that b is exactly one value of true lengths.
func checkValue(b []byte) error {
	_, rest, err := wire.Split(b)
	if err == nil && len(rest) > 0 {
		err = errShape
	}
	return err
}

// checkState checks a message of a stream, without the cluster's name, and returns
// the message for memberlist. Answer says that the message answers this member's.
func checkState(b []byte, answer bool) ([]byte, error) {
	if len(b) == 0 {
		return nil, errShape
	}
	switch kind := b[0]; {
	case kind == msgPushPull:
		return checkPushPull(b[1:])
	case kind == msgPing && !answer, (kind == msgAck || kind == msgError) && answer:
		if len(b) > maxSmall {
			return nil, errShape
		}
		return b, checkValue(b[1:])
	}
	return nil, errShape
}

// checkPushPull checks a list of members: a header, and as many members as the
// header says. The header is written anew, so that memberlist cannot read another
// number from it than this function.
func checkPushPull(b []byte) ([]byte, error) {
	head, rest, err := wire.Split(b)
	if err != nil {
		return nil, err
	}
	var h struct {
		Nodes, UserStateLen uint32
		Join                bool
	}
	if err := wire.Unmarshal(head, &h); err != nil {
		return nil, err
	}
	if h.Nodes > maxKnown || h.UserStateLen != 0 {
		return nil, fmt.Errorf("%d members, %d bytes of user state: %w", h.Nodes, h.UserStateLen, errShape)
	}
	out := append(make([]byte, 0, len(b)+64), msgPushPull)
	out = wire.Append(out, &h)
	out = append(out, rest...)
	for range h.Nodes {
		var entry []byte
		if entry, rest, err = wire.Split(rest); err != nil {
			return nil, err
		}
		if len(entry) > maxEntry {
			return nil, fmt.Errorf("%d bytes for a member: %w", len(entry), errShape)
		}
	}
	if len(rest) > 0 {
		return nil, errShape
	}
	return out, nil
}
