package stream

import (
	"net"
	"sync/atomic"
	"testing"

	"github.com/wardmote/wardmote/internal/wire"
)

type countedWrites struct {
	net.Conn
	n atomic.Int64
}

func (c *countedWrites) Write(b []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(b)
}

// BenchmarkCallsTogether has many callers ask on one stream: their requests share writes.
func BenchmarkCallsTogether(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	dialled, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	near := &countedWrites{Conn: dialled}
	asker := New(near, func(q *Request) { q.Answer(wire.CodeBad, nil) })
	answerer := New(accepted, func(q *Request) { q.Answer(wire.CodeOK, q.Body) })
	for _, s := range []*Stream{asker, answerer} {
		s.Start()
		defer s.Close()
	}
	b.SetParallelism(128)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := asker.Call(b.Context(), wire.Propose, number(1)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(near.n.Load())/float64(b.N), "writes/op")
}
