package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/timing"
)

// hosts is a resolver: addresses by host, and SRV records by name.
type hosts struct {
	ips     map[string][]string
	records map[string][]*net.SRV
}

func (h hosts) LookupHost(_ context.Context, host string) ([]string, error) {
	if ips := h.ips[host]; ips != nil {
		return ips, nil
	}
	return nil, errors.New("no such host")
}

func (h hosts) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
	if r := h.records[service+proto+name]; r != nil {
		return name, r, nil
	}
	return "", nil, errors.New("no such service")
}

func TestEntriesOfJoinAreLookedUp(t *testing.T) {
	host := hosts{
		ips: map[string][]string{"a.example": {"10.0.0.1", "fd00::1"}, "b.example": {"10.0.0.2"}},
		records: map[string][]*net.SRV{
			"_wardmote._tcp.example": {{Target: "a.example.", Port: 7000}, {Target: "b.example.", Port: 7001}},
			"_partly._tcp.example":   {{Target: "b.example.", Port: 7001}, {Target: "c.example.", Port: 7002}},
		},
	}
	user := func(_ context.Context, host string) ([]string, error) {
		switch host {
		case "consul":
			return []string{"10.0.0.5:7005", "[fd00::5]:7005"}, nil
		case "ips":
			return []string{"10.0.0.6"}, nil
		case "names":
			return []string{"10.0.0.7:7000", "host.example:7000", "10.0.0.8:0"}, nil
		}
		return nil, errors.New("unknown")
	}
	for _, tt := range []struct {
		entry string
		user  bool
		want  string
		fails string
	}{
		{entry: "10.0.0.9:7000", want: "10.0.0.9:7000"},
		{entry: "[fd00::9]:7000", want: "[fd00::9]:7000"},
		{entry: "a.example:7000", want: "10.0.0.1:7000 [fd00::1]:7000"},
		{entry: "c.example:7000", fails: "no such host"},
		{entry: "_wardmote._tcp.example", want: "10.0.0.1:7000 [fd00::1]:7000 10.0.0.2:7001"},
		{entry: "_partly._tcp.example", want: "10.0.0.2:7001", fails: "no such host"}, // a part, and an error
		{entry: "_none._tcp.example", fails: "no such service"},
		{entry: "10.0.0.9:7000", user: true, want: "10.0.0.9:7000"},
		{entry: "consul", user: true, want: "10.0.0.5:7005 [fd00::5]:7005"},
		{entry: "ips:7006", user: true, want: "10.0.0.6:7006"},
		{entry: "ips", user: true, fails: "no IP address with a port"},
		{entry: "names", user: true, want: "10.0.0.7:7000", fails: "no IP address with a port"},
		{entry: "other:7000", user: true, fails: "unknown"},
	} {
		l := Lookup{host: host}
		if tt.user {
			l.User = user
		}
		got, err := l.Addresses(t.Context(), tt.entry)
		if strings.Join(got, " ") != tt.want || (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%s: %q, %v", tt.entry, got, err)
		}
	}
}

func TestEntriesOfJoinAreChecked(t *testing.T) {
	for _, tt := range []struct {
		entry string
		named bool
		why   string
	}{
		{entry: "10.0.0.1:7000"},
		{entry: "a.example:7000"},
		{entry: "_wardmote._tcp.example"},
		{entry: "_wardmote._tcp.example", named: true},
		{entry: "consul", named: true},
		{entry: "consul:7000", named: true},
		{entry: "_wardmote._tcp.example:7000", why: "stand in its records"},
		{entry: "a.example", why: "is not host:port"},
		{entry: "10.0.0.1", named: true, why: "is not host:port"},
		{entry: "", named: true, why: "is not host:port"},
		{entry: "fd00::1", named: true, why: "is not host:port"},
		{entry: ":7000", why: "needs a host and a port"},
		{entry: "a.example:0", why: "needs a host and a port"},
	} {
		err := CheckEntry(tt.entry, tt.named)
		if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%q with a resolver %v: %v", tt.entry, tt.named, err)
		}
	}
}

// refusedDial is the error of a dial that a member has answered.
type refusedDial struct {
	foreign bool
	why     string
}

func (r refusedDial) Error() string           { return "refused" }
func (r refusedDial) Refusal() (bool, string) { return r.foreign, r.why }

