package gossip

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// self is this node in the tests without a network.
var self = member.Self{Name: "self", Boot: 9, Addr: "10.0.0.9:7000", Cluster: "test", Log: slog.New(slog.DiscardHandler)}

// listOf returns the list of a node in the given cluster, with itself on the list.
func listOf(own *machine.ClusterID) *members {
	m := newMembers(self, member.Metadata{Generation: 1}, func() machine.ClusterID { return *own })
	m.record(member.Sighting{Process: self.Process(), Alive: true})
	return m
}

// seen is a living process at an address of its own.
func seen(name string, boot uint64) member.Sighting {
	return member.Sighting{Process: member.Process{Name: name, Boot: boot, Addr: name + ":7000"}, Alive: true, Since: time.Now()}
}

func dead(s member.Sighting) member.Sighting {
	s.Alive = false
	return s
}

func TestGossipNamesAreReadBack(t *testing.T) {
	for _, p := range []member.Process{{Name: "a", Boot: 1}, {Name: "a.b.c", Boot: math.MaxUint64}} {
		name, boot, err := parseGossipName(gossipName(p))
		if err != nil || name != p.Name || boot != p.Boot {
			t.Errorf("%+v: read back as %q, %d, %v", p, name, boot, err)
		}
	}
	for _, s := range []string{"", "a", "a.", "a.!"} {
		if _, _, err := parseGossipName(s); err == nil {
			t.Errorf("%q was taken for a gossip name", s)
		}
	}
}

func TestNewsAreLifeAndDeathOnly(t *testing.T) {
	var own machine.ClusterID
	m := listOf(&own)
	for i, tt := range []struct {
		s      member.Sighting
		news   bool
		newest uint64
	}{
		{seen("a", 1), true, 1},
		{seen("a", 1), false, 1}, // a changed description
		{seen("a", 3), true, 3},
		{seen("a", 2), true, 3},        // an earlier process is heard of late
		{dead(seen("a", 1)), true, 3},  // the death of an earlier process
		{dead(seen("a", 1)), false, 3}, // told again
		{dead(seen("b", 1)), false, 0}, // the death of an unknown process
		{seen("b", 1), true, 1},
		{dead(seen("a", 3)), true, 2},
		{seen("a", 3), true, 3}, // back after a partition
	} {
		if news, newest := m.record(tt.s); news != tt.news || newest != tt.newest {
			t.Errorf("step %d: news %t, newest %d; want %t, %d", i, news, newest, tt.news, tt.newest)
		}
	}
}

func TestSinceChangesWithLifeAndDeathOnly(t *testing.T) {
	var own machine.ClusterID
	m := listOf(&own)
	first := seen("a", 1)
	first.Since = time.Unix(100, 0)
	again := first
	again.Since, again.Meta.Voter = time.Unix(200, 0), true
	m.record(first)
	m.record(again)
	if got := m.alive()[0]; !got.Since.Equal(first.Since) || !got.Meta.Voter {
		t.Errorf("after an update: %+v", got)
	}
	gone := dead(again)
	m.record(gone)
	if got := m.all()[0]; got.Alive || !got.Since.Equal(gone.Since) {
		t.Errorf("after the death: %+v", got)
	}
}

func TestOwnDescriptionIsListedAsOfNow(t *testing.T) {
	var own machine.ClusterID
	m := listOf(&own)
	changed := m.changed.Wait()
	if m.update(func(*member.Metadata) {}) {
		t.Error("a change of nothing was taken for a change")
	}
	select {
	case <-changed:
		t.Error("a change of nothing woke the waiters")
	default:
	}
	if !m.update(func(d *member.Metadata) { d.Format, d.Leads = 7, 3 }) {
		t.Error("a change was not noticed")
	}
	<-changed
	for _, list := range [][]member.Sighting{m.alive(), m.all()} {
		if len(list) != 1 || list[0].Meta.Leads != 3 || list[0].Meta.Generation != 1 {
			t.Errorf("listed as %+v", list)
		}
	}
	if f := member.FormatOf(m.all(), member.RaftID(self.Name, 1)); f != 7 {
		t.Errorf("own format %d, want 7", f)
	}
}

