package wire

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"

	"github.com/wardmote/wardmote/internal/machine"
)

// A KeySigner seals the session keys of one process. The second half of a sealed key is
// a hash of the signer's public key and the first half. So a shown key is of use only on
// a stream with a KeyProof of the same signer, and a KeyProof is of use only on the TLS
// stream for which the proof was made: a leader, true or false, learns nothing by which
// it could act for the session elsewhere.
//
// One signature for each stream covers any number of keys.
type KeySigner struct {
	private ed25519.PrivateKey
	public  ed25519.PublicKey
}

// NewKeySigner returns a signer with a fresh private key, which stays in memory.
func NewKeySigner() *KeySigner {
	private := ed25519.NewKeyFromSeed(random32())
	return &KeySigner{private, private.Public().(ed25519.PublicKey)}
}

func random32() []byte {
	b := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(b) // never fails
	return b
}

// NewKey draws a session key.
func (s *KeySigner) NewKey() machine.SessionKey { return s.Key([16]byte(random32())) }

// Key seals a session key of the given bytes, which no two keys may share.
func (s *KeySigner) Key(random [16]byte) (key machine.SessionKey) {
	copy(key[:], random[:])
	seal := sealOf(s.public, key)
	copy(key[sealed:], seal[:])
	return key
}

// Prove returns the proof for a stream with the given binding; nil for a stream without
// a binding, which needs no proof.
func (s *KeySigner) Prove(binding []byte) *KeyProof {
	if binding == nil {
		return nil
	}
	return &KeyProof{Signer: s.public, Signature: ed25519.Sign(s.private, provedText(binding))}
}

// KeyProof proves that a stream's process has the private key of a KeySigner.
type KeyProof struct {
	Signer    []byte // Ed25519 public key
	Signature []byte // of the stream's binding
}

// Holds reports whether the proof was made for the stream with the binding.
func (p *KeyProof) Holds(binding []byte) bool {
	return p != nil && len(p.Signer) == ed25519.PublicKeySize && ed25519.Verify(p.Signer, provedText(binding), p.Signature)
}

// Sealed reports whether the signer of the proof has sealed the key. A nil proof has
// sealed nothing.
func (p *KeyProof) Sealed(key machine.SessionKey) bool {
	if p == nil {
		return false
	}
	seal := sealOf(p.Signer, key)
	return subtle.ConstantTimeCompare(seal[:], key[sealed:]) == 1
}

// sealed is the number of random bytes at the begin of a key.
const sealed = 16

func sealOf(signer []byte, key machine.SessionKey) (seal [sealed]byte) {
	h := sha256.New()
	h.Write([]byte("wardmote session key"))
	h.Write(signer)
	h.Write(key[:sealed])
	copy(seal[:], h.Sum(nil))
	return seal
}

// provedText is the signed text for a stream. The label keeps the signature apart from
// the signatures of other protocols.
func provedText(binding []byte) []byte {
	return append([]byte("wardmote: this stream acts for the sessions of the signer\x00"), binding...)
}
