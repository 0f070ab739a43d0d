package locks_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// envNoisy, an address to join, makes the test program a noisy member.
const envNoisy = "WARDMOTE_TEST_NOISY"

// noisyMember joins as a thin member, and reads numbers of requests, each on a line. It sends
// so many requests, 10,000 at a time, and says "done".
func noisyMember(join string, in io.Reader, out io.Writer) error {
	const at = 10_000
	ctx := context.Background()
	cfg := cluster.Config{Name: "noisy", Join: []string{join}, TTL: 10 * time.Second}
	cfg.Voting.Thin = true
	n, err := cluster.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer n.Stop()
	c := locks.New(n, locks.Options{})
	for {
		var requests int64
		if _, err := fmt.Fscanln(in, &requests); err != nil {
			return nil // the end of the benchmark
		}
		var left atomic.Int64
		left.Store(requests)
		var flood sync.WaitGroup
		failed := make(chan error, at)
		for i := range at {
			flood.Go(func() {
				key := fmt.Sprint("noisy/", i)
				for left.Add(-2) >= 0 { // an acquire and a release
					l, err := c.Acquire(ctx, key)
					if err == nil {
						err = l.Release(ctx)
					}
					if err != nil {
						failed <- err
						return
					}
				}
			})
		}
		flood.Wait()
		select {
		case err := <-failed:
			return err
		default:
		}
		fmt.Fprintln(out, "done")
	}
}

// startNoisy starts a noisy member. flood has it send so many requests, and returns a channel
// that is closed when all are answered.
func startNoisy(b *testing.B, join string) (flood func(requests int) <-chan struct{}) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envNoisy+"="+join)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewReader(out)
	flood = func(requests int) <-chan struct{} {
		done := make(chan struct{})
		fmt.Fprintln(in, requests)
		go func() {
			defer close(done)
			if _, err := lines.ReadString('\n'); err != nil {
				b.Error("the noisy member: ", err)
			}
		}()
		return done
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error("the noisy member: ", err)
		}
	})
	<-flood(2) // it is ready
	return flood
}
