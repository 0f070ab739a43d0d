package attack

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// The grants of which a poser reads few, and the value that each tells of: no buffer on the
// way takes a tenth of them.
const (
	hoarded      = 6000
	hoardedValue = 32 << 10
)

// opens opens a session of its own in the name of from.
func (a *attacker) opens(from peer) (s *talk, key sessionKey, id machine.SessionID, err error) {
	key, id = newSession()
	if s, err = a.session(from); err != nil {
		return
	}
	if _, err = s.call(wire.Attach, attachBody(nil, nil, key)); err == nil {
		_, err = s.propose(machine.Open{Session: id, Client: "c", Node: from.Name, Boot: from.Boot, TTL: uint64(a.w.ttl / time.Millisecond)})
	}
	return
}

// hoards opens a session in the name of the process v, with thousands of grants that are told
// on a stream that is hardly read.
func (a *attacker) hoards(v peer) error {
	holder, _, first, err := a.opens(intruder)
	if err != nil {
		return err
	}
	held, err := holder.propose(machine.Acquire{Session: first, Seq: 1, Key: "hoard"})
	if err != nil {
		return err
	}
	if _, err := holder.propose(machine.SetValue{Session: first, Token: held.Token, Rev: 1, Value: make([]byte, hoardedValue)}); err != nil {
		return err
	}
	// A waiter behind the victim's lock: the leader has something to tell the victim, too.
	if _, err := holder.propose(machine.Acquire{Session: first, Seq: 2, Key: a.know.key}); err != nil {
		return err
	}
	waiter, key, second, err := a.opens(v)
	if err != nil {
		return err
	}
	var out []byte
	for n := range hoarded {
		waiter.ids++
		out, _ = wire.AppendFrame(out, wire.Frame{Type: wire.Propose, ID: waiter.ids, Body: machine.EncodeCommand(
			machine.Acquire{Session: second, Seq: uint64(n + 1), Key: "hoard", Spec: machine.Spec{Mode: machine.Shared}})})
	}
	if _, err := waiter.Write(out); err != nil {
		return err
	}
	_ = waiter.SetReadDeadline(time.Now().Add(callWithin))
	for answers := 0; answers < hoarded; { // until all wait
		f, err := wire.ReadFrame(waiter)
		if err != nil {
			return err
		}
		if f.Code != wire.CodeRequest {
			answers++
		}
	}
	if _, err := holder.propose(machine.Release{Session: first, Token: held.Token}); err != nil {
		return err
	}
	for began := time.Now(); ; { // until the last is granted
		now, err := holder.status("hoard")
		if err != nil {
			return err
		}
		if now.Status.Held == hoarded {
			break
		}
		if time.Since(began) > callWithin {
			return fmt.Errorf("%d of %d grants", now.Status.Held, hoarded)
		}
	}
	_ = waiter.Close()
	unread, err := a.session(v)
	if err != nil {
		return err
	}
	go func() { // a stream of which nothing is read would end; ends with the stream
		_ = unread.SetReadDeadline(time.Now().Add(patience))
		for {
			if _, err := io.CopyN(io.Discard, unread, 8*hoardedValue); err != nil {
				return
			}
			time.Sleep(30 * time.Millisecond)
		}
	}()
	return unread.send(wire.Attach, attachBody(nil, nil, key))
}

// cutOff attaches a poser under the victim's name and boot, which leaves thousands of events
// unread, and has the victim lose its stream to the leader. The victim attaches again.
func (w *town) cutOff(proxies []*proxy) string {
	behind := w.told
	w.told = w.addrs // the attacker's way is not cut
	defer func() { w.told = behind }()
	a := w.attacker(member)
	defer a.close()
	var err error
	if a.know, err = w.learn(); err != nil || a.know.victim.Token == 0 {
		return fmt.Sprintf("nothing learnt: %v", err)
	}
	_, _, terms := w.leads()
	if err := a.hoards(a.know.process(w.victim())); err != nil {
		return fmt.Sprintf("no attack: %v", err)
	}
	proxies[w.leader()].cut()
	time.Sleep(ttl + ttl/2) // harm shows late
	return w.harm(terms)
}

// Whoever can take the name and boot of a member, with a key of its own for the keys of
// sessions, cannot keep the member from the leader by events that it reads slowly.
func TestAPosersEventsKeepNoMemberOut(t *testing.T) {
	if !thorough() {
		t.Skip("part of the matrix")
	}
	for _, m := range []mode{withSecret, withShared} {
		t.Run(string(m), func(t *testing.T) {
			w := newTown(t, 3, m)
			var proxies []*proxy
			var behind []string
			for _, addr := range w.addrs {
				proxies = append(proxies, newProxy(t, addr))
				behind = append(behind, proxies[len(proxies)-1].addr())
			}
			w.told = behind
			w.tryAlone(member, "events of which a poser reads few", func() string { return w.cutOff(proxies) })
		})
	}
}
