package wire

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"testing"

	"github.com/wardmote/wardmote/internal/machine"
)

func TestADirProofIsForItsStreamAndItsDirectory(t *testing.T) {
	seed := NewDirSeed()
	own, other := seed.Key(), NewDirSeed().Key()
	stream, elsewhere := []byte("this stream"), []byte("another stream")
	p := own.Prove(stream)
	if !p.Holds(stream) || p.ID() != own.ID() || p.ID() == other.ID() || p.ID() == (machine.DirID{}) {
		t.Error("the proof does not hold for its stream and directory")
	}
	if again := seed.Key(); again.ID() != own.ID() || !again.Prove(stream).Holds(stream) {
		t.Error("the seed makes another key")
	}
	signature := own.Prove(stream).Signature
	session := &KeySigner{own.private, own.public} // a signature with the same key, for another use
	for name, p := range map[string]*DirProof{
		"made for another stream":         own.Prove(elsewhere),
		"of a stream without TLS":         own.Prove(nil),
		"by another's signature":          {Key: own.public, Signature: other.Prove(stream).Signature},
		"of another's key":                {Key: other.public, Signature: signature},
		"that proves session keys":        {Key: own.public, Signature: session.Prove(stream).Signature},
		"without a key":                   {Signature: signature},
		"with a key of another length":    {Key: own.public[:ed25519.PublicKeySize-1], Signature: signature},
		"that is nothing":                 {},
		"that is missing":                 nil,
		"with a signature cut to nothing": {Key: own.public, Signature: []byte{}},
	} {
		if p.Holds(stream) {
			t.Errorf("a proof %s holds", name)
		}
	}
	if !own.Prove(nil).Holds(nil) || (&DirProof{}).Holds(nil) {
		t.Error("without TLS the key is the proof")
	}
	if proves := (&KeyProof{Signer: own.public, Signature: signature}); proves.Holds(stream) {
		t.Error("a proof of a directory proves session keys")
	}
}

func TestNoDirectoryProvesNothing(t *testing.T) {
	for _, seed := range []DirSeed{nil, {}, make([]byte, ed25519.SeedSize-1), make([]byte, ed25519.SeedSize+1)} {
		if k := seed.Key(); k != nil || k.ID() != (machine.DirID{}) || k.Prove([]byte("stream")) != nil || k.Prove(nil) != nil {
			t.Errorf("a seed of %d bytes makes a key", len(seed))
		}
	}
}

func TestADirSeedIsNotPrinted(t *testing.T) {
	seed := DirSeed(bytes.Repeat([]byte("SEED"), 8))
	record := struct{ Seed DirSeed }{seed}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
		for _, v := range []any{seed, record, &record} {
			if got := fmt.Sprintf(verb, v); bytes.Contains([]byte(got), []byte("SEED")) || bytes.Contains([]byte(got), []byte("53")) || bytes.Contains([]byte(got), []byte("83")) {
				t.Errorf("%s prints %s", verb, got)
			}
		}
	}
}
