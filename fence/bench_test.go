package fence

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// An owner claims its own resource. For comparison an owner writes a block to a second
// file and syncs the file: the least cost of any durable claim.
type owner struct {
	guard *File
	bare  *os.File
	token Token
}

func newOwner(path string) (*owner, error) {
	guard, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	bare, err := os.Create(path + ".bare")
	if err != nil {
		return nil, err
	}
	if _, err := bare.Write(firstMark()); err != nil {
		return nil, err
	}
	return &owner{guard: guard, bare: bare}, bare.Sync()
}

func (o *owner) claim() error {
	o.token++
	return o.guard.Claim(o.token)
}

func (o *owner) sync() error {
	o.token++
	if _, err := o.bare.WriteAt(record{0, o.token}.pair()[:blockSize], 0); err != nil {
		return err
	}
	return syncData(o.bare)
}

// serveOwner claims and syncs as its input says, and answers each line.
func serveOwner(path string, in io.Reader, out io.Writer) error {
	o, err := newOwner(path)
	if err != nil {
		return err
	}
	calls := map[string]func() error{"claim": o.claim, "sync": o.sync, "ready": func() error { return nil }}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if err := calls[lines.Text()](); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, "done"); err != nil {
			return err
		}
	}
	return nil
}

// Eight owners of eight resources on one disk claim at once, then sync at once, and so on:
//
//	go test -run '^$' -bench EightOwners -benchtime 200x ./fence
//
// The metric of-syncs is the median time of eight claims, divided by the median time of
// eight bare syncs.
func BenchmarkEightOwners(b *testing.B) {
	const owners = 8
	b.Run("goroutines", func(b *testing.B) {
		dir := b.TempDir()
		claims, syncs := make([]func() error, owners), make([]func() error, owners)
		for i := range owners {
			o, err := newOwner(filepath.Join(dir, fmt.Sprint(i)))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { o.guard.Close(); o.bare.Close() })
			claims[i], syncs[i] = o.claim, o.sync
		}
		inTurns(b, claims, syncs)
	})
	b.Run("processes", func(b *testing.B) {
		self, err := os.Executable()
		if err != nil {
			b.Fatal(err)
		}
		dir := b.TempDir()
		claims, syncs := make([]func() error, owners), make([]func() error, owners)
		for i := range owners {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), childPath+"="+filepath.Join(dir, fmt.Sprint(i)), childOwns+"=1")
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
			b.Cleanup(func() { in.Close(); cmd.Wait() })
			answers := bufio.NewReader(out)
			call := func(what string) func() error {
				return func() error {
					if _, err := fmt.Fprintln(in, what); err != nil {
						return err
					}
					_, err := answers.ReadString('\n')
					return err
				}
			}
			if err := call("ready")(); err != nil {
				b.Fatal(err)
			}
			claims[i], syncs[i] = call("claim"), call("sync")
		}
		inTurns(b, claims, syncs)
	})
}

// inTurns lets all claim, then all sync, and so on, and reports the median times.
func inTurns(b *testing.B, claims, syncs []func() error) {
	var took [2][]time.Duration
	for b.Loop() {
		for i, calls := range [][]func() error{claims, syncs} {
			began := time.Now()
			var all sync.WaitGroup
			for _, call := range calls {
				all.Go(func() {
					if err := call(); err != nil {
						b.Error(err)
					}
				})
			}
			all.Wait()
			took[i] = append(took[i], time.Since(began))
		}
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Microseconds()) / 1000
	}
	b.ReportMetric(median(took[0]), "ms/claims")
	b.ReportMetric(median(took[1]), "ms/syncs")
	b.ReportMetric(median(took[0])/median(took[1]), "of-syncs")
}
