package cluster

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// place is a made-up host.
type place struct {
	names      map[string][]string // addresses by entry of Join; other names do not resolve
	routes     map[string]string   // by prefix
	interfaces []string
}

func (p place) surroundings() surroundings {
	return surroundings{
		lookup: func(ctx context.Context, entry string) ([]string, error) {
			if _, err := netip.ParseAddrPort(entry); err == nil {
				return []string{entry}, nil
			}
			if addrs := p.names[entry]; addrs != nil {
				return addrs, nil
			}
			if entry == "slow.example:7000" {
				<-ctx.Done()
			}
			return nil, errors.New("no such host")
		},
		route: func(to netip.Addr) (netip.Addr, bool) {
			best, from := -1, netip.Addr{}
			for prefix, addr := range p.routes {
				if p := netip.MustParsePrefix(prefix); p.Contains(to) && p.Bits() > best {
					best, from = p.Bits(), netip.MustParseAddr(addr)
				}
			}
			return from, best >= 0
		},
		interfaces: func() (out []netip.Addr) {
			for _, a := range p.interfaces {
				out = append(out, netip.MustParseAddr(a))
			}
			return out
		},
	}
}

func TestTheAdvertisedAddressIsChosen(t *testing.T) {
	pod := place{
		names:      map[string][]string{"localhost:7000": {"127.0.0.1:7000", "[::1]:7000"}, "a.example:7000": {"10.1.0.1:7000"}, "mixed:7000": {"127.0.0.1:7000", "10.1.0.1:7000"}},
		routes:     map[string]string{"127.0.0.0/8": "127.0.0.1", "0.0.0.0/0": "192.168.0.5", "10.1.0.0/16": "10.1.0.5"},
		interfaces: []string{"127.0.0.1", "::1", "fe80::5", "192.168.0.5", "10.1.0.5"},
	}
	with := func(p place, change func(*place)) place { change(&p); return p }
	routeless := with(pod, func(p *place) { p.routes = nil })
	six := place{routes: map[string]string{"2000::/3": "2a00::5"}, interfaces: []string{"::1", "2a00::5"}}
	lonely := place{names: pod.names, routes: map[string]string{"127.0.0.0/8": "127.0.0.1"}, interfaces: []string{"127.0.0.1", "::1", "fe80::5"}}
	for _, tt := range []struct {
		at          place
		bound       string
		set         string // Advertise
		join        string
		want, fails string // fails: the ConfigError's field
	}{
		// Named addresses are taken as they are.
		{at: pod, bound: "127.0.0.1:4711", want: "127.0.0.1:4711"},
		{at: pod, bound: "10.1.0.5:4711", join: "localhost:7000", want: "10.1.0.5:4711"},
		{at: pod, bound: "[::]:7000", set: "192.0.2.1:7001", want: "192.0.2.1:7001"},
		{at: pod, bound: "0.0.0.0:4711", set: "192.0.2.1:0", want: "192.0.2.1:4711"},
		// The route to the first address of Join beyond loopback.
		{at: pod, bound: "[::]:7000", join: "10.1.0.9:7000", want: "10.1.0.5:7000"},
		{at: pod, bound: "0.0.0.0:7000", join: "a.example:7000", want: "10.1.0.5:7000"},
		{at: pod, bound: "[::]:7000", join: "172.16.0.1:7000 10.1.0.9:7000", want: "192.168.0.5:7000"},
		{at: pod, bound: "[::]:7000", join: "localhost:7000 none.example:7000 a.example:7000", want: "10.1.0.5:7000"},
		{at: pod, bound: "[::]:7000", join: "mixed:7000", want: "10.1.0.5:7000"},
		{at: pod, bound: "[::]:7000", join: "[::ffff:10.1.0.9]:7000", want: "10.1.0.5:7000"},
		// Else the default route, then an interface.
		{at: pod, bound: "[::]:7000", want: "192.168.0.5:7000"},
		{at: pod, bound: "[::]:7000", join: "none.example:7000", want: "192.168.0.5:7000"},
		{at: pod, bound: "[::]:7000", join: "localhost:7000", want: "192.168.0.5:7000"},
		{at: pod, bound: "[::]:7000", join: "127.0.0.1:7001", want: "192.168.0.5:7000"},
		{at: six, bound: "[::]:7000", want: "[2a00::5]:7000"},
		{at: routeless, bound: "[::]:7000", join: "none.example:7000", want: "192.168.0.5:7000"},
		{at: routeless, bound: "[::]:7000", join: "10.1.0.9:7000", want: "192.168.0.5:7000"},
		// Loopback comes last, and for loopback alone.
		{at: lonely, bound: "[::]:7000", want: "127.0.0.1:7000"},
		{at: lonely, bound: "[::]:7000", join: "localhost:7000 127.0.0.1:7001", want: "127.0.0.1:7000"},
		{at: lonely, bound: "[::]:7000", join: "localhost:7000 none.example:7000", fails: "Config.Advertise"},
		{at: lonely, bound: "[::]:7000", join: "mixed:7000", fails: "Config.Advertise"},
		{at: lonely, bound: "[::]:7000", join: "10.1.0.9:7000", fails: "Config.Advertise"},
	} {
		cfg := Config{Advertise: tt.set, Join: strings.Fields(tt.join)}
		got, err := cfg.advertise(t.Context(), tt.bound, tt.at.surroundings())
		var bad *ConfigError
		switch {
		case tt.fails != "":
			if !errors.As(err, &bad) || bad.Field != tt.fails {
				t.Errorf("%+v: %q, %v", tt, got, err)
			}
		case got != tt.want || err != nil:
			t.Errorf("%+v: %q, %v", tt, got, err)
		}
	}
}

