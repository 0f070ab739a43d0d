package model

import (
	"fmt"
	"strings"
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

func (r shards) bounds() string {
	if r.steady {
		return fmt.Sprintf("%d callers, %d shards", r.callers, r.from)
	}
	return fmt.Sprintf("%d callers, %d shards and a change to %d", r.callers, r.from, 3-r.from)
}

func TestShardsHaveOneOwner(t *testing.T) {
	name, all := "shards.txt", []shards{allShardRules()}
	all[0].alike = true
	if testrounds.Full() {
		name, all = "shards_full.txt", append(all, all[0], all[0], all[0])
		all[1].from = 2
		all[2].callers, all[2].steady = 3, true
		all[3].from, all[3].steady = 2, true
	}
	var text strings.Builder
	for _, r := range all {
		text.WriteString(holds(t, r.model(), r.bounds(), 30_000_000))
	}
	golden(t, name, text.String())
}

func TestEachRuleOfShardsIsNeeded(t *testing.T) {
	const (
		twoOwners = "own shard"
		numbers   = "different numbers"
	)
	var text strings.Builder
	for _, c := range []struct {
		name    string
		without func(r *shards)
		want    string
	}{
		{"work begins with the assignment", func(r *shards) { r.underLock = false }, twoOwners},
		{"a key is released while the work goes on", func(r *shards) { r.endsFirst = false }, twoOwners},
		{"a key has two holders", func(r *shards) { r.exclusive = false }, twoOwners},
		{"a session ends while its client trusts it", func(r *shards) { r.trusts = false }, twoOwners},
		{"a caller of another number is taken in", func(r *shards) { r.sameNumber = false; r.from = 2 }, numbers},
		{"a group without callers changes its number while a work goes on", func(r *shards) { r.renumberFree = false }, numbers},
		{"the number changes beside callers of the former", func(r *shards) { r.callersGone = false }, numbers},
		{"the number changes while a key is held", func(r *shards) { r.heldFree = false }, numbers},
		{"shards are assigned while the number changes", func(r *shards) { r.assignWaits = false }, numbers},
		{"a caller leaves a changing group before its turns have ended", func(r *shards) { r.worksReturn = false }, numbers},
		{"a caller leaves with waits that go on", func(r *shards) { r.waitsEnd = false }, numbers},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := allShardRules()
			c.without(&r)
			fmt.Fprintf(&text, "# %s\n%s\n", c.name, breaks(t, r.model(), 3_000_000, c.want))
		})
	}
	golden(t, "shards_rules.txt", text.String())
}
