package consensus

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Raft backs off from a server that is out of reach, for longer after each failure.
// A voter that comes back after a minute must not wait for that.
func TestAVoterThatComesBackIsReplicatedToAtOnce(t *testing.T) {
	for _, away := range []time.Duration{time.Second, time.Minute} {
		dir := t.TempDir()
		onBench(t, func(b *bench) {
			b.found(inDirs(dir))
			b.commit("a")
			f := b.followers()[0]
			b.kill(f)
			b.commit("b")
			time.Sleep(away)
			term := b.leader().raft().Term()
			f = b.start(f.name, inDirs(dir))
			began := time.Now()
			for !slices.Contains(f.tape().entries(), "b") {
				time.Sleep(time.Millisecond)
				if time.Since(began) > time.Minute {
					t.Fatal("not within a minute")
				}
			}
			if took := time.Since(began); took > 500*time.Millisecond {
				t.Errorf("away for %v: replicated after %v", away, took)
			}
			if now := b.leader().raft().Term(); now != term {
				t.Errorf("the term went from %d to %d", term, now)
			}
		})
	}
}

// A call waits for the server's return, and for nothing once the term is over.
func TestReach(t *testing.T) {
	errDown := errors.New("down")
	synctest.Test(t, func(t *testing.T) {
		r := newReach()
		serving := true
		r.started(func(server string, term uint64) bool { return serving })
		sent := 0
		down := true
		result := make(chan error, 1)
		keep := func() {
			result <- r.keep("n1", 1, func() error {
				if sent++; down {
					return errDown
				}
				return nil
			})
		}
		go keep()
		time.Sleep(time.Hour)
		r.note("n1", false)
		r.note("n2", true) // another server
		synctest.Wait()
		if sent != 1 || len(result) > 0 {
			t.Fatalf("sent %d times to a server out of reach", sent)
		}
		down = false
		r.note("n1", true)
		if err := <-result; err != nil || sent != 2 {
			t.Errorf("after the return: %v, sent %d times", err, sent)
		}
		down = true
		go keep()
		synctest.Wait()
		serving = false
		r.changed.Wake()
		if err := <-result; err != errDown {
			t.Errorf("after the term: %v", err)
		}
	})
}
