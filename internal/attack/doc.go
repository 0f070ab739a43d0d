// Package attack runs a hostile client against clusters of real processes, and
// prints the result as a matrix: attack by attacker by mode of Security.
//
// The package has no code outside of its tests. The hostile client speaks every
// layer of the port: TCP and UDP, TLS, the preamble, raft, founding, sessions and
// gossip. It writes the preamble, raft's messages and gossip's packets by small
// encoders of its own, so that no check of the product stands between an attack and
// the wire.
//
// The attackers:
//
//   - A stranger knows the cluster's name and the members' addresses.
//   - An impostor has a certificate or secret that is wrong: made out to another
//     service by the same authority, expired, of another authority, or another
//     cluster's secret.
//   - A guest has a certificate of the member role, for its own name, and the secret
//     if there is one besides.
//   - A member has the secret, or a certificate of the voter role for its own name, or
//     both.
//   - On the path, an attacker sees and changes every byte on the way to a member.
//
// After each attack every process must run, every held lock must be with its holder
// and nobody else, the cluster must serve the next lock with the same leader, and
// the memory of each member must be bounded. After all attacks of a mode the members
// restart from their Dirs.
//
// The expected verdict of each cell is in expected_test.go. A plain run tries the
// quick attacks in one mode; with WARDMOTE_ATTACK=all (make attack) all attacks run in
// all modes, and the figures under attack are printed. WARDMOTE_ATTACK may also list
// columns of the matrix, as Secret/stranger,TLS/guest. WARDMOTE_ATTACK_ONLY is a part
// of the names of the attacks to try, and WARDMOTE_ATTACK_FILE takes the matrix.
package attack
