// Package wire is what members say to each other on KindMember and KindControl
// streams: frames, their bodies, and the codes that carry a refusal's class
// over the hop.
//
// A stream is a sequence of frames. A frame is a four-byte big-endian length, at
// most MaxFrame, and a msgpack array [type, id, code, body]. A request carries an
// id that its answer repeats; id 0 asks for no answer. Bodies of the hot path
// (commands, outcomes, events, session IDs) are raw bytes written by hand in
// package machine; the rest are msgpack maps of the structs in messages.go, by
// field name. Maps, not arrays: an array's decoder refuses another length, and
// these are not on the hot path. What a message claims to hold is checked against
// its bytes before any of it is decoded: see validate.
//
// To change the format: add fields (a decoder ignores what it does not know,
// and leaves zero what is missing), never rename or retype one, never renumber a
// Type or a Code, and add a golden file under testdata/golden, whose earlier
// files stay as they are and are read for ever.
package wire
