package wire

// VotersWord reports whether an answer with this code to a question of this type
// counts only from a process with the voter role: a leader's or a voter's word about
// its raft. A member of any role may name the leader (Vouch, CodeNotLeader).
//
// The answers to Prepare, Accept, Retire and Who come from members of any role, and
// count differently: see package founding.
func VotersWord(t Type, c Code) bool {
	switch t {
	case Confirm, Invite, Progress, InConfig, Stand, Follows, Attest:
		return true
	case Vouch:
		return c == CodeOK
	}
	return false
}
