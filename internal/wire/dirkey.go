package wire

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/wardmote/wardmote/internal/machine"
)

// A DirSeed is the private key that a member keeps in its directory. The methods of fmt
// print no byte of the seed.
type DirSeed []byte

// NewDirSeed draws a seed.
func NewDirSeed() DirSeed { return random32() }

// Format prints no byte of the seed, for every verb.
func (s DirSeed) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "key of a directory") }

// Key returns the key pair of the seed; nil, which stands for no directory, if the seed has
// another length.
func (s DirSeed) Key() *DirKey {
	if len(s) != ed25519.SeedSize {
		return nil
	}
	private := ed25519.NewKeyFromSeed(s)
	return &DirKey{private, private.Public().(ed25519.PublicKey)}
}

// A DirKey shows that a process has a directory. The sessions of the process carry the
// key's ID, and a later process with the directory proves to have the key before it has
// those sessions ended: see machine.Forget. The name of a member proves no directory: where
// members share a secret or a certificate, each of them can take any name.
//
// As with a KeyProof, a leader that is shown a DirProof, true or false, learns nothing of
// use on another stream. A nil DirKey has the zero ID, which no Forget can name.
type DirKey struct {
	private ed25519.PrivateKey
	public  ed25519.PublicKey
}

// ID names the directory.
func (k *DirKey) ID() (id machine.DirID) {
	if k == nil {
		return id
	}
	return dirID(k.public)
}

// Prove returns the proof for a stream with the given binding. Without a binding, on a
// stream without TLS, the public key alone is the proof: everybody who reaches the port may
// do everything there, and the key keeps mistakes apart.
func (k *DirKey) Prove(binding []byte) *DirProof {
	switch {
	case k == nil:
		return nil
	case binding == nil:
		return &DirProof{Key: k.public}
	}
	return &DirProof{Key: k.public, Signature: ed25519.Sign(k.private, dirText(binding))}
}

// DirProof proves that a stream's process has the key of a directory.
type DirProof struct {
	Key       []byte // Ed25519 public key
	Signature []byte // of the stream's binding; none without TLS
}

// Holds reports whether the proof was made for the stream with the binding.
func (p *DirProof) Holds(binding []byte) bool {
	return p != nil && len(p.Key) == ed25519.PublicKeySize && (binding == nil || ed25519.Verify(p.Key, dirText(binding), p.Signature))
}

// ID names the directory of the proof's key.
func (p *DirProof) ID() machine.DirID { return dirID(p.Key) }

func dirID(public []byte) machine.DirID {
	h := sha256.New()
	h.Write([]byte("wardmote directory"))
	h.Write(public)
	return machine.DirID(h.Sum(nil)[:len(machine.DirID{})])
}

// dirText is the signed text for a stream: see provedText.
func dirText(binding []byte) []byte {
	return append([]byte("wardmote: this stream's process has the directory of the signer\x00"), binding...)
}
