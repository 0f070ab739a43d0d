// Command gcounter counts on three replicas without any lock: a grow-only counter. Each
// replica adds to its own slot. A merge of two counters takes the larger number of each
// slot. Merges may come late, twice, or in any order, and all replicas end with one sum:
//
//	go run ./examples/gcounter
//
// Before you take a lock, see whether your changes commute like these additions. Then no
// process waits, no pause can lose a change, and no cluster is needed. The counter cannot
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
// grows. So no two replicas may have one name, and a replica that has lost its slot must
// come back under another name: a slot that begins again at zero is smaller than the
// copies of the other replicas, and new additions in the slot are lost.
type Counter map[string]uint64

// Add counts n more, under the replica's own name.
func (c Counter) Add(replica string, n uint64) { c[replica] += n }

// Merge adds the knowledge of other. Merge is commutative, associative and idempotent,
// and by these three laws needs no lock.
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
		// Any message may come now, and again later; most are lost.
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