// Each address without a member is told with the answer of its last try, and each
// name with its addresses.
func TestTheTroubleOfEachAddressIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found := map[string][]string{
			"a.example:7000": {"10.0.0.1:7000", "10.0.0.2:7000"}, "own.example:7000": {self.Addr}, "empty.example:7000": {},
		}
		a := newAddresses(Config{
			Self: self, Port: bound("[::]:7000"), Peers: func() []string { return []string{"10.0.0.9:7000", "10.0.1.1:7000"} },
			Join: []string{"a.example:7000", "10.0.0.3:7000", "b.example:7000", "own.example:7000", "10.0.0.4:7000", "empty.example:7000"},
		})
		a.lookup = func(_ context.Context, entry string) ([]string, error) {
			if addrs, ok := found[entry]; ok {
				return addrs, nil
			}
			return nil, &net.DNSError{Err: "no such host", Name: entry}
		}
		check := func(want ...string) {
			t.Helper()
			if got := a.trouble(); !slices.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		check()
		a.list(t.Context())
		a.tried("10.0.0.1:7000", fmt.Errorf("dial: %w", errors.New("connection refused")))
		a.tried("10.0.0.2:7000", nil)
		a.tried("10.0.0.3:7000", fmt.Errorf("dial: %w", refusedDial{foreign: true, why: ", id 01020304"}))
		a.tried("10.0.0.4:7000", refusedDial{why: "other protocol version"})
		a.tried("10.0.1.1:7000", errUnread{errors.New("EOF")})
		names := []string{
			"a.example:7000 resolves to 10.0.0.1:7000, 10.0.0.2:7000",
			"b.example:7000 does not resolve: no such host",
			"own.example:7000 resolves to 10.0.0.9:7000",
			"empty.example:7000 resolves to nothing",
		}
		unread := "10.0.1.1:7000 answers, but its gossip cannot be read: are Security.Secrets the same?"
		check(names[0], "10.0.0.1:7000 does not answer: connection refused",
			"10.0.0.3:7000 answers as another cluster, id 01020304", names[1], names[2],
			"10.0.0.4:7000 refuses this member: other protocol version", names[3], unread)
		a.tried("10.0.0.1:7000", nil)
		a.tried("10.0.0.3:7000", nil)
		a.tried("10.0.0.4:7000", nil)
		check(append(names, unread)...)
		a.cfg.Peers = func() []string { return nil }
		a.list(t.Context())
		check(names...)
	})
}

// A name's list counts after three complete answers over a minute with this member's
// own address; the list is the union of the answers.
func TestAListIsCompleteAfterThreeAnswersOverAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var found []string
		var fails error
		a := newAddresses(Config{
			Self: self, Port: bound("[::]:7000"), Peers: func() []string { return nil },
			Join: []string{"name:7000", "10.0.0.9:7000"},
		})
		a.lookup = func(context.Context, string) ([]string, error) { return found, fails }
		look := func(err error, addrs ...string) {
			found, fails = addrs, err
			a.list(t.Context())
		}
		no := func(why string) {
			t.Helper()
			if addrs, ok, got := a.complete(); ok || addrs != nil || !strings.Contains(got, why) {
				t.Errorf("%v, %v, %q; want %q", addrs, ok, got, why)
			}
		}
		yes := func(want ...string) {
			t.Helper()
			if addrs, ok, why := a.complete(); !ok || why != "" || !slices.Equal(addrs, want) {
				t.Errorf("%v, %v, %q; want %v", addrs, ok, why, want)
			}
		}
		const one, two, three = "10.0.0.9:7000", "10.0.0.2:7000", "10.0.0.3:7000"
		no("not been looked up yet")
		look(nil, two, three)
		no("without this member's own address 10.0.0.9:7000")
		time.Sleep(20 * time.Second)
		look(nil)
		no("resolves to nothing")
		time.Sleep(20 * time.Second)
		look(nil, one, two)
		no("1 times over 0s")
		time.Sleep(30 * time.Second)
		look(errors.New("timeout"), one)
		time.Sleep(20 * time.Second)
		look(nil, two, three) // without the own address: says nothing
		time.Sleep(10 * time.Second)
		look(nil, one, two, three)
		no("2 times over 1m0s")
		time.Sleep(10 * time.Second)
		look(nil, one)
		yes(one, two, three)
		time.Sleep(timing.ListComplete)
		yes(one, two, three)
		time.Sleep(time.Second)
		look(errors.New("timeout"))
		no("no complete answer for 1m1s")
		for range 3 {
			time.Sleep(timing.ListComplete / 2)
			look(nil, one, three)
		}
		yes(one, three)
	})
}

func TestAListOfIPAddressesIsCompleteAtOnce(t *testing.T) {
	a := newAddresses(Config{Self: self, Port: bound("[::]:7000"), Join: []string{"10.0.0.2:7000", "10.0.0.9:7000"}})
	if addrs, ok, why := a.complete(); !ok || !slices.Equal(addrs, []string{"10.0.0.2:7000", "10.0.0.9:7000"}) {
		t.Errorf("%v, %v, %s", addrs, ok, why)
	}
	a.cfg.Join = a.cfg.Join[:1]
	if addrs, ok, why := a.complete(); ok || addrs != nil || why != "Join does not list this member's own address 10.0.0.9:7000" {
		t.Errorf("%v, %v, %s", addrs, ok, why)
	}
}

// A running node says which address has nobody, and which a member with another key.
func TestTriedNamesTheAddressesWithoutAMember(t *testing.T) {
	inTown(t, func(w *town) {
		key := func(b byte) func(*Config) {
			return func(c *Config) { keyed(slices.Repeat([]byte{b}, 32))(c); c.Join = append(c.Join, address("10.0.0.3")) }
		}
		n := w.start("10.0.0.1", "a", key(1))
		w.start("10.0.0.2", "b", key(2))
		time.Sleep(5 * time.Second)
		if got := n.Tried(); len(got) != 2 || !strings.HasPrefix(got[0], "10.0.0.2:7000 answers, but its gossip cannot be read") ||
			!strings.HasPrefix(got[1], "10.0.0.3:7000 does not answer: ") {
			t.Errorf("%q", got)
		}
		w.start("10.0.0.3", "c", key(1))
		n.enter(machine.ClusterID{1})
		time.Sleep(5 * time.Second)
		if got := n.Tried(); len(got) != 1 {
			t.Errorf("%q", got)
		}
		if addrs, ok, why := n.CompleteList(); !ok || len(addrs) != 3 {
			t.Errorf("%v, %v, %s", addrs, ok, why)
		}
	})
}
