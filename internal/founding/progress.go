package founding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wardmote/wardmote/internal/member"
)

// NoCluster begins the text of Progress of a member that is in no cluster.
const NoCluster = "no cluster yet: "

// Progress says how far a member without a cluster has come, who is missing, and
// what came of each address of Join. For a member of a cluster Progress says what
// a successor waits for, and is "" if none is in sight.
func (r *Runner) Progress() string {
	r.mu.Lock()
	note := r.note
	r.mu.Unlock()
	floor := r.floors.text()
	if r.value.Load() != nil {
		if note != "" && floor != "" {
			note += "; "
		}
		return note + floor
	}
	texts := []string{NoCluster + r.seen()}
	if note != "" {
		texts = append(texts, note)
	}
	if floor != "" {
		texts = append(texts, floor)
	}
	if r.cfg.Tried != nil {
		for _, t := range r.cfg.Tried() {
			texts = append(texts, "join address "+t)
		}
		if len(r.cfg.Join) == 0 {
			texts = append(texts, "Join names no address, so this member looks for nobody and waits to be found")
		}
	}
	return strings.Join(texts, "; ")
}

// seen names the first members in this member's sight, and the missing members.
func (r *Runner) seen() string {
	living := r.living()
	switch {
	case len(r.cfg.Founders) > 0:
		var here []member.Sighting
		missing := slices.Clone(r.cfg.Founders)
		for _, s := range living {
			if i := slices.Index(missing, s.Name); i >= 0 {
				missing = slices.Delete(missing, i, i+1)
				here = append(here, s)
			}
		}
		text := fmt.Sprintf("%d of %d founders seen%s", len(here), len(r.cfg.Founders), names(here))
		if len(missing) > 0 {
			text += "; missing " + strings.Join(missing, ", ")
		}
		return text
	case r.cfg.InitialSize > 0 && !r.cfg.Thin:
		here := r.founders()
		text := fmt.Sprintf("%d of %d first members seen%s", len(here), r.cfg.InitialSize, names(here))
		if missing := r.cfg.InitialSize - len(here); missing > 0 {
			text += fmt.Sprintf("; missing %d", missing) // by number: the names are declared nowhere
		}
		return text
	}
	return fmt.Sprintf("this member only joins, and no member of a cluster was found at %q", r.cfg.Join)
}

// maxNames bounds the members named in a text.
const maxNames = 8

// names lists sightings by name and address.
func names(all []member.Sighting) string {
	if len(all) == 0 {
		return ""
	}
	var texts []string
	for _, s := range all[:min(len(all), maxNames)] {
		texts = append(texts, s.Name+" at "+s.Addr)
	}
	if more := len(all) - maxNames; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return " (" + strings.Join(texts, ", ") + ")"
}