func TestMembersOfOtherClustersAreNotListed(t *testing.T) {
	var own machine.ClusterID
	m := listOf(&own)
	other, ours, none := seen("other", 1), seen("ours", 1), seen("none", 1)
	other.Meta.Cluster, ours.Meta.Cluster = machine.ClusterID{2}, machine.ClusterID{1}
	for _, s := range []member.Sighting{other, ours, none} {
		m.record(s)
	}
	if n := len(m.alive()); n != 4 {
		t.Errorf("without a cluster %d are listed, want all 4", n)
	}
	own = machine.ClusterID{1}
	if list := m.all(); len(list) != 3 || list[0].Name != "none" || list[1].Name != "ours" || list[2].Name != self.Name {
		t.Errorf("in a cluster: %v", list)
	}
}

func TestTheLongestDeadAreForgotten(t *testing.T) {
	var own machine.ClusterID
	m := listOf(&own)
	for i := range 2 * maxSeen {
		s := dead(seen(fmt.Sprint("d", i), 1))
		s.Since = time.Unix(int64(i), 0)
		m.record(s)
	}
	list := m.all()
	if len(list) != maxSeen {
		t.Fatalf("%d are remembered, want %d", len(list), maxSeen)
	}
	for _, s := range list {
		if s.Name != self.Name && s.Since.Unix() <= maxSeen {
			t.Fatalf("%s is remembered, dead since second %d", s.Name, s.Since.Unix())
		}
	}
	for i := range 2 * maxSeen {
		m.record(seen(fmt.Sprint("a", i), 1))
	}
	if n := len(m.alive()); n != 2*maxSeen+1 {
		t.Errorf("%d living members are listed, want %d", n, 2*maxSeen+1)
	}
}

// Above 512 bytes memberlist panics, above maxMeta the others refuse the member.
func TestTheLargestDescriptionFits(t *testing.T) {
	meta := member.Metadata{
		Version: math.MaxUint8, Generation: math.MaxUint64, Voter: true, Founder: true, Durable: true, Leaving: true, Ending: true,
		Thin: true, Zone: strings.Repeat("z", member.MaxName), Leads: math.MaxUint64, TTL: math.MaxUint64, Format: math.MaxUint8,
		Release: strings.Repeat("r", member.MaxRelease), Ahead: math.MinInt64,
	}
	for i := range meta.Cluster {
		meta.Cluster[i] = 0xff
	}
	meta.SetKeyIDs(slices.Repeat([][8]byte{{255, 255, 255, 255, 255, 255, 255, 255}}, member.MaxKeys+1))
	if len(meta.KeyIDs()) != member.MaxKeys || meta.Check() != nil {
		t.Errorf("%d keys, %v", len(meta.KeyIDs()), meta.Check())
	}
	b := wire.Marshal(&meta)
	t.Logf("%d bytes", len(b))
	if len(b) > maxMeta {
		t.Errorf("%d bytes, the limit is %d", len(b), maxMeta)
	}
	v := reflect.ValueOf(meta)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not as large as it can be", v.Type().Field(i).Name)
		}
	}
	// The largest member in a push-pull message, with the names of fields as
	// memberlist writes them.
	entry := wire.Marshal(map[string]any{
		"Name": gossipName(member.Process{Name: strings.Repeat("n", member.MaxName), Boot: math.MaxUint64}), "Addr": make([]byte, 16), "Port": math.MaxUint16,
		"Meta": make([]byte, maxMeta), "Incarnation": math.MaxUint32, "State": math.MaxUint8, "Vsn": []int{255, 255, 255, 255, 255, 255},
	})
	if len(entry) > maxEntry {
		t.Errorf("a member takes %d bytes, the limit is %d", len(entry), maxEntry)
	}
}

