package transport

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLinksAreCutAndHealedByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(1)
		w := memoryWorld(m)
		a, b := w.listen(t, 1), w.listen(t, 2)
		defer closeAll(a, b)
		trip := func(from, to Endpoint) time.Duration {
			start := time.Now()
			check(t, from.WriteTo([]byte("x"), to.Addr()))
			_, _, err := to.ReadFrom(make([]byte, 1))
			check(t, err)
			return time.Since(start)
		}
		m.SetLink("", "", Link{Delay: time.Minute})
		m.SetLink("10.0.0.1", "10.0.0.2", Link{Delay: time.Second})
		if there, back := trip(a, b), trip(b, a); there != time.Second || back != time.Minute {
			t.Errorf("there in %v, back in %v", there, back)
		}
		m.Cut("10.0.0.1", "10.0.0.2")
		check(t, a.WriteTo([]byte("swallowed"), b.Addr()))
		if back := trip(b, a); back != time.Minute {
			t.Errorf("one direction is cut, and the other takes %v", back)
		}
		m.Heal()
		if there := trip(a, b); there != time.Second {
			t.Errorf("after Heal there in %v", there)
		}
	})
}

func TestHostsAreNamedByAddress(t *testing.T) {
	m := NewMemory(1)
	for name, f := range map[string]func(){
		"Host":    func() { m.Host("node1") },
		"SetLink": func() { m.SetLink("10.0.0.1", "", Link{}) },
		"Cut":     func() { m.Cut("node1", "node2") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: a name passed as an address", name)
				}
			}()
			f()
		}()
	}
}
