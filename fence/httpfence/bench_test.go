package httpfence_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/fence/httpfence"
)

// One client's requests over loopback in turns: to a plain handler, and to the same
// handler behind Require. The metric of-unfenced is the throughput of the second in parts
// of the first.
func BenchmarkRequire(b *testing.B) {
	plain := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	mux := http.NewServeMux()
	mux.Handle("PUT /plain", plain)
	mux.Handle("PUT /fenced", httpfence.Require(func(r *http.Request) string { return r.URL.Path }, httpfence.NewMemory(1).Guard, plain))
	server := httptest.NewServer(mux)
	defer server.Close()
	client := &http.Client{Transport: httpfence.Transport(server.Client().Transport)}
	put := func(path string) {
		req, err := http.NewRequestWithContext(fence.NewContext(b.Context(), 7), http.MethodPut, server.URL+path, strings.NewReader("text"))
		if err != nil {
			b.Fatal(err)
		}
		reply, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, reply.Body); err != nil || reply.StatusCode != http.StatusOK {
			b.Fatal(reply.Status, err)
		}
		if err := reply.Body.Close(); err != nil {
			b.Fatal(err)
		}
	}
	var took [2]time.Duration
	for b.Loop() {
		for i, path := range []string{"/plain", "/fenced"} {
			began := time.Now()
			put(path)
			took[i] += time.Since(began)
		}
	}
	b.ReportMetric(float64(took[0])/float64(took[1]), "of-unfenced")
	b.ReportMetric(float64(took[0].Microseconds())/float64(b.N), "µs/unfenced")
	b.ReportMetric(float64(took[1].Microseconds())/float64(b.N), "µs/fenced")
	b.ReportMetric(0, "ns/op") // of both: means nothing
}
