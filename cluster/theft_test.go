package cluster

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/auth"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file tries to steal a lock on a whole cluster, by a stream of another
// authenticated process. Package term has the theft of each command in detail.

// A safe is a mode of Security, and the papers of a process in the mode.
type safe struct {
	name   string
	change func(*Config)
	papers func(p port.Peer, voter bool) (auth.Method, error)
	named  bool // papers name a process, and no other makes them
}

func safes(t *testing.T) []safe {
	ca := newCertifier(t)
	certificates := func(p port.Peer, voter bool) (auth.Method, error) {
		cfg, suffix := Config{Name: p.Name, Cluster: "test"}, ""
		if !voter {
			suffix = "?role=member"
		}
		ca.certified(suffix)(&cfg)
		return cfg.certificates()
	}
	return []safe{
		{"Insecure", func(c *Config) { c.Security.Insecure = true }, func(port.Peer, bool) (auth.Method, error) { return auth.Plain{}, nil }, false},
		{"Secret", secrets(oldSecret), func(p port.Peer, _ bool) (auth.Method, error) {
			return auth.NewKeyring("test", p.Name, p.Boot, oldSecret)
		}, false},
		{"TLS", ca.certified(""), certificates, true},
		{"both", func(c *Config) { secrets(oldSecret)(c); ca.certified("")(c) }, certificates, true},
	}
}

// thief opens a port with papers of holder, and dials n as the process as.
func (b *bubble) thief(s safe, n *Node, holder, as port.Peer, voter bool) (c *port.Conn, leave func() error, err error) {
	b.t.Helper()
	b.thiefs++
	host := fmt.Sprint("thief", b.thiefs)
	m, err := s.papers(holder, voter)
	if err != nil {
		b.t.Fatal(err)
	}
	p, err := port.Open(port.Config{
		Network: b.networkOf(host), Bind: b.addr(host), Cluster: "test", Auth: m,
		Self: as, ClusterID: func() [16]byte { return n.founding.Cluster() },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	c, err = p.Dial(b.within(10*time.Second), n.Addr(), port.KindMember, port.Peer{})
	return c, p.Close, err
}

// exchange sends a request and returns the code of the answer; false if the stream has
// ended.
func exchange(t *testing.T, c *port.Conn, kind wire.Type, id uint64, body []byte) (wire.Frame, bool) {
	t.Helper()
	b, err := wire.AppendFrame(nil, wire.Frame{Type: kind, ID: id, Body: body})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write(b); err != nil {
		return wire.Frame{}, false
	}
	for {
		f, err := wire.ReadFrame(c)
		if err != nil {
			return f, false
		}
		if f.ID == id && id != 0 {
			return f, true
		}
	}
}

// stolenState is all of a session and its key that a thief could change.
type stolenState struct {
	held    machine.Status
	session machine.SessionStatus
}

func (b *bubble) stolen(id machine.SessionID) map[string]stolenState {
	all := make(map[string]stolenState)
	b.tables(func(name string, m *machine.State) {
		s := stolenState{held: m.Status("k0", 10)}
		s.session, _ = m.Session(id)
		all[name] = s
	})
	return all
}

// No stream but of the process that opened a session beats, attaches, proposes,
// detaches or closes for the session, whatever the papers of the thief.
func TestNobodyActsForAnothersSession(t *testing.T) {
	for _, mode := range []string{"Insecure", "Secret", "TLS", "both"} {
		t.Run(mode, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.thieves = true
				var s safe
				for _, s = range safes(b.t) {
					if s.name == mode {
						break
					}
				}
				b.form(s.change)
				victim := b.followers()[0]
				busy := b.holders(victim)
				time.Sleep(time.Second) // every voter has the grant
				id := b.holderKey(0).ID()
				owner, other := port.Peer{Name: victim.Name(), Boot: victim.self.Boot}, port.Peer{Name: "thief", Boot: 7}
				for _, x := range []struct {
					name       string
					holder, as port.Peer
					voter, key bool
				}{
					{"another member", other, other, false, false},
					{"another voter", other, other, true, false},
					{"another voter with the key", other, other, true, true},
					{"in the owner's name", owner, owner, true, false},
					{"in the owner's name, with the key", owner, owner, true, true},
					{"a later process of the owner's name", port.Peer{Name: owner.Name, Boot: owner.Boot + 1}, port.Peer{Name: owner.Name, Boot: owner.Boot + 1}, true, true},
					{"with another's papers in the owner's name", other, owner, true, true},
				} {
					if s.named && x.as.Name == owner.Name && x.holder == x.as {
						continue // nobody else has such papers
					}
					c, leave, err := b.thief(s, b.leader(), x.holder, x.as, x.voter)
					defer leave()
					var no *port.RefusedError
					if x.holder != x.as && s.name != "Insecure" {
						if !errors.As(err, &no) || no.Status != port.StatusImpostor {
							b.t.Errorf("%s: %v", x.name, err)
						}
						continue
					}
					if err != nil {
						b.t.Fatalf("%s: %v", x.name, err)
					}
					if s.name == "Insecure" && (x.holder != x.as || x.as == owner) { // without papers the key is all
						x.key = false
					}
					b.steal(x.name, c, id, x.key)
				}
				time.Sleep(3 * victim.cfg.TTL)
				if lost := busy(); lost != 0 {
					b.t.Error("the victim has lost its session")
				}
				if n := b.leader().self.Refused.Counts()[refused.Session]; n < 20 {
					b.t.Errorf("%d refusals are counted", n)
				}
				// The name may be the victim's: an operator looks for the thief at its host.
				var hosts []string
				for i := range b.thiefs {
					hosts = append(hosts, b.host(fmt.Sprint("thief", i+1)))
				}
				for _, r := range b.leader().self.Refused.Totals() {
					if _, host, _ := strings.Cut(r.From, " at "); r.Kind == refused.Session && !slices.Contains(hosts, host) {
						b.t.Errorf("refused %q, and the thieves are at %v", r.From, hosts)
					}
				}
			})
		})
	}
}

