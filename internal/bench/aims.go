package main

import (
	"fmt"
	"slices"
	"time"
)

// An aim is a ratio, or a figure, that wardmote is to reach.
type aim struct {
	workload   string
	ours, peer string // peer "": an aim about wardmote alone
	quantity   quantity
	bound      float64 // in seconds, or a ratio
	most       bool    // the bound is the largest good value, not the least
}

// A quantity is computed from a sample.
type quantity struct {
	name string
	of   func(sample) float64
}

var (
	rate   = quantity{"rate", sample.rate}
	p99    = quantity{"p99", func(s sample) float64 { return s.P99.Seconds() }}
	middle = quantity{"p50", func(s sample) float64 { return s.P50.Seconds() }}
)

var aims = []aim{
	{"own/1", "wardmote", "etcd", rate, 1.8, false},
	{"lazy/1", "wardmote", "etcd", rate, 3, false},
	{"own/1", "wardmote-boot", "etcd", rate, 5, false},
	{"own/1", "wardmote-memory", "etcd", rate, 7, false},
	{"lazy/1", "wardmote-memory", "etcd", rate, 9, false},
	{"own/256", "wardmote", "etcd", rate, 8, false},
	{"own/256", "wardmote-memory", "etcd", rate, 10, false},
	{"hot/16", "wardmote", "etcd", rate, 10, false},
	{"hot/16", "wardmote-memory", "etcd", rate, 30, false},
	{"own/256", "wardmote", "zookeeper", rate, 20, false},
	{"own/256", "wardmote-memory", "zookeeper", rate, 30, false},
	{"own/256", "wardmote-memory", "redis", rate, 1.1, false},
	{"open/half", "wardmote", "etcd", p99, 0.6, true},
	{"open/half", "wardmote-memory", "etcd", p99, 0.2, true},
	{"again/1", "wardmote", "", middle, 1e-6, true},
	{"again/1", "wardmote-memory", "", middle, 1e-6, true},
}

// quickSelection returns the workloads and the systems of the aims.
func quickSelection() (only, systems []string) {
	for _, a := range aims {
		only = append(only, a.workload)
		systems = append(systems, a.ours)
		if a.peer != "" {
			systems = append(systems, a.peer)
		}
	}
	slices.Sort(only)
	slices.Sort(systems)
	return slices.Compact(only), slices.Compact(systems)
}

// measured returns the aim's figure in some tables: the median of the rounds.
func (a aim) measured(tables []table) (spread, bool) {
	for _, t := range tables {
		if t.workload.name != a.workload {
			continue
		}
		us, them := t.samples[a.ours], t.samples[a.peer]
		switch {
		case len(us) == 0 || a.peer != "" && len(them) == 0:
			return spread{}, false
		case a.peer != "":
			return spreadOf(ratios(us, them, a.quantity.of)), true
		}
		var values []float64
		for _, s := range us {
			values = append(values, a.quantity.of(s))
		}
		return spreadOf(values), true
	}
	return spread{}, false
}

// met reports whether a median is as good as the aim wants.
func (a aim) met(s spread) bool {
	if a.most {
		return s.median <= a.bound
	}
	return s.median >= a.bound
}

// text prints a value of the aim's quantity.
func (a aim) text(v float64) string {
	if a.peer == "" {
		return time.Duration(v * 1e9).String()
	}
	return fmt.Sprintf("%.3gx", v)
}
