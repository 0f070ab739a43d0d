package term

import "time"

// dueAt is the part of a deadline or a delay needed by dueHeap.
type dueAt struct {
	at    time.Time // when to look again
	place int       // in the heap
}

func (d *dueAt) when() *dueAt { return d }

type due interface{ when() *dueAt }

// dueHeap orders deadlines and delays by the time of the next look, for package
// container/heap.
type dueHeap []due

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].when().at.Before(h[j].when().at) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].when().place, h[j].when().place = i, j
}

func (h *dueHeap) Push(x any) {
	d := x.(due)
	d.when().place = len(*h)
	*h = append(*h, d)
}

func (h *dueHeap) Pop() any {
	old := *h
	d := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return d
}
