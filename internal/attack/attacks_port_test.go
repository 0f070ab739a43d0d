package attack

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// portAttacks fill the port, or probe it.
var portAttacks = []attack{
	{name: "64 idle streams in another's name", lasts: true, quick: true, run: func(a *attacker) string {
		v := a.know.process(a.w.victim())
		for n := range 70 {
			_, err := a.dialFrom(a.w.leader(), n/16, hello{kind: kindMember, from: v})
			if err != nil {
				return gained(n >= 60, fmt.Sprintf("the member is locked out after %d", n))
			}
		}
		return ""
	}},
	{name: "4,200 silent streams", lasts: true, settle: time.Millisecond, run: func(a *attacker) string {
		n := a.fill(4200, func(n int) error {
			_, err := a.dialFrom(a.w.leader(), n/1000, hello{kind: kindControl, from: peer{fmt.Sprint("s", n/60), 7}})
			return err
		})
		if n < 64 {
			return ""
		}
		return a.honestStream()
	}},
	{name: "4,200 streams with reads that wait", lasts: true, settle: time.Millisecond, run: func(a *attacker) string {
		key := slices.Sorted(maps.Keys(a.w.held))[0]
		a.fill(4200, func(n int) error {
			t, err := a.dialFrom(a.w.leader(), n/1000, hello{kind: kindMember, from: peer{fmt.Sprint("s", n/60), 7}})
			if err != nil {
				return err
			}
			if f, err := t.call(wire.Attach, attachBody(nil, t.proof())); err != nil || f.Code != wire.CodeOK {
				return errors.Join(err, errors.New("not attached"))
			}
			f, err := t.call(wire.Read, wire.Marshal(&replica.Query{Key: key}))
			var now replica.Answer
			if err != nil || f.Code != wire.CodeOK || wire.Unmarshal(f.Body, &now) != nil {
				return errors.Join(err, errors.New("no answer"))
			}
			var out []byte
			for range 200 {
				t.ids++
				out, _ = wire.AppendFrame(out, wire.Frame{Type: wire.Read, ID: t.ids, Body: wire.Marshal(&replica.Query{Key: key, Version: now.Version})})
			}
			_, err = t.Write(out)
			return err
		})
		return "" // a newcomer finds no place then, and members do
	}},
	{name: "16,384 session keys on each of 250 streams", lasts: true, settle: time.Millisecond, run: func(a *attacker) string {
		keys := make([]sessionKey, wire.MaxAttach)
		for i := range keys {
			keys[i], _ = newSession()
		}
		a.fill(250, func(n int) error {
			t, err := a.dialFrom(a.w.leader(), n/100, hello{kind: kindMember, from: peer{fmt.Sprint("s", n/10), 7}})
			if err != nil {
				if t, err = a.dialFrom(a.w.leader(), n/100, hello{kind: kindMember}); err != nil {
					return err
				}
			}
			_, err = t.call(wire.Attach, attachBody(nil, t.proof(), keys...))
			return err
		})
		return "" // a stream of the attacker's own name may find no place then
	}},
	{name: "10,000 half-open connections", lasts: true, settle: 300 * time.Millisecond, packet: true, run: func(a *attacker) string {
		a.fill(10_000, func(n int) error {
			_, err := a.raw(a.w.leader(), n/1000)
			return err
		})
		return a.honestStream()
	}},
	{name: "questions that wait for a round", settle: 300 * time.Millisecond, run: func(a *attacker) string {
		a.question(func() (*talk, error) { return a.control(a.w.leader(), peer{}) },
			wire.Vouch, wire.Marshal(&wire.VouchRequest{Cluster: a.know.cluster}))
		member := func() (*talk, error) { return a.session(peer{}) }
		a.question(member, wire.Read, wire.Marshal(&replica.Query{Key: "nobody's"}))
		a.question(member, wire.Summarize, nil)
		return ""
	}},
	{name: "questions whose answers nobody reads", lasts: true, settle: 300 * time.Millisecond, run: func(a *attacker) string {
		for range 64 {
			t, err := a.control(a.w.leader(), peer{})
			if err != nil {
				return ""
			}
			_ = t.SetWriteDeadline(time.Now().Add(callWithin))
			var out []byte
			for range 20_000 {
				t.ids++
				out, _ = wire.AppendFrame(out, wire.Frame{Type: wire.Who, ID: t.ids})
			}
			_, _ = t.Write(out)
		}
		return ""
	}},
	{name: "frames of 4 GiB", lasts: true, settle: 300 * time.Millisecond, run: func(a *attacker) string {
		for range 50 {
			t, err := a.control(a.w.victim(), peer{})
			if err != nil {
				return ""
			}
			_ = t.SetWriteDeadline(time.Now().Add(callWithin))
			_, _ = t.Write(append([]byte{0xff, 0xff, 0xff, 0xff}, make([]byte, 1<<20)...))
		}
		return ""
	}},
	{name: "frames of 1 MiB, byte by byte", lasts: true, settle: time.Millisecond, run: func(a *attacker) string {
		var all []*talk
		for n := range 200 {
			t, err := a.dialFrom(a.w.victim(), n/60, hello{kind: kindControl, from: peer{fmt.Sprint("d", n/40), 7}})
			if err != nil {
				break
			}
			_, _ = t.Write([]byte{0, 0x10, 0, 0})
			all = append(all, t)
		}
		for range min(len(all), 20) {
			for _, t := range all {
				_, _ = t.Write([]byte{0x94})
			}
			time.Sleep(20 * time.Millisecond)
		}
		return ""
	}},
	{name: "garbage at the port", quick: true, packet: true, settle: 100 * time.Millisecond, run: func(a *attacker) string {
		starts := [][]byte{[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), {0x16, 3, 1, 0xff, 0xff}, []byte("wmt1"), []byte("wmt1\x02"),
			append([]byte("wmt1\x01\x04\xff\xff"), make([]byte, 400)...), noise(2048, 1), {}}
		for n := range 70 {
			c, err := a.raw(a.w.victim(), n%8)
			if err != nil {
				continue
			}
			_ = c.SetDeadline(time.Now().Add(callWithin))
			_, _ = c.Write(starts[n%len(starts)])
			if n%2 == 0 {
				_ = c.Close()
			}
		}
		return ""
	}},
	{name: "probing the port", quick: true, legit: []string{guest, member}, run: func(a *attacker) string { return a.probe() }},
	{name: "all relays from one address", lasts: true, settle: time.Millisecond, run: func(a *attacker) string {
		via, leader := (a.w.leader()+2)%len(a.w.addrs), peer{Name: name(a.w.leader())}
		a.fill(300, func(n int) error {
			t, err := a.dial(via, hello{kind: kindRelay, from: peer{fmt.Sprint("s", n/60), 7}, to: leader})
			if err == nil {
				_, err = t.Write([]byte{0x16}) // a silent one would give way
			}
			return err
		})
		honest := a.w.attacker(member)
		defer honest.close()
		t, err := honest.dialFrom(via, 20, hello{kind: kindRelay, to: leader})
		if err == nil {
			_, err = honest.shake(t.Conn, honest.openers[0], hello{kind: kindControl, from: intruder})
		}
		if err != nil {
			return fmt.Sprintf("no relay for another host: %v", err)
		}
		return ""
	}},
	{name: "a relay as an open proxy", quick: true, legit: []string{guest, member}, run: func(a *attacker) string {
		for _, to := range []string{name(a.w.leader()), name(a.w.victim()), "elsewhere", ""} {
			t, err := a.dial((a.w.leader()+2)%len(a.w.addrs), hello{kind: kindRelay, to: peer{Name: to}})
			if err != nil {
				continue
			}
			// The carried stream is a stream of its own.
			for _, open := range a.openers {
				if _, err := a.shake(t.Conn, open, hello{kind: kindControl, from: intruder}); err == nil {
					return "reached " + to
				}
			}
		}
		return ""
	}},
}

