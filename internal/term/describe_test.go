package term

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/wire"
)

// The owners of a certificate without a name and without the voter role may all claim to be a
// voter. Nothing that they say of the voter costs the voter its vote, and a member with a name
// of its own and without the role is no candidate.
func TestAMereMemberDescribesNoVoter(t *testing.T) {
	v := member.Process{Name: "v", Boot: 1}
	own := member.Metadata{Version: 1, Generation: 7, Format: 1, TTL: 1000}
	forged := member.Metadata{Version: 1, Generation: 9, Format: 9, TTL: 5000, Leaving: true, Thin: true}
	described := func(streams ...*Subscriber) member.Metadata {
		term := New(Config{Table: NewTable()})
		for _, s := range streams {
			if !term.Join(s) {
				t.Fatal("no term")
			}
		}
		for _, s := range streams {
			if s.Mere {
				term.describe(s, forged)
			} else {
				term.describe(s, own)
			}
		}
		got, ok := term.Described(v.Name, v.Boot)
		if !ok {
			t.Error("nothing is described")
		}
		return got
	}
	voter := func() *Subscriber { return &Subscriber{Node: v.Name, Boot: v.Boot} }
	mere := func(shared bool) *Subscriber {
		return &Subscriber{Node: v.Name, Boot: v.Boot, Mere: true, Shared: shared}
	}
	for name, got := range map[string]member.Metadata{"after": described(voter(), mere(true)), "before": described(mere(true), voter())} {
		if got != own {
			t.Errorf("a forgery %s the voter's word counts: %+v", name, got)
		}
	}
	if got := described(mere(true)); got != (member.Metadata{Version: 1}) {
		t.Errorf("while the voter is away, its description is %+v", got)
	}
	named := forged
	named.TTL = 0 // the bound of TTLs is the voters'
	if got := described(mere(false)); got != named {
		t.Errorf("a named member describes itself as %+v", got)
	}
	term, s := New(Config{Table: NewTable()}), mere(false)
	term.Join(s)
	if term.describe(s, own); !term.described[v].Thin {
		t.Error("a member without the role is a candidate")
	}
}

// Such a member gives up no vote either.
func TestAMereMemberDepartsForNobody(t *testing.T) {
	for _, mere := range []bool{true, false} {
		log := refused.New(slog.New(slog.DiscardHandler))
		asked := 0
		term := New(Config{Table: NewTable(), Refused: log, Depart: func(_ string, _ uint64, done func(wire.Code)) {
			asked++
			done(wire.CodeOK)
		}})
		near, far := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			ServeMember(far, "v", 1, Guide{Current: func() *Term { return term }, Hint: func() wire.Hint { return wire.Hint{} }, Shared: true, Mere: mere})
		}()
		s := stream.New(near, func(*stream.Request) {})
		s.Start()
		for _, q := range []struct {
			kind wire.Type
			body any
		}{{wire.Attach, &wire.AttachRequest{}}, {wire.Depart, &wire.DepartRequest{Name: "v", Boot: 1}}} {
			f, err := s.Call(context.Background(), q.kind, wire.Marshal(q.body))
			if want := map[bool]wire.Code{true: wire.CodeBad, false: wire.CodeOK}[mere && q.kind == wire.Depart]; err != nil || f.Code != want {
				t.Errorf("mere %t, type %d: code %d, %v", mere, q.kind, f.Code, err)
			}
		}
		s.Close()
		<-served
		if refusals := log.Counts()[refused.Role]; (asked == 0) != mere || (refusals == 1) != mere {
			t.Errorf("mere %t: asked %d times, %d refusals", mere, asked, refusals)
		}
	}
}
