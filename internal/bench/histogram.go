package main

import (
	"math/bits"
	"time"
)

// A histogram counts durations in buckets whose width is a sixteenth of the power of two
// below: its quantiles are at most 7 % too large.
type histogram struct {
	buckets [64 * 16]uint64
	n       uint64
	longest time.Duration
}

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < 16 {
		return int(v)
	}
	shift := bits.Len64(v) - 5
	return (shift+1)*16 + int(v>>shift) - 16
}

// upper returns the largest duration of a bucket.
func upper(bucket int) time.Duration {
	if bucket < 16 {
		return time.Duration(bucket)
	}
	shift := bucket/16 - 1
	return time.Duration((uint64(bucket%16)+17)<<shift - 1)
}

func (h *histogram) add(d time.Duration) {
	h.buckets[bucketOf(d)]++
	h.n++
	h.longest = max(h.longest, d)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.n += o.n
	h.longest = max(h.longest, o.longest)
}

// quantile returns the duration that a share q of all durations does not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	want := uint64(q * float64(h.n))
	var seen uint64
	for i, n := range h.buckets {
		seen += n
		if n > 0 && seen >= want {
			return min(upper(i), h.longest)
		}
	}
	return h.longest
}
