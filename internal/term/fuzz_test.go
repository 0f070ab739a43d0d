package term_test

import (
	"encoding/binary"
	"testing"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// FuzzMemberStream sends sequences of frames on a member's stream: the bytes choose the
// messages, the sessions and the order. Nothing panics, and another member's session
// is as before.
func FuzzMemberStream(f *testing.F) {
	for op := range byte(32) {
		f.Add([]byte{0, 1, op, 1, op, 0, op, 2}, op)
	}
	f.Add([]byte{0, 1, 30, 0, 30, 2, 30, 1, 30, 3, 30, 6, 30, 7, 31, 0}, byte(1))
	f.Add([]byte{0, 1, 4, 1, 5, 1, 6, 1, 12, 1, 0, 0}, byte(0))
	f.Fuzz(func(t *testing.T, script []byte, who byte) {
		onHeist(t, func(h *heist) {
			// The thief has another name, another boot, or only lacks the key.
			node, boot := "n2", uint64(7)
			if who%3 > 0 {
				node, boot = "n1", 5+uint64(who%3-1)
			}
			h.rob(h.enter(node, boot), node, boot, script)
			var id machine.SessionID
			var token machine.Token
			h.View(func(m *machine.State) { id, token = m.Owner(held) })
			st, open := machine.SessionStatus{}, false
			h.View(func(m *machine.State) { st, open = m.Session(h.id) })
			if id != h.id || token != h.token || !open || st.Grants != 2 || st.Waits != 0 || st.Node != "n1" || st.Boot != 5 {
				h.t.Errorf("%x holds under %d; the victim's session: %+v, open %t", id, token, st, open)
			}
			if f := h.victim.ask(wire.Beat, h.id[:]); f.Code != wire.CodeOK {
				h.t.Errorf("the victim's beat: %v", f.Code)
			}
			if o, code := h.victim.propose(machine.Release{Session: h.id, Token: h.token}); code != wire.CodeOK || o.Code != machine.OK {
				h.t.Errorf("the victim's release: %+v, %v", o, code)
			}
		})
	})
}

// rob sends the frames of a script: pairs of an operation and a number, some followed by
// more bytes.
func (h *heist) rob(p *peer, node string, boot uint64, script []byte) {
	next := func() (b byte) {
		if len(script) > 0 {
			b, script = script[0], script[1:]
		}
		return b
	}
	send := func(notice bool, t wire.Type, body []byte) {
		if notice {
			_ = p.Notify(t, body)
			return
		}
		select {
		case <-p.Stopped():
			p = h.enter(node, boot) // the leader has ended the stream
		default:
		}
		_, _ = p.Begin(t, body, func(wire.Frame, error) {})
	}
	for steps := 0; len(script) > 0 && steps < 64; steps++ {
		op, n := next(), next()
		id := h.id // or a session of the thief's own, or of nobody
		if n&1 == 1 {
			id = key(n % 8).ID()
		}
		number := uint64(n >> 1)
		propose := func(c machine.Command) { send(op&128 != 0, wire.Propose, machine.EncodeCommand(c)) }
		switch op % 32 {
		case 0:
			send(false, wire.Attach, wire.Marshal(&wire.AttachRequest{New: keys(n % 8)}))
		case 1:
			send(false, wire.Attach, wire.Marshal(&wire.AttachRequest{Keys: keys(n % 8), New: keys(n)}))
		case 2:
			var forged machine.SessionKey
			copy(forged[n%16:], h.id[:])
			send(false, wire.Attach, wire.Marshal(&wire.AttachRequest{Keys: []machine.SessionKey{forged}}))
		case 3:
			send(op&128 != 0, wire.Beat, id[:])
		case 4:
			send(n&2 == 0, wire.Detach, id[:])
		case 5:
			propose(machine.Open{Session: id, Client: "t", Node: node, Boot: boot, TTL: 3000})
		case 6:
			propose(machine.Open{Session: id, Client: "t", Node: "n1", Boot: 5, TTL: 3000})
		case 7:
			propose(machine.Acquire{Session: id, Seq: number, Key: held, Spec: machine.Spec{Mode: machine.Mode(n % 4)}, Try: n&2 == 2})
		case 8:
			propose(machine.Acquire{Session: id, Seq: number, Keys: []string{held, "other"}, Seen: []uint64{1, 2}, Under: []machine.Token{h.token}})
		case 9:
			propose(machine.Release{Session: id, Token: h.token + machine.Token(number%3), To: "t"})
		case 10:
			propose(machine.Release{Session: id, Token: h.token})
		case 11:
			propose(machine.Withdraw{Session: id, Seq: number})
		case 12:
			propose(machine.Close{Session: id})
		case 13:
			propose(machine.Upgrade{Session: id, Seq: number, Token: h.token + 1})
		case 14:
			propose(machine.Downgrade{Session: id, Token: h.token})
		case 15:
			propose(machine.SetValue{Session: id, Token: h.token, Rev: number, Value: []byte{n}})
		case 16: // a Break of its own is lawful, and so is Ask
			propose(machine.Break{Session: h.id, Key: held, Token: h.token})
		case 17:
			propose(machine.Ask{Session: id, Key: held})
		case 18:
			send(false, wire.Attach, wire.Marshal(&wire.AttachRequest{Dir: otherDir.Prove(nil)}))
			propose(machine.Forget{Node: "n1", Boot: number, Dir: [2]machine.DirID{victimDir.ID(), otherDir.ID()}[n>>7]})
		case 19:
			propose(machine.Expire{Session: h.id, Term: number})
		case 20:
			propose(machine.Found{Cluster: machine.ClusterID{n}, Floor: 1, TTL: 3000})
		case 21:
			propose(machine.LeaderStart{Term: number})
		case 22:
			propose(machine.EndDelay{Token: h.token, Term: number})
		case 23:
			send(op&128 == 0, wire.Cancel, wire.Marshal(number))
		case 24:
			send(false, wire.Depart, wire.Marshal(&wire.DepartRequest{Name: "n1", Boot: 5}))
		case 25:
			// An honest frame with one byte changed.
			body := machine.EncodeCommand(machine.Release{Session: id, Token: h.token})
			body[int(next())%len(body)] ^= next()
			send(false, wire.Propose, body)
		case 26:
			body := binary.BigEndian.AppendUint64(nil, uint64(next())<<56|number)
			send(false, wire.Type(n), body)
		case 27:
			take := min(int(n), len(script))
			send(false, wire.Propose, script[:take])
			script = script[take:]
		case 28:
			take := min(int(n), len(script))
			send(op&128 != 0, wire.Type(next()), script[:min(take, len(script))])
		case 29:
			h.Lead() // the streams end, and the victim comes back
			h.victim = h.enter("n1", 5)
			h.show(h.victim, victimKey)
		case 30:
			ref := h.id.Ref()
			switch n % 4 {
			case 0:
				// Ending the victim's session by its Ref is lawful, with a session of one's
				// own alone: not with the victim's, nor with the Ref as an ID.
				propose(machine.EndSession{Session: []machine.SessionID{h.id, machine.SessionID(ref)}[number%2], Ref: ref})
			case 1:
				propose(machine.EndSession{Session: id, Ref: machine.SessionRef(h.id)})
			case 2:
				send(false, wire.Sessions, wire.Marshal(&replica.SessionsQuery{From: ref, Limit: int(n), Gone: number%2 == 1}))
			case 3:
				send(false, wire.Values, wire.Marshal(&replica.ValuesQuery{Prefix: held, Limit: int(n)}))
			}
		default:
			h.scene() // wait until all of it is done
		}
	}
	h.scene()
}
