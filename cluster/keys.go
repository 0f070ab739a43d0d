package cluster

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/wardmote/wardmote/internal/member"
)

// This file tells which members know which secrets. Each member spreads the IDs of its
// secrets; an ID is derived from a secret and tells nothing about it.

// keyID names a secret without telling the secret.
type keyID = [8]byte

// gossipKeys returns the keys of gossip and the IDs of the secrets, newest first; none
// without secrets.
func (n *Node) gossipKeys() (keys [][]byte, ids []keyID) {
	if n.keyring == nil {
		return nil, nil
	}
	for _, id := range n.keyring.IDs() {
		ids = append(ids, keyID(id))
	}
	return n.keyring.GossipKeys(), ids
}

// setGossipKeys gives gossip other keys, the newest first, and tells the other members
// the IDs of the secrets. If it fails, nothing has changed.
func (n *Node) setGossipKeys(keys [][]byte, ids []keyID) error {
	if err := n.gossip.SetKeys(keys); err != nil {
		return err
	}
	n.gossip.Update(func(m *member.Metadata) { m.SetKeyIDs(ids) })
	return nil
}

// maxLacking bounds the names in a text about keys.
const maxLacking = 5

// keyTrouble compares the secrets of this member with the secrets of the living
// members, by the newest process of each name. Both texts are empty if all know the
// same. The order counts for nothing: during a rotation members put the new one first
// one after the other.
func keyTrouble(self member.Self, alive []member.Sighting) (reason, next string) {
	var all []member.Sighting
	for i, s := range alive {
		if i+1 == len(alive) || alive[i+1].Name != s.Name {
			all = append(all, s)
		}
	}
	i := slices.IndexFunc(all, func(s member.Sighting) bool { return self.Is(s.Process) })
	if i < 0 || all[i].Meta.Keys == "" {
		return "", ""
	}
	own := all[i].Meta.KeyIDs()
	for _, id := range own {
		if lacking := withKey(all, id, false); len(lacking) > 0 {
			return fmt.Sprintf("%d of %d members do not know key %s: %s", len(lacking), len(all), keyText(id), namesText(lacking)),
				"let them know the key too before any member puts it first; or, if the key is to go, remove it here"
		}
	}
	for _, s := range all {
		for _, id := range s.Meta.KeyIDs() {
			if !slices.Contains(own, id) {
				knowing := withKey(all, id, true)
				return fmt.Sprintf("%d of %d members know key %s, and this member does not: %s", len(knowing), len(all), keyText(id), namesText(knowing)),
					"let this member know the key too before any member puts it first; or, if the key is to go, remove it there"
			}
		}
	}
	return "", ""
}

// estranged returns the names of members that share no secret with this member, by the
// latest word of the newest process of each name: these members have missed a rotation.
// Nothing reaches such a member, and gossip takes it for dead.
func estranged(self member.Self, all []member.Sighting) (names []string) {
	newest := make(map[string]member.Sighting)
	for _, s := range all {
		if s.Boot >= newest[s.Name].Boot {
			newest[s.Name] = s
		}
	}
	own := newest[self.Name].Meta.KeyIDs()
	for name, s := range newest {
		ids := s.Meta.KeyIDs()
		if len(own) > 0 && len(ids) > 0 && !slices.ContainsFunc(ids, func(id keyID) bool { return slices.Contains(own, id) }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// withKey returns the names of the members that know a key; without know, of the
// members that do not.
func withKey(all []member.Sighting, id keyID, know bool) (names []string) {
	for _, s := range all {
		if slices.Contains(s.Meta.KeyIDs(), id) == know {
			names = append(names, s.Name)
		}
	}
	return names
}

func keyText(id keyID) string { return hex.EncodeToString(id[:2]) + "…" }

// namesText lists the first few names.
func namesText(names []string) string {
	if more := len(names) - maxLacking; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxLacking], ", "), more)
	}
	return strings.Join(names, ", ")
}
