package main

import "slices"

// A spread is the median of some values with the smallest and the largest.
type spread struct{ least, median, most float64 }

// spreadOf returns the spread of at least one value.
func spreadOf(values []float64) spread {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return spread{s[0], (s[(n-1)/2] + s[n/2]) / 2, s[n-1]}
}

func rates(samples []sample) []float64 {
	var out []float64
	for _, s := range samples {
		out = append(out, s.rate())
	}
	return out
}

// ratios returns f(a)/f(b) of each round. a and b have the same rounds.
func ratios(a, b []sample, f func(sample) float64) []float64 {
	var out []float64
	for i := range min(len(a), len(b)) {
		out = append(out, f(a[i])/f(b[i]))
	}
	return out
}

// perCycle returns the mean of f over the cycles of all samples.
func perCycle(samples []sample, f func(sample) float64) float64 {
	sum, cycles := 0.0, 0.0
	for _, s := range samples {
		sum += f(s)
		cycles += float64(s.Cycles)
	}
	return sum / cycles
}

// median returns the median of f over the samples.
func median(samples []sample, f func(sample) float64) float64 {
	var v []float64
	for _, s := range samples {
		v = append(v, f(s))
	}
	return spreadOf(v).median
}
