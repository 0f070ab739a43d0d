package machine

import (
	"encoding/binary"
	"fmt"
)

// A log entry is a version byte, the number of commands, and each command in a
// frame: the length of the encoding, and the encoding. The leader builds entries
// from received encodings, without another encoding.

// EntryVersion is the version of the log entries from EncodeEntry: the division into
// frames. A new kind of command is a new frame, and the version stays.
const EntryVersion = 1

// EncodeEntry returns one log entry of the encoded commands in frames, at most
// MaxCommands: DecodeEntry refuses more. Each frame is copied once, and there is one
// allocation.
func EncodeEntry(frames [][]byte) []byte {
	size := 1 + binary.MaxVarintLen16
	for _, frame := range frames {
		size += binary.MaxVarintLen32 + len(frame)
	}
	b := append(make([]byte, 0, size), EntryVersion)
	b = binary.AppendUvarint(b, uint64(len(frames)))
	for _, frame := range frames {
		b = appendBytes(b, frame)
	}
	return b
}

// EncodeCommands encodes commands and returns one log entry of them: see
// EncodeEntry.
func EncodeCommands(commands []Command) []byte {
	frames := make([][]byte, len(commands))
	for i, c := range commands {
		frames[i] = EncodeCommand(c)
	}
	return EncodeEntry(frames)
}

// DecodeEntry decodes a log entry. It returns one command for each frame: a
// frame that cannot be decoded becomes an Unknown. An error means a foreign
// version or broken frames, and then there are no commands. The commands do not
// refer to b.
func DecodeEntry(b []byte) ([]Command, error) {
	if len(b) == 0 {
		return nil, errShort
	}
	if b[0] != EntryVersion {
		return nil, fmt.Errorf("machine: entry version %d, want %d", b[0], EntryVersion)
	}
	r := reader{b: b[1:]}
	n := r.count(MaxCommands)
	if r.err != nil {
		return nil, r.err
	}
	commands := make([]Command, 0, n)
	for range n {
		frame := r.bytes()
		if r.err != nil {
			return nil, r.err
		}
		c, err := DecodeCommand(frame)
		if err != nil {
			c = Unknown{Raw: string(frame)}
		}
		commands = append(commands, c)
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	return commands, nil
}
