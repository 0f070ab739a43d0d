package controller_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/examples/recipes/controller"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

// Two managers of controller-runtime, without an API server: the work runs on the first manager,
// and on the second after the end of the first. The checks answer over HTTP.
func TestTheWorkRunsOnOneManager(t *testing.T) {
	first, err := wardmote.Local(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Node().Stop() })
	type term struct {
		manager int
		token   fence.Token
	}
	terms := make(chan term, 9)
	run := func(ctx context.Context, i int, client *locks.Client, probes string) <-chan error {
		m, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
			Metrics:                server.Options{BindAddress: "0"},
			HealthProbeBindAddress: probes,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			m.AddHealthzCheck("ping", healthz.Ping),
			m.AddReadyzCheck("wardmote", controller.Ready(client.Node())),
			m.Add(&controller.Runnable{Client: client, Key: "sync", Work: func(ctx context.Context, l *locks.Lock) error {
				terms <- term{i, l.Token()}
				<-ctx.Done()
				return nil
			}}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- m.Start(ctx) }()
		return ended
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := run(ctx, 0, first, addr)
	before := <-terms
	for _, path := range []string{"healthz", "readyz"} {
		answer, err := http.Get(fmt.Sprintf("http://%s/%s", addr, path))
		if err != nil {
			t.Fatal(err)
		}
		if answer.Body.Close(); answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
	rest, end := context.WithCancel(t.Context())
	defer end()
	other := run(rest, 1, locks.New(first.Node(), locks.Options{}), "0")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	after := <-terms
	if before.manager != 0 || after.manager != 1 || after.token <= before.token {
		t.Errorf("%v led after %v", after, before)
	}
	end()
	if err := <-other; err != nil {
		t.Error(err)
	}
}

// Ready fails once the node has stopped, and takes a second at most.
func TestReadyFails(t *testing.T) {
	client, err := wardmote.Local(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client.Node().Stop()
	began := time.Now()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := controller.Ready(client.Node())(r); err == nil {
		t.Error("a stopped node is ready")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}