// steal tries everything on a stream.
func (b *bubble) steal(thief string, c *port.Conn, id machine.SessionID, key bool) {
	t := b.t
	t.Helper()
	before := b.stolen(id)
	var token machine.Token
	for _, s := range before {
		if len(s.held.Holders) != 1 || s.session.ID != id {
			t.Fatalf("%s: nothing to steal: %+v", thief, s)
		}
		token = s.held.Holders[0].Token
	}
	next := uint64(0)
	ask := func(kind wire.Type, body []byte) (wire.Frame, bool) {
		next++
		return exchange(t, c, kind, next, body)
	}
	if f, ok := ask(wire.Attach, wire.Marshal(&wire.AttachRequest{})); !ok || f.Code != wire.CodeOK {
		t.Fatalf("%s: not attached: %v", thief, f.Code)
	}
	var forged machine.SessionKey
	copy(forged[:], id[:])
	shown := []machine.SessionKey{forged}
	if key {
		shown = append(shown, b.holderKey(0))
	}
	ask(wire.Attach, wire.Marshal(&wire.AttachRequest{New: shown}))
	ask(wire.Attach, wire.Marshal(&wire.AttachRequest{Keys: shown}))
	for _, cmd := range []machine.Command{
		machine.Release{Session: id, Token: token},
		machine.Release{Session: id, Token: token, To: "c"},
		machine.Withdraw{Session: id, Seq: 1},
		machine.Acquire{Session: id, Seq: 9, Key: "free"},
		machine.Acquire{Session: id, Seq: 9, Key: "free", Seen: []uint64{1}},
		machine.Upgrade{Session: id, Seq: 9, Token: token},
		machine.Downgrade{Session: id, Token: token},
		machine.SetValue{Session: id, Token: token, Rev: 1, Value: []byte("forged")},
		machine.Break{Session: id, Key: "k0", Token: token},
		machine.Close{Session: id},
	} {
		f, ok := ask(wire.Propose, machine.AppendCommand(nil, cmd))
		if ok && f.Code == wire.CodeOK {
			o, _ := machine.DecodeOutcome(f.Body)
			t.Errorf("%s: %T: %+v", thief, cmd, o)
		}
	}
	if f, ok := ask(wire.Beat, id[:]); ok && f.Code == wire.CodeOK {
		t.Errorf("%s: a beat counts", thief)
	}
	if b, err := wire.AppendFrame(nil, wire.Frame{Type: wire.Detach, Body: id[:]}); err == nil {
		_, _ = c.Write(b)
	}
	time.Sleep(100 * time.Millisecond)
	if after := b.stolen(id); !reflect.DeepEqual(before, after) {
		t.Errorf("%s: %+v became %+v", thief, before, after)
	}
}
