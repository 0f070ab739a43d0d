// Command app is a small program for the manifests in this directory: a job that one
// pod at a time runs, and locks for programs in other languages.
//
//	curl -N http://orders:8080/locks/nightly
//
// holds the lock nightly until curl ends, and prints a line when the lock is granted and
// a line when the lock is lost. The environment of package wardmote configures the
// member. Two variables are the program's own:
//
//	HTTP_ADDR   the address of locks and probes, ":8080"
//	PAGE_ADDR   the address of the page for operators, "127.0.0.1:8081": kubectl
//	            port-forward reaches loopback in a pod, and other pods do not
//
// With the argument -ready the program asks a running app whether it is ready, and ends
// with status 1 if not: a health check for an image without a shell.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockshttp"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "-ready" {
		os.Exit(ready())
	}
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	err := wardmote.Main(cluster.Config{Logger: slog.Default()}, run)
	if err != nil {
		slog.Error("failed", "error", err)
		os.Exit(1) // the orchestrator starts the container again
	}
}

func address(variable, byDefault string) string {
	if a := os.Getenv(variable); a != "" {
		return a
	}
	return byDefault
}

// run is the work. The HTTP servers start at once, because probes must be answered while
// the cluster is founded.
func run(ctx context.Context, c *locks.Client) error {
	probes := lockshttp.Probes(c)
	public, page := http.NewServeMux(), http.NewServeMux()
	public.Handle("/livez", probes)
	public.Handle("/readyz", probes)
	public.Handle("GET /locks/{key}", lock(ctx, c))
	public.Handle("GET /metrics", lockshttp.Metrics(c, lockshttp.Options{}))
	page.Handle("/", lockshttp.Handler(c, lockshttp.Options{}))

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for addr, s := range map[string]*http.Server{
		address("HTTP_ADDR", ":8080"):          {Handler: public, ReadHeaderTimeout: 5 * time.Second},
		address("PAGE_ADDR", "127.0.0.1:8081"): {Handler: page, ReadHeaderTimeout: 5 * time.Second},
	} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				cancel(err) // without its server the program is of no use
			}
		}()
		defer func() {
			// The requests that hold locks tell their clients of the end.
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			defer cancel()
			if s.Shutdown(bounded) != nil {
				s.Close()
			}
			<-served
		}()
	}
	err := c.Elect(ctx, "job", job)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// job runs in one pod at a time, until ctx ends.
func job(ctx context.Context, l *locks.Lock) error {
	slog.Info("elected", "token", l.Token())
	<-ctx.Done()
	slog.Info("no longer elected", "token", l.Token(), "cause", context.Cause(ctx).Error())
	return nil
}

// told is a line of the answer to a request for a lock.
type told struct {
	Token fence.Token `json:"token,omitempty"`
	Lost  string      `json:"lost,omitempty"` // the reason: the holder must stop
	Error string      `json:"error,omitempty"`
}

// lock holds a lock for as long as the request lasts. The lock ends with the program
// too, and the client is told.
func lock(program context.Context, c *locks.Client) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(program, func() { cancel(context.Cause(program)) })()
		tell := func(t told) {
			if json.NewEncoder(w).Encode(t) == nil {
				_ = http.NewResponseController(w).Flush() // a client that is gone cancels ctx
			}
		}
		granted := false
		err := c.Do(ctx, r.PathValue("key"), func(ctx context.Context, l *locks.Lock) error {
			granted = true
			tell(told{Token: l.Token()})
			<-ctx.Done()
			tell(told{Lost: context.Cause(ctx).Error()})
			return nil
		})
		if err != nil && !granted {
			w.WriteHeader(http.StatusServiceUnavailable)
			tell(told{Error: err.Error()})
		}
	})
}

// ready asks the app of this container.
func ready() int {
	_, port, err := net.SplitHostPort(address("HTTP_ADDR", ":8080"))
	if err == nil {
		client := http.Client{Timeout: 2 * time.Second}
		var answer *http.Response
		if answer, err = client.Get("http://" + net.JoinHostPort("127.0.0.1", port) + "/readyz"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return 0
			}
			err = errors.New(answer.Status)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
