package wire

import (
	"bytes"
	"testing"
)

// A proof is of use for its stream alone, and for the keys of its signer alone.
func TestAKeyProofIsForItsStreamAndItsKeys(t *testing.T) {
	own, other := NewKeySigner(), NewKeySigner()
	stream, another := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	key, foreign := own.NewKey(), other.NewKey()
	if key == own.NewKey() {
		t.Error("a key was drawn twice")
	}
	p := own.Prove(stream)
	if !p.Holds(stream) || !p.Sealed(key) {
		t.Error("an honest proof does not hold")
	}
	if p.Holds(another) || p.Holds(nil) {
		t.Error("the proof holds on another stream")
	}
	if p.Sealed(foreign) || other.Prove(stream).Sealed(key) {
		t.Error("a key counts as sealed by another signer")
	}
	for i := range key {
		changed := key
		changed[i]++
		if p.Sealed(changed) {
			t.Errorf("byte %d of a key is not sealed", i)
		}
	}
	claimed := &KeyProof{Signer: p.Signer, Signature: other.Prove(stream).Signature}
	if claimed.Holds(stream) || (&KeyProof{}).Holds(stream) || (&KeyProof{Signer: p.Signer}).Holds(stream) {
		t.Error("a proof without the private key holds")
	}
	var none *KeyProof
	if none.Holds(stream) || none.Sealed(key) || own.Prove(nil) != nil {
		t.Error("no proof counts as one")
	}
}
