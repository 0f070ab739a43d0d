package auth

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"
)

// scheme is the scheme of the URIs in certificates.
const scheme = "wardmote"

// NameAndRole returns the name and the role of a certificate's URI
// wardmote://cluster/name, for a voter, or wardmote://cluster/name?role=member. A
// certificate without exactly one such URI of this cluster is refused: a certificate
// of the same CA for another service, or for another cluster, proves nothing here.
func NameAndRole(leaf *x509.Certificate, cluster string) (name string, voter bool, err error) {
	var own *url.URL
	for _, u := range leaf.URIs {
		if u.Scheme != scheme || u.Host != cluster {
			continue
		}
		if own != nil {
			return "", false, fmt.Errorf("its certificate has two URIs of cluster %q", cluster)
		}
		own = u
	}
	if own == nil {
		return "", false, fmt.Errorf("its certificate has no URI %s://%s/name", scheme, cluster)
	}
	name = strings.TrimPrefix(own.Path, "/")
	if name == "" || strings.Contains(name, "/") || own.User != nil || own.Fragment != "" {
		return "", false, fmt.Errorf("its certificate's URI %q is not %s://%s/name", own, scheme, cluster)
	}
	switch own.RawQuery {
	case "", "role=voter":
		return name, true, nil
	case "role=member":
		return name, false, nil
	}
	return "", false, fmt.Errorf("its certificate's URI %q has an unknown role", own)
}
