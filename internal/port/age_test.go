package port

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/auth"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/transport"
)

// pair opens two ports with connections of the greatest age, and a connection from
// the first to the second.
func pair(t *testing.T, age time.Duration) (a, b *Port, c, accepted *Conn) {
	t.Helper()
	w := memoryWorld(transport.NewMemory(1))
	aged := func(cfg *Config) { cfg.Age = age }
	a, b = w.open(t, 1, aged), w.open(t, 2, aged)
	reached := make(chan *Conn, 1)
	b.Handle(KindMember, func(c *Conn) { reached <- c; echo(c) })
	b.Serve()
	c, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
	if err != nil {
		t.Fatal(err)
	}
	check(t, talk(c)) // a silent connection has another end
	check(t, talk(c)) // a connection without a byte would end for that
	return a, b, c, <-reached
}

// ended waits for the end of c and returns the time until then.
func ended(c *Conn, since time.Time) time.Duration {
	_, _ = io.Copy(io.Discard, c)
	return time.Since(since)
}

func TestConnectionIsRenewedBeforeItEnds(t *testing.T) {
	for _, age := range []time.Duration{timing.StreamAge, time.Minute, 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			_, _, c, accepted := pair(t, age)
			<-c.Renew()
			renewed := time.Since(begun)
			check(t, talk(c)) // the owner has time to move
			select {
			case <-accepted.Renew():
				t.Error("the accepting side's end comes first")
			default:
			}
			end := ended(c, begun)
			if end < age*3/4 || end > age*7/8 {
				t.Errorf("age %v: ended after %v", age, end)
			}
			if grace := end - renewed; grace != min(timing.RenewWithin, end/2) {
				t.Errorf("age %v: %v to be replaced", age, grace)
			}
		})
	}
}

// A dialling side that renews nothing is cut by the accepting side.
func TestAcceptingSideEndsAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		a, _, c, accepted := pair(t, time.Minute)
		a.mu.Lock()
		a.stopAge(c)
		a.mu.Unlock()
		<-accepted.Renew()
		if end := ended(c, begun); end != time.Minute {
			t.Errorf("ended after %v", end)
		}
	})
}

func TestExpireRenewsTheConnectionsOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c, _ := pair(t, timing.StreamAge)
		other, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
		if err != nil {
			t.Fatal(err)
		}
		check(t, talk(other))
		check(t, talk(other))
		c.Proved.Key, other.Proved.Key = auth.KeyID{1}, auth.KeyID{2}
		begun := time.Now()
		a.Expire(auth.KeyID{1})
		<-c.Renew()
		if time.Since(begun) != 0 {
			t.Error("told late")
		}
		if end := ended(c, begun); end != timing.RenewWithin {
			t.Errorf("ended after %v", end)
		}
		check(t, talk(other))
		select {
		case <-other.Renew():
			t.Error("the connection of another key is renewed")
		default:
		}
	})
}

// Every timer ends with its connection, else the Port could not close.
func TestCloseStopsTheAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c, _ := pair(t, time.Minute)
		begun := time.Now()
		a.renew(c)
		check(t, a.Close())
		check(t, b.Close())
		if time.Since(begun) != 0 {
			t.Errorf("Close took %v", time.Since(begun))
		}
	})
}