// question keeps thousands of questions under way on each of 16 streams, for longer than a
// lock lives without a beat.
func (a *attacker) question(open func() (*talk, error), kind wire.Type, body []byte) {
	const atOnce, batch = 6000, 100
	stop := time.Now().Add(ttl + ttl/2)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 16 {
		t, err := open()
		if err != nil {
			return
		}
		_ = t.SetDeadline(stop)
		room, gone := make(chan struct{}, atOnce/batch), make(chan struct{}) // room has a value for each batch
		wg.Go(func() {
			defer close(gone)
			for n := 1; ; n++ {
				if _, err := wire.ReadFrame(t); err != nil {
					return
				}
				if n%batch == 0 {
					<-room
				}
			}
		})
		wg.Go(func() {
			defer t.Close()
			for time.Now().Before(stop) {
				var out []byte
				for range batch {
					t.ids++
					out, _ = wire.AppendFrame(out, wire.Frame{Type: kind, ID: t.ids, Body: body})
				}
				select {
				case room <- struct{}{}:
				case <-gone: // at stop
					return
				}
				if _, err := t.Write(out); err != nil {
					return
				}
			}
		})
	}
}

// fill calls f n times, many at once, until it fails too often, and returns the
// number of successes.
func (a *attacker) fill(n int, f func(n int) error) int {
	var mu sync.Mutex
	done, failed, next := 0, 0, 0
	var wg sync.WaitGroup
	stop := time.Now().Add(12 * time.Second)
	for range 16 {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				if i >= n || failed > 100 || time.Now().After(stop) {
					mu.Unlock()
					return
				}
				mu.Unlock()
				err := f(i)
				mu.Lock()
				if err == nil {
					done++
				} else {
					failed++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return done
}

// honestStream opens a stream with good papers, and says why it fails.
func (a *attacker) honestStream() string {
	honest := a.w.attacker(member)
	defer honest.close()
	began := time.Now()
	if _, err := honest.dialFrom(a.w.leader(), 20, hello{kind: kindControl}); err != nil {
		return fmt.Sprintf("an honest stream: %v", err)
	}
	if took := time.Since(began); took > time.Second {
		return fmt.Sprintf("an honest stream took %v", took.Round(time.Millisecond))
	}
	return ""
}

// probe tries what a port tells without papers: in Secret's mode not even a
// certificate, whose names would tell the cluster and its members. The application
// protocol of the secret is known on the path alone: see the probe there.
func (a *attacker) probe() string {
	for _, protocols := range [][]string{nil, {"h2"}, {"wm/0000000000000000"}, {"wm/"}, {protocolOfTLS}, {protocolOfTLS, "http/1.1"}} {
		if told := a.probeBy(protocols...); told != "" {
			return told
		}
	}
	raw, err := a.raw(a.w.victim(), 0)
	if err != nil {
		return ""
	}
	_ = raw.SetDeadline(time.Now().Add(callWithin))
	_, _ = raw.Write(hello{kind: kindControl, from: intruder}.bytes())
	answer := make([]byte, 4)
	_, _ = io.ReadFull(raw, answer)
	return gained(string(answer) == "wmt1", "name, boot, cluster ID in an answer")
}

// probeBy begins TLS with some application protocols and without a certificate, and
// returns the certificate that a member shows in Secret's mode, where a certificate
// names the cluster and the process.
func (a *attacker) probeBy(protocols ...string) (told string) {
	raw, err := a.raw(a.w.victim(), 0)
	if err != nil {
		return ""
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(callWithin))
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols, VerifyConnection: func(s tls.ConnectionState) error {
		for _, cert := range s.PeerCertificates {
			for _, u := range cert.URIs {
				if u.Host != "" {
					told = "a certificate of " + u.String()
				}
			}
			if bytes.Contains(cert.Raw, []byte(clusterName)) {
				told = "a certificate of the cluster"
			}
		}
		return nil
	}})
	if err := c.Handshake(); err == nil {
		_, _ = c.Write(hello{kind: kindControl, from: intruder}.bytes())
		answer := make([]byte, 4)
		if _, err := io.ReadFull(c, answer); err == nil && a.w.mode != insecure {
			return "an answer without a certificate"
		}
	}
	if a.w.mode != withSecret {
		return "" // certificates of the user's own PKI are shown to everybody
	}
	return told
}
