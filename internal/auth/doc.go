// Package auth proves the identity of the other end of a connection.
//
// A [Method] does one side's half of a handshake and returns the [Identity] proved
// by the handshake. There are three:
//
//   - [Plain] proves nothing.
//   - [Keyring] rests on secrets shared by all members.
//   - [Certificates] rests on the user's own certificates.
//
// The package decides which proofs count. It knows no preamble, no kinds of
// connections and no messages: package port compares the Identity with the preamble,
// and the rooms above allow or refuse requests by it. Package cluster makes the Method
// and changes the secrets of a Keyring.
//
// # Guarantees
//
// With a Keyring or Certificates:
//
//   - Every byte of a connection is TLS 1.3, with certificates shown by both sides.
//     No session is resumed, so each connection proves both sides anew.
//   - A side without a common secret is refused by the dialling side's first message,
//     before a certificate of either side is sent.
//   - A handshake costs no signature check under a key of the other side's choice until
//     the other side's certificate has passed, and of Certificates at most 8 are looked at.
//   - A proof rests on a secret or on the user's roots, never on the host's roots.
//   - A Keyring's certificate tells cluster, name and boot to the holders of the secret
//     alone. The accepting side shows its certificate first, to everybody who has read
//     the ID of the secret on the path. Certificates of the user's are shown as openly,
//     and tell their names.
//   - A Keyring's proof is bound to cluster, name and boot, and to no clock: a secret
//     ends by its removal.
//
// # Caveats
//
// Each holder of a secret can be any member: names of a Keyring keep mistakes apart,
// not members. Names against members need Certificates.
//
// The package starts no goroutine.
package auth
