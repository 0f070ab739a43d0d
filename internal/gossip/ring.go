package gossip

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"sync/atomic"
)

// maxKeys bounds a ring: each garbage packet costs one attempt per key.
const maxKeys = 8

// sealed is the first byte of sealed bytes, and leaves room for another cipher.
const sealed = 1

// sealOverhead is the growth of a packet by seal: first byte, nonce and tag.
const sealOverhead = 1 + 12 + 16

// ring seals and opens packets and messages by AES-GCM, with a random nonce each.
// The newest key seals, every key opens. A ring without keys leaves the bytes plain.
//
// Not memberlist's Keyring: memberlist queues a packet before decrypting it, so
// garbage would displace honest packets; it makes a cipher for each packet and key;
// and it decrypts a stream only after taking 20 MiB of it.
type ring struct {
	packets, messages []byte // authenticated beside the bytes: another cluster's, and packets as messages, do not open
	keys              atomic.Pointer[[]cipher.AEAD]
}

// newRing returns the ring of a cluster. It fails if a key is not of 16, 24 or 32
// bytes, or if there are too many.
func newRing(cluster string, keys [][]byte) (*ring, error) {
	r := &ring{packets: []byte("wardmote gossip packet/1 " + cluster), messages: []byte("wardmote gossip message/1 " + cluster)}
	return r, r.install(keys)
}

// install replaces all keys at once, the newest first. If install fails, the ring is
// as before.
func (r *ring) install(keys [][]byte) error {
	if len(keys) > maxKeys {
		return fmt.Errorf("%d keys exceed the limit of %d", len(keys), maxKeys)
	}
	var ciphers []cipher.AEAD
	for _, key := range keys {
		block, err := aes.NewCipher(key)
		if err != nil {
			return err
		}
		c, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return err
		}
		ciphers = append(ciphers, c)
	}
	r.keys.Store(&ciphers)
	return nil
}

// plain reports whether there is no key.
func (r *ring) plain() bool { return len(*r.keys.Load()) == 0 }

// seal appends b, sealed by the newest key, to dst. As is r.packets or r.messages.
func (r *ring) seal(dst, b, as []byte) []byte {
	keys := *r.keys.Load()
	if len(keys) == 0 {
		return append(dst, b...)
	}
	return keys[0].Seal(append(dst, sealed), nil, b, as)
}

var errSealed = errors.New("no key opens it")

// open returns the bytes that seal, with the same as, has sealed into b.
func (r *ring) open(b, as []byte) ([]byte, error) {
	keys := *r.keys.Load()
	if len(keys) == 0 {
		return b, nil
	}
	if len(b) < sealOverhead || b[0] != sealed {
		return nil, errSealed
	}
	room := make([]byte, 0, len(b)) // for each attempt
	for _, c := range keys {
		if plain, err := c.Open(room, nil, b[1:], as); err == nil {
			return plain, nil
		}
	}
	return nil, errSealed
}
