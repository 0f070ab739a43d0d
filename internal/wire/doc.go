// Package wire is what members say to each other on KindMember and KindControl
// streams: frames, their bodies, and the codes that carry a refusal's class
// over the hop.
//
// A stream is a sequence of frames. A frame is a four-byte big-endian length, at
// most MaxFrame, and a msgpack array [type, id, code, body]. A request carries an
// id that its answer repeats; id 0 asks for no answer. Bodies of the hot path
// (commands, outcomes, events, session IDs) are raw bytes written by hand in
// package machine; the rest are msgpack arrays of the structs in messages.go.
//
// To change the format: only append fields to a struct (a decoder ignores
// what it does not know and leaves zero what is missing), never renumber a
// Type or a Code, and add a golden file under testdata/golden.
package wire
