package main

import "slices"

// A target is a fuzz target.
type target struct{ name, pkg string }

// A rota decides which job is next.
type rota struct {
	commit  string
	suites  []suite
	targets []target
	seed    func() uint64
}

// next returns the next job after runs, with others running. A failure is tried again
// first; then suites that run once for each commit; then the suite with the smallest part of
// its share so far, at this commit or any other. false means: wait until a job has ended.
func (r *rota) next(runs []run, running []job) (job, bool) {
	if slices.ContainsFunc(running, func(j job) bool { s, _ := suiteOf(j.Suite); return s.alone }) {
		return job{}, false
	}
	j, ok := r.choose(runs, running)
	if s, _ := suiteOf(j.Suite); ok && s.alone && len(running) > 0 {
		return job{}, false
	}
	return j, ok
}

func (r *rota) choose(runs []run, running []job) (job, bool) {
	if j, due := r.again(runs, running); due {
		return j, true
	}
	for _, s := range r.suites {
		done := slices.ContainsFunc(runs, func(x run) bool { return x.Suite == s.name && x.Commit == r.commit })
		runs := slices.ContainsFunc(running, func(j job) bool { return j.Suite == s.name })
		if s.weight == 0 && !done && !runs {
			return job{Suite: s.name}, true
		}
	}
	var best *suite
	least := 0.0
	for i := range r.suites {
		s := &r.suites[i]
		if s.weight == 0 || s.name == "fuzz" && len(r.targets) == 0 {
			continue
		}
		spent := 0.0
		for _, x := range runs {
			if x.Suite == s.name {
				spent += x.Seconds
			}
		}
		for _, j := range running {
			if j.Suite == s.name {
				spent += s.slice.Seconds()
			}
		}
		if part := spent / float64(s.weight); best == nil || part < least {
			best, least = s, part
		}
	}
	if best == nil {
		return job{}, false
	}
	j := job{Suite: best.name, Seed: r.seed()}
	if best.name == "fuzz" {
		t := r.target(runs, running)
		j.Target, j.Package, j.Seed = t.name, t.pkg, 0
	}
	return j, true
}

// again returns the next repetition of a failure at this commit.
func (r *rota) again(runs []run, running []job) (job, bool) {
	for _, x := range runs {
		if !x.Failed || x.Again > 0 || x.Commit != r.commit {
			continue
		}
		if s, known := suiteOf(x.Suite); !known || s.weight == 0 || !slices.ContainsFunc(r.suites, func(o suite) bool { return o.name == x.Suite }) {
			continue // a model and the mutants have no seed
		}
		tried := 0
		for _, y := range runs {
			if y.Of == x.ID {
				tried++
			}
		}
		if slices.ContainsFunc(running, func(j job) bool { return j.Of == x.ID }) || tried >= againTimes {
			continue
		}
		j := x.job
		j.Seed, j.Plan = x.seedOf()
		j.Again, j.Of = tried+1, x.ID
		return j, true
	}
	return job{}, false
}

// target returns the fuzz target with the least time.
func (r *rota) target(runs []run, running []job) target {
	spent := make(map[target]float64)
	for _, x := range runs {
		spent[target{x.Target, x.Package}] += x.Seconds
	}
	for _, j := range running {
		spent[target{j.Target, j.Package}] += 1e9
	}
	return slices.MinFunc(r.targets, func(a, b target) int {
		switch {
		case spent[a] < spent[b]:
			return -1
		case spent[a] > spent[b]:
			return 1
		}
		return 0
	})
}
