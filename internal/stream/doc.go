// Package stream carries requests, answers and notices between two members over
// a connection.
//
// The types are:
//
//   - Stream, a connection in use. Both sides send requests, answers and notices at
//     any time, without waiting for each other.
//   - Request, a request of the peer. The handler answers the request once.
//   - Peers, the control streams of this node: a stream to each process asked
//     by this node, dialled at the first question and dialled again after the
//     stream has stopped.
//
// The package decides how much may be queued for a peer and how many requests a
// peer may have under way. The package does not know the meaning of any message,
// the members, or the leader. Package internal/link and internal/term run the
// streams between a member and the leader; package cluster answers the control
// streams of other members and gives its Peers to internal/founding and
// internal/voters.
//
// Guarantees:
//
//   - No method of Stream blocks, except Call, Wait and Close.
//   - The callback of a request is called exactly once, with the answer or with
//     the error that stopped the stream, unless Begin failed or Forget removed
//     the callback.
//   - Requests of the peer reach the handler one at a time, in the order of
//     their arrival.
//   - Frames leave in the order of the calls. Only frames given to Push and
//     AnswerLater may be overtaken, but not by each other.
//   - Memory for a peer is bounded: at most 8 MiB of encoded frames, 1 Mi delayed
//     frames, MaxServing requests under way, 16 KiB of received
//     bytes and one frame. A peer over the first or the second limit loses the
//     stream; a request over the third is answered Busy.
//   - Memory for all peers is bounded by the budget of the node, if the connection
//     has a share: a frame above 16 KiB waits for its part, a request beyond 16 KiB of the
//     stream's requests of its class is answered Busy while the part of that class is full,
//     and with frames above 32 KiB queued the peer for which the most waits loses its stream
//     then.
//   - Requests that may wait for a change leave room for all others, and these for beats,
//     however many are under way on this stream and on all.
//   - A large answer is worth while, unless much waits for all peers and the most for this one.
//   - A frame that has begun is complete within 10 s, or the stream ends. Between
//     frames a stream may be idle.
//
// A Stream reads on a goroutine of its own, begun by Start, or on the caller's of Serve,
// and owns a writer, begun by the first frame for the peer; Wait, Close and Serve join
// them. Peers owns a goroutine for each stream, and a goroutine for
// each question of Begin during a dial; Peers.Stop joins all goroutines.
package stream
