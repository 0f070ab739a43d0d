// Command gcounter counts in three processes' stead without any lock: a grow-only counter.
// Each replica adds to a slot of its own, and two counters are merged by taking the larger
// number of each slot. Merges may come late, twice, or in any order, and every replica
// ends with the same sum:
//
//	go run ./examples/gcounter
//
// Before you take a lock, see whether the changes commute as here: nobody waits, nothing
// can be lost by a pause, and no cluster is needed. What the counter cannot do is to
// decide: "at most 100 in all" needs the sum before the next addition, and so a lock,
// permits, or an owner.
package main

import (
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"os"
)

// A Counter has the additions of each replica. Every slot has a single writer, and only
// grows. So a replica's name must be its own, and a replica that has lost its slot must
// come back under another name: it would begin at zero, and the others would take its
// additions for ones that they know.
type Counter map[string]uint64

// Add counts n more, under the replica's own name.
func (c Counter) Add(replica string, n uint64) { c[replica] += n }

// Merge takes over what other knows. Merge is commutative, associative and idempotent:
// that is all that makes the lock needless.
func (c Counter) Merge(other Counter) {
	for replica, n := range other {
		c[replica] = max(c[replica], n)
	}
}

// Sum returns the additions that c knows of.
func (c Counter) Sum() (n uint64) {
	for _, part := range c {
		n += part
	}
	return n
}

func main() {
	if err := demo(os.Stdout, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))); err != nil {
		log.Fatal(err)
	}
}

// demo lets three replicas count, over a network that loses, repeats and reorders.
func demo(out io.Writer, random *rand.Rand) error {
	names := []string{"ann", "ben", "cid"}
	replicas := make(map[string]Counter)
	for _, name := range names {
		replicas[name] = Counter{}
	}
	type message struct {
		to      string
		content Counter
	}
	var network []message
	send := func(from string) {
		for _, to := range names {
			network = append(network, message{to, maps.Clone(replicas[from])})
		}
	}
	const additions = 1000
	for range additions {
		name := names[random.IntN(len(names))]
		replicas[name].Add(name, 1)
		send(name)
		// Any message may come now, and come again later; most are lost.
		m := network[random.IntN(len(network))]
		replicas[m.to].Merge(m.content)
	}
	for _, name := range names {
		fmt.Fprintf(out, "%s knows of %d of %d additions\n", name, replicas[name].Sum(), additions)
	}
	fmt.Fprintln(out, "Each replica tells its counter once more:")
	for _, from := range names {
		for _, to := range names {
			replicas[to].Merge(replicas[from])
		}
	}
	for _, name := range names {
		fmt.Fprintf(out, "%s knows of %d of %d additions\n", name, replicas[name].Sum(), additions)
		if replicas[name].Sum() != additions {
			return fmt.Errorf("%s has another sum", name)
		}
	}
	return nil
}
