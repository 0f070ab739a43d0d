package term_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// deafLog is the log of a leader with two voters that do not answer.
type deafLog struct{ soloLog }

func (deafLog) Voters() []string { return []string{"n1", "a", "b"} }

// TestReadsThatWaitForARoundTakeLittle: package stream counts a request as 512 bytes,
// and bounds the requests under way of a member and of all members by it. A read that waits
// with its answer takes no more.
func TestReadsThatWaitForARoundTakeLittle(t *testing.T) {
	table := foundedTable()
	tm := term.New(term.Config{Log: deafLog{soloLog{table}}, Table: table, Term: 1, Logger: slog.New(slog.DiscardHandler),
		Ask: func(ctx context.Context, voter string, term uint64, done func(bool)) {
			context.AfterFunc(ctx, func() { done(false) })
		}})
	tm.Start()
	defer tm.Stop()
	near, far := net.Pipe()
	var serving sync.WaitGroup
	serving.Go(func() {
		term.ServeMember(far, "asker", 1, term.Guide{
			Current: func() *term.Term { return tm },
			Hint:    func() wire.Hint { return wire.Hint{} },
			Changed: func() <-chan struct{} { return nil },
			Heard:   func() time.Time { return time.Time{} },
		})
	})
	defer serving.Wait()
	defer near.Close()
	send := func(typ wire.Type, id uint64, body []byte) {
		out, err := wire.AppendFrame(nil, wire.Frame{Type: typ, ID: id, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := near.Write(out); err != nil {
			t.Fatal(err)
		}
	}
	send(wire.Attach, 1, wire.Marshal(&wire.AttachRequest{}))
	if f, err := wire.ReadFrame(near); err != nil || f.Code != wire.CodeOK {
		t.Fatal(f.Code, err)
	}
	const reads, most = 4000, 640
	query := wire.Marshal(&replica.Query{Key: "nobody's"})
	before := inUse()
	for i := range reads {
		send(wire.Read, uint64(i+2), query)
	}
	if each := (int64(inUse()) - int64(before)) / reads; each > most {
		t.Errorf("a read that waits takes %d bytes, want %d at most", each, most)
	}
}