// Names that do not resolve cost two seconds in all, and never the start.
func TestNamesWithoutAddressesAreNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		cfg := Config{Join: []string{"slow.example:7000", "slow.example:7000", "none.example:7000"}}
		at := place{routes: map[string]string{"0.0.0.0/0": "192.168.0.5"}}
		got, err := cfg.advertise(t.Context(), "[::]:7000", at.surroundings())
		if took := time.Since(began); got != "192.168.0.5:7000" || err != nil || took > timing.Resolve {
			t.Errorf("%q, %v after %v", got, err, took)
		}
	})
}

func TestTheDefaultNameIsTheAddress(t *testing.T) {
	at := place{routes: map[string]string{"0.0.0.0/0": "10.0.0.7"}}.surroundings()
	six := place{interfaces: []string{"fd00::7"}}.surroundings()
	for _, tt := range []struct {
		cfg                  Config
		at                   surroundings
		name, prefix, advert string
	}{
		{cfg: Config{Name: "own", Bind: ":7000"}, at: at, name: "own"},
		{cfg: Config{Bind: ":7000"}, at: at, name: "10.0.0.7-7000", advert: "10.0.0.7:7000"},
		{cfg: Config{Bind: ":7000"}, at: six, name: "fd00--7-7000", advert: "[fd00::7]:7000"},
		{cfg: Config{Bind: ":7000", Advertise: "192.0.2.1:7000"}, at: at, name: "192.0.2.1-7000", advert: "192.0.2.1:7000"},
		{cfg: Config{Bind: "127.0.0.1:7000"}, at: at, name: "127.0.0.1-7000", advert: "127.0.0.1:7000"},
		{cfg: Config{Bind: "localhost:7000"}, at: at, name: "localhost-7000"},
		{cfg: Config{Bind: ":0"}, at: at, prefix: defaultName()[:3]},
	} {
		tt.cfg.Security.Insecure, tt.cfg.InitialSize = true, 1
		cfg, err := tt.cfg.withDefaults()
		if err == nil {
			err = cfg.setName(t.Context(), tt.at)
		}
		if err != nil || tt.prefix == "" && cfg.Name != tt.name || !strings.HasPrefix(cfg.Name, tt.prefix) || cfg.Advertise != tt.advert {
			t.Errorf("%v: %q at %q, %v", tt.cfg, cfg.Name, cfg.Advertise, err)
		}
	}
}

// A wildcard with a name that nobody knows: the member starts, and is named by its
// address. A Dir keeps the name when the address changes.
func TestAMemberStartsBeforeItsNameResolves(t *testing.T) {
	t.Parallel() // waits for the disk
	cfg := Config{Bind: ":0", Security: Security{Insecure: true}, InitialSize: 3, Join: []string{"wardmote.invalid:7000"}}
	n, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	addr := n.Addr()
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	cfg.Bind, cfg.Dir = addr, t.TempDir()
	for range 2 {
		if n, err = Start(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if n.Name() != nameAt(addr) {
			t.Errorf("%q at %q", n.Name(), addr)
		}
		if err := n.Stop(); err != nil {
			t.Fatal(err)
		}
		cfg.Bind = "127.0.0.1:0"
	}
}
