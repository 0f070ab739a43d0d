package model

import (
	"fmt"
	"strings"
)

// An observed event of a run of the real thing is visible from outside: the text of the
// step of the model for which the event stands.
type observed string

// acceptance follows a run of the real thing in the model, with all states in which the
// model may be.
type acceptance struct {
	r       sessions
	m       model[sessionState]
	states  []sessionState
	largest int
}

func newAcceptance(r sessions) *acceptance {
	m := r.model()
	return &acceptance{r: r, m: m, states: m.start}
}

// The steps that nobody sees from outside. Every other step is an observed event: a model
// that confirms a beat or commits an entry has seen so in the run.
var unseen = []string{
	"begins a round", "a voter beside its own confirms", "the round of leader",
	"hears that", "ends the round, confirming nothing",
}

func hidden(text string) bool {
	for _, u := range unseen {
		if strings.Contains(text, u) {
			return true
		}
	}
	return false
}

// name is the text of a step, with the number of confirmed beats.
func name(l step, before, after sessionState) observed {
	text := l.String()
	if !strings.Contains(text, "ends the round") {
		return observed(text)
	}
	confirmed := ", confirming nothing"
	for c := range before.clients {
		n := 0
		for b := range before.clients[c].beats {
			n += int(after.clients[c].beats[b].acked) - int(before.clients[c].beats[b].acked)
		}
		if n > 0 {
			confirmed = fmt.Sprintf(", confirming %d of client %s", n, letter(c))
		}
	}
	return observed(text + confirmed)
}

// closure adds all states that unseen steps lead to.
func (a *acceptance) closure(states []sessionState) []sessionState {
	seen := make(map[sessionState]struct{}, len(states))
	for _, s := range states {
		seen[s] = struct{}{}
	}
	for i := 0; i < len(states); i++ {
		before := states[i]
		a.m.steps(before, func(l step, after sessionState) {
			if _, known := seen[after]; known || !hidden(string(name(l, before, after))) {
				return
			}
			seen[after] = struct{}{}
			states = append(states, after)
		})
	}
	a.largest = max(a.largest, len(states))
	return states
}

// take follows an event. The result is false if the model has no such step in any of its
// states, or breaks a promise.
func (a *acceptance) take(e observed) bool {
	seen := make(map[sessionState]struct{})
	var next []sessionState
	for _, before := range a.closure(a.states) {
		if before.idle(e) {
			next = append(next, before)
			continue
		}
		a.m.steps(before, func(l step, after sessionState) {
			if _, known := seen[after]; known || name(l, before, after) != e || a.m.wrong(after) != "" {
				return
			}
			seen[after] = struct{}{}
			next = append(next, after)
		})
	}
	a.states = next
	return len(next) > 0
}

// idle reports whether e is a beat at a leader that can confirm nothing: the model stops
// such a leader at once, and the beat changes nothing.
func (s *sessionState) idle(e observed) bool {
	var i int
	_, err := fmt.Sscanf(string(e), "leader %d receives a beat", &i)
	return err == nil && s.leaders[i-1].life == deposed
}

// refused follows a whole run, and returns the number of the first event without a step in
// the model, or -1.
func (a *acceptance) refused(run []observed) int {
	for i, e := range run {
		if !a.take(e) {
			return i
		}
	}
	return -1
}