// The processes of a name are those that the list of all has, whatever has come and gone.
func TestProcessesAreFoundByName(t *testing.T) {
	own := machine.ClusterID{1}
	m := listOf(&own)
	check := func() {
		t.Helper()
		all := m.all()
		for _, name := range []string{"a", "b", "c", self.Name, "nobody"} {
			var want []member.Sighting
			for _, s := range all {
				if s.Name == name {
					want = append(want, s)
				}
			}
			if got := m.of(name); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %+v, want %+v", name, got, want)
			}
		}
		alive := slices.DeleteFunc(all, func(s member.Sighting) bool { return !s.Alive })
		if got := m.alive(); !reflect.DeepEqual(got, alive) {
			t.Fatalf("alive: %+v, want %+v", got, alive)
		}
		got, living := m.claimants()
		n := 0
		for _, s := range m.seen {
			if s.Alive {
				n++
			}
		}
		if living != n {
			t.Fatalf("%d living members, want %d", living, n)
		}
		slices.SortFunc(got, member.Compare)
		claimants := slices.DeleteFunc(alive, func(s member.Sighting) bool {
			return self.Is(s.Process) || !s.Meta.Voter && s.Meta.Leads == 0
		})
		if len(got)+len(claimants) > 0 && !reflect.DeepEqual(got, claimants) {
			t.Fatalf("claimants: %+v, want %+v", got, claimants)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		s := seen([]string{"a", "b", "c"}[rng.IntN(3)], 1+rng.Uint64N(6))
		s.Alive = rng.IntN(3) > 0
		s.Meta.Cluster = machine.ClusterID{uint8(rng.IntN(3))}
		s.Meta.Voter, s.Meta.Leads = rng.IntN(3) == 0, rng.Uint64N(2)
		m.record(s)
		if i%10 == 0 {
			own = machine.ClusterID{uint8(rng.IntN(3))}
			m.update(func(d *member.Metadata) { d.Leads = rng.Uint64N(3) })
		}
		check()
	}
	for i := range 2 * maxSeen { // the dead of the names are forgotten
		m.record(dead(seen(fmt.Sprint("d", i), 1)))
	}
	check()
	if got := len(m.names); got > maxSeen {
		t.Errorf("%d names are remembered", got)
	}
}

// A reader may do with a list what it likes.
func TestListsAreTheReaders(t *testing.T) {
	var own machine.ClusterID
	m := listOf(&own)
	m.record(seen("a", 1))
	m.all()[0].Name, m.alive()[1].Name = "x", "y"
	if m.all()[0].Name != "a" || m.alive()[1].Name != self.Name {
		t.Errorf("%+v, %+v", m.all(), m.alive())
	}
}

// Changes that follow each other closely are told together in a large cluster, the last of
// them too, and one by one in a small one.
func TestChangesOfManyMembersAreToldTogether(t *testing.T) {
	for members, together := range map[int]bool{timing.FewMembers - 2: false, 1000: true} {
		synctest.Test(t, func(t *testing.T) {
			var own machine.ClusterID
			m := listOf(&own)
			for i := range members {
				m.record(seen(fmt.Sprint("m", i), 1))
			}
			time.Sleep(time.Minute)
			told := make(chan int)
			stop := make(chan struct{})
			go func() {
				n, last := 0, false
				for {
					changed := m.changed.Wait()
					for _, s := range m.of("m1") {
						last = last || s.Meta.Leads == 500
					}
					select {
					case <-changed:
						n++
					case <-stop:
						if !last {
							t.Error("the last change is not told")
						}
						told <- n
						return
					}
				}
			}()
			synctest.Wait()
			began := time.Now()
			for i := range 500 {
				s := seen("m1", 1)
				s.Meta.Leads = uint64(i + 1)
				m.record(s)
				m.tell()
				synctest.Wait()
				time.Sleep(time.Millisecond)
			}
			took := time.Since(began)
			time.Sleep(time.Second)
			close(stop)
			n := <-told
			if most := int(took/timing.News(max(members, timing.FewMembers+1))) + 2; together && n > most || !together && n != 500 {
				t.Errorf("%d members: 500 changes are told %d times", members, n)
			}
			m.tell()
			m.tell()
			m.stop()
		})
	}
}
