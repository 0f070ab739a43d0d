package term

// fitMap is a map whose memory follows its size. A map of Go's keeps the memory of its largest
// size: a peer that fills the map of one stream after the other, and empties each, would
// have them all kept, for nothing that is counted.
type fitMap[K comparable, V any] struct {
	m    map[K]V
	peak int // the size for which there is memory
}

// leastPeak is the size of a map that is not worth to be made smaller.
const leastPeak = 64

func (f *fitMap[K, V]) len() int { return len(f.m) }

func (f *fitMap[K, V]) has(k K) bool {
	_, ok := f.m[k]
	return ok
}

func (f *fitMap[K, V]) set(k K, v V) {
	if f.m == nil {
		f.m = make(map[K]V)
	}
	f.m[k] = v
	f.peak = max(f.peak, len(f.m))
}

func (f *fitMap[K, V]) delete(k K) {
	delete(f.m, k)
	if f.peak <= leastPeak || len(f.m) > f.peak/4 {
		return
	}
	smaller := make(map[K]V, len(f.m))
	for k, v := range f.m {
		smaller[k] = v
	}
	f.m, f.peak = smaller, len(smaller)
}
