package testaddr

import (
	"net"
	"runtime"
	"testing"
)

// Every host of Linux is another one, and takes processes at the address that Free has
// found.
func TestHostsAreApart(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for range 100 {
		host := Host()
		if seen[host] && runtime.GOOS == "linux" {
			t.Errorf("%s again", host)
		}
		seen[host] = true
		addr, err := Free(host, nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
}

// Addresses that a test has already chosen are not chosen again.
func TestFreeLeavesOutWhatIsTaken(t *testing.T) {
	t.Parallel()
	host := Host()
	var taken []string
	for range 50 {
		addr, err := Free(host, taken)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range taken {
			if addr == other {
				t.Fatalf("%s again", addr)
			}
		}
		taken = append(taken, addr)
	}
	if _, err := Free("no address", nil); err == nil {
		t.Error("a host that does not exist has an address")
	}
}
