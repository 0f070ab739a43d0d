package founding

import (
	"fmt"
	"testing"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
)

// sightings is a Members of a moment.
type sightings []member.Sighting

func (s sightings) Alive() []member.Sighting { return s.All() }
func (s sightings) All() []member.Sighting   { return s }
func (sightings) Changed() <-chan struct{}   { return nil }

// After a restart of everybody hundreds of members have a dead process of their name. The founders are
// asked at the first look, and not behind all of these; and the processes that are proved to have
// ended make nobody doubtful.
func TestFoundersAreAskedBesideManyNamesakes(t *testing.T) {
	var list sightings
	ended := false
	old := member.Metadata{Cluster: machine.ClusterID{1}}
	for i := range 300 {
		meta := member.Metadata{Founder: i%100 == 99}
		name := fmt.Sprintf("m%03d", i)
		list = append(list,
			member.Sighting{Process: member.Process{Name: name, Boot: 1, Addr: fmt.Sprint("old", i)}, Meta: old},
			member.Sighting{Process: member.Process{Name: name, Boot: 2, Addr: fmt.Sprint("new", i)}, Meta: meta, Alive: true})
	}
	r := &Runner{cfg: Config{Members: list, Ended: func(_ string, boot uint64) bool { return ended && boot == 1 }}}
	founders := func() (n, all int) {
		for _, s := range r.doubtful() {
			if s.Meta.Founder {
				n++
			}
			all++
		}
		return n, all
	}
	if n, all := founders(); n != 3 || all != maxAsked {
		t.Errorf("%d founders among the %d asked first", n, all)
	}
	ended = true
	if n, all := founders(); n != 3 || all != 3 {
		t.Errorf("%d founders among the %d asked beside processes that have ended", n, all)
	}
}
