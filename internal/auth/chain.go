package auth

import (
	"crypto/x509"
	"slices"
	"time"
)

// maxShown is the largest number of certificates that one side of a handshake may show:
// its own, and the intermediate ones up to a root. Chains in use have two to four.
const maxShown = 8

// proven returns the intermediate certificates of a handshake that rest on the roots,
// for x509's search of a chain.
//
// The search goes up from the leaf and tries up to 100 signatures, under the keys that
// the other side shows: seven certificates with one subject and one key, each with
// another alternative name, are enough for all 100. A signature under a key of P-521 takes
// 20 times as long to check as one of P-256, so a stranger's handshake would cost as much
// as 200 honest ones. Hence this way down from the roots: each certificate is checked
// under the keys of the roots, and of the certificates that have passed before. Nobody
// chooses these keys but the user's own authorities, and a stranger costs one signature
// for each certificate shown and each root of its issuer's name.
//
// The last certificate is looked at first: chains are shown from the leaf up. For chains
// in disorder the rest is looked at again while certificates pass.
func proven(roots *x509.CertPool, shown []*x509.Certificate, at time.Time) *x509.CertPool {
	pool := x509.NewCertPool()
	options := x509.VerifyOptions{Roots: roots.Clone(), CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	left := slices.DeleteFunc(slices.Clone(shown), func(c *x509.Certificate) bool { return !c.BasicConstraintsValid || !c.IsCA })
	for passed := true; passed; {
		passed = false
		for i := len(left) - 1; i >= 0; i-- {
			if _, err := left[i].Verify(options); err != nil {
				continue
			}
			pool.AddCert(left[i])
			options.Roots.AddCert(left[i])
			left = slices.Delete(left, i, i+1)
			passed = true
		}
	}
	return pool
}
