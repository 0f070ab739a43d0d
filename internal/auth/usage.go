package auth

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"
)

// serves returns why the others would refuse this member for the extended key usages of
// its certificates, or nil. A member dials and is dialled, so it shows a certificate as
// a server and as a client. Both sides show leaf unless GetClientCertificate has
// another one.
//
// The key usage "digital signature" does not count: package tls takes a certificate
// without. Where the user's own functions verify in place of package x509, the usages
// are theirs to judge.
func (c *Certificates) serves(leaf *x509.Certificate, hello *tls.ClientHelloInfo) error {
	if c.user.InsecureSkipVerify {
		return nil
	}
	client := leaf
	if c.user.GetClientCertificate != nil {
		dialling := c.user.Clone()
		dialling.GetCertificate = nil
		cert, err := own(dialling, hello)
		if err != nil {
			return err
		}
		if client, err = leafOf(cert); err != nil {
			return err
		}
	}
	var lacks []string
	if !allows(leaf, x509.ExtKeyUsageServerAuth) {
		lacks = append(lacks, "server authentication")
	}
	if !allows(client, x509.ExtKeyUsageClientAuth) {
		lacks = append(lacks, "client authentication")
	}
	if lacks == nil {
		return nil
	}
	return refuse("its certificate is for both sides of a connection, and its extended key usage lacks " + strings.Join(lacks, " and "))
}

// allows reports whether a certificate may be used for a purpose. A certificate without
// extended key usages may be used for all.
func allows(leaf *x509.Certificate, usage x509.ExtKeyUsage) bool {
	return len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) == 0 ||
		slices.Contains(leaf.ExtKeyUsage, usage) || slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny)
}
