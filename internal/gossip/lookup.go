package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/wardmote/wardmote/internal/member"
)

// Lookup finds the addresses behind the entries of Join.
type Lookup struct {
	// User replaces the host's resolver. nil: the host's resolver.
	User func(ctx context.Context, host string) ([]string, error)

	host hostResolver // nil: net.DefaultResolver; tests
}

// hostResolver is the part of *net.Resolver that a Lookup needs.
type hostResolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// maxTargets bounds the targets of SRV records that are looked up at a time.
const maxTargets = 16

// CheckEntry returns why an entry of Join cannot be used, or nil. With named set a
// Lookup.User is there: an entry may then be any name, and the ports come from User.
func CheckEntry(entry string, named bool) error {
	host, port, err := member.SplitAddr(entry)
	whole := err != nil && !strings.Contains(entry, ":")
	switch {
	case strings.HasPrefix(entry, "_") && !whole:
		return fmt.Errorf("%q has a port, and the ports of an SRV name stand in its records", entry)
	case whole && strings.HasPrefix(entry, "_"), whole && named && entry != "" && net.ParseIP(entry) == nil:
		return nil
	case err != nil:
		return err
	case host == "" || port == 0:
		return fmt.Errorf("%q needs a host and a port", entry)
	}
	return nil
}

// Addresses returns the host:port addresses behind an entry of Join, each with an
// IP address. An IP address with a port is its own address; a name that begins with
// '_' is looked up as SRV, and every other name as a host. Results beside an error
// are a part of the answer. Addresses blocks until ctx ends at most.
func (l Lookup) Addresses(ctx context.Context, entry string) ([]string, error) {
	host, port, err := net.SplitHostPort(entry)
	if err != nil {
		host, port = entry, ""
	}
	switch {
	case net.ParseIP(host) != nil:
		return []string{entry}, nil
	case l.User != nil:
		found, err := l.User(ctx, host)
		if err != nil {
			return nil, err
		}
		return withPorts(found, port)
	case strings.HasPrefix(host, "_"):
		return l.service(ctx, host)
	}
	ips, err := l.resolver().LookupHost(ctx, host)
	return withPort(ips, port), err
}

func (l Lookup) resolver() hostResolver {
	if l.host != nil {
		return l.host
	}
	return net.DefaultResolver
}

// service looks up the targets of SRV records. The records' priorities and weights
// say nothing about members, and are not used.
func (l Lookup) service(ctx context.Context, name string) ([]string, error) {
	_, records, err := l.resolver().LookupSRV(ctx, "", "", name)
	found, errs := make([][]string, len(records)), make([]error, len(records))
	free := make(chan struct{}, maxTargets)
	var wg sync.WaitGroup
	for i, r := range records {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			var ips []string
			ips, errs[i] = l.resolver().LookupHost(ctx, strings.TrimSuffix(r.Target, "."))
			found[i] = withPort(ips, strconv.Itoa(int(r.Port)))
		})
	}
	wg.Wait()
	var out []string
	for _, addrs := range found {
		out = append(out, addrs...)
	}
	return out, errors.Join(append(errs, err)...)
}

func withPort(ips []string, port string) (out []string) {
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip, port))
	}
	return out
}

// withPorts checks the results of a user's resolver: IP addresses, which get the
// port, and host:port addresses.
func withPorts(found []string, port string) (out []string, err error) {
	for _, f := range found {
		addr := f
		if net.ParseIP(f) != nil {
			addr = net.JoinHostPort(f, port)
		}
		host, number, bad := member.SplitAddr(addr)
		if bad != nil || number == 0 || net.ParseIP(host) == nil {
			err = fmt.Errorf("the Resolver returned %q, which is no IP address with a port", f)
			continue
		}
		out = append(out, addr)
	}
	return out, err
}
