// Package wire defines the messages between members on KindMember and KindControl
// streams: frames, their bodies, and the codes of answers.
//
// A stream is a sequence of frames. A frame is a four-byte big-endian length, at
// most MaxFrame, and a msgpack array [type, id, code, body]. A request carries an
// id, and the answer repeats the id; a frame with id 0 is a notice and gets no
// answer.
//
// The body has one of two encodings:
//
//   - Commands, outcomes, events and session IDs are on the hot path. Package
//     machine encodes these bodies by hand, as raw bytes.
//   - All other bodies are structs, as msgpack maps by field name. Not arrays: the
//     decoder refuses an array of another length, and the speed does not matter
//     here. The structs are in messages.go, except the questions and answers about
//     keys: replica.Query, Answer, Scan and Scanned, and those of replica/lists.go, the same as in
//     the process.
//
// Before a msgpack body is decoded, validate compares every length in the body
// with the bytes present, so that a false length costs no memory.
//
// # Changing the format
//
// Members of two versions work together during an upgrade, so a next version may
// only add:
//
//   - A new field: members of this version ignore the field. A message from this
//     version leaves the field zero.
//   - A new notice: members of this version skip its Type.
//   - A new request: members of this version answer CodeBad.
//   - A new Code: members of this version treat the Code like CodeUnknown.
//
// Never rename a field, change the type of a field, renumber a Type or a Code, or
// change the layout of a frame. Such a change needs another version in the preamble
// of package port: members with different preambles refuse each other's
// streams.
//
// The golden file under testdata/golden keeps every message of this version as
// bytes. A next version adds a golden file beside it. The tests must read both
// files, and only the newest file may be rewritten.
package wire
