package auth

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
)

// A certificate with which no stream would be made is refused at the start, and not by
// the handshakes of the others.
func TestTheOwnCertificateServesBothSides(t *testing.T) {
	ca := newAuthority(t)
	usages := func(u ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = u }
	}
	unknown := func(c *x509.Certificate) {
		c.ExtKeyUsage, c.UnknownExtKeyUsage = nil, append(c.UnknownExtKeyUsage, []int{1, 2, 3, 4})
	}
	good := ca.member("wardmote://test/n1")
	for name, row := range map[string]struct {
		change func(*x509.Certificate)
		lacks  string // "": nothing
	}{
		"both":              {usages(x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth), ""},
		"any":               {usages(x509.ExtKeyUsageAny), ""},
		"no limit":          {usages(), ""},
		"servers only":      {usages(x509.ExtKeyUsageServerAuth), "client authentication"},
		"clients only":      {usages(x509.ExtKeyUsageClientAuth), "server authentication"},
		"another purpose":   {usages(x509.ExtKeyUsageCodeSigning), "server authentication and client authentication"},
		"an unknown":        {unknown, "server authentication and client authentication"},
		"no signatures":     {func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }, ""},
		"signatures":        {func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }, ""},
		"no limit of usage": {func(c *x509.Certificate) { c.KeyUsage = 0 }, ""},
	} {
		cert := ca.issue("wardmote://test/n2", row.change)
		c := ca.certificates(&tls.Config{RootCAs: ca.roots, Certificates: []tls.Certificate{cert}})
		_, err := c.Own()
		if row.lacks == "" && err != nil || row.lacks != "" && (err == nil || !strings.HasSuffix(err.Error(), "lacks "+row.lacks)) {
			t.Errorf("%s: %v", name, err)
		}
		there, back := meet(t, good, c), meet(t, c, good)
		if works := there.ok() && back.ok(); works != (row.lacks == "") {
			t.Errorf("%s: handshakes succeed: %t", name, works)
		}
		// The user's own verification decides, if there is one.
		own := ca.certificates(&tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { return nil }, Certificates: []tls.Certificate{cert}})
		if _, err := own.Own(); err != nil {
			t.Errorf("%s, verified by the user: %v", name, err)
		}
	}
	// One certificate for each side.
	server := ca.issue("wardmote://test/n2", usages(x509.ExtKeyUsageServerAuth))
	client := ca.issue("wardmote://test/n2", usages(x509.ExtKeyUsageClientAuth))
	two := ca.certificates(&tls.Config{RootCAs: ca.roots,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &server, nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &client, nil },
	})
	if _, err := two.Own(); err != nil || !meet(t, good, two).ok() || !meet(t, two, good).ok() {
		t.Errorf("one for each side: %v", err)
	}
}
