package meter

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// An observation is in the bucket of the first bound that is not below it.
func TestBuckets(t *testing.T) {
	var s Span
	for _, d := range []time.Duration{-time.Second, 0, time.Millisecond, time.Millisecond + 1, time.Minute, 7 * time.Hour} {
		s.Observe(d)
	}
	h := s.Read()
	if want := []uint64{3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}; !slices.Equal(h.Counts, want) {
		t.Errorf("counts %v", h.Counts)
	}
	if want := 2*time.Millisecond + 1 + time.Minute + 7*time.Hour; h.Sum != want || h.Count() != 6 {
		t.Errorf("%d observations, sum %v", h.Count(), h.Sum)
	}
	for _, bounds := range [][maxBounds]time.Duration{spanBounds, latencyBounds} {
		if !slices.IsSorted(bounds[:]) || slices.Contains(bounds[:], 0) {
			t.Errorf("bounds %v", bounds)
		}
	}
}

// What nobody reads may be nil.
func TestNilCounts(t *testing.T) {
	var c *Counter
	var l *Latency
	var s *Span
	c.Inc()
	l.Observe(1)
	s.Observe(1)
}

// All fields of a Client and a Node work as zero values, so that counting needs no setup.
func TestCountsNeedNoSetup(t *testing.T) {
	for _, v := range []any{&Client{}, &Node{}} {
		of := reflect.ValueOf(v).Elem()
		for i := range of.NumField() {
			if kind := of.Type().Field(i).Type.Kind(); kind == reflect.Pointer || kind == reflect.Map {
				t.Errorf("%s.%s has to be made", of.Type(), of.Type().Field(i).Name)
			}
		}
	}
	if size := reflect.TypeFor[Client]().Size(); size > 2<<10 {
		t.Errorf("a client counts in %d bytes", size)
	}
}

func TestTheFirstHundredLabelsAreKept(t *testing.T) {
	calls := 0
	l := NewLabels(func(key string) string { calls++; return key })
	var c Client
	if c.Series("before") != nil {
		t.Error("counted without labels")
	}
	c.Add(l)
	for i := range 1000 {
		s := c.Series(fmt.Sprint(i))
		want := fmt.Sprint(i)
		if i >= MaxLabels {
			want = Other
		}
		if len(s) != 1 || s[0].Label != want {
			t.Fatalf("%d is counted as %+v", i, s)
		}
	}
	if first, again := c.Series("7")[0], c.Series("7")[0]; first != again || c.Series("")[0].Label != Other || c.Series(Other)[0].Label != Other {
		t.Error("a label has two series")
	}
	if all := l.All(); len(all) != MaxLabels+1 || !slices.IsSortedFunc(all, func(a, b *Series) int { return strings.Compare(a.Label, b.Label) }) {
		t.Errorf("%d series", len(all))
	}
	if calls != 1004 {
		t.Errorf("%d calls for 1004 requests", calls)
	}
	runtime.KeepAlive(l)
}

// A label is valid UTF-8 of a bounded length, and keeps no long key in memory.
func TestLabelsAreClean(t *testing.T) {
	for range 10_000 {
		b := make([]byte, rand.N(2*MaxLabelBytes))
		for i := range b {
			b[i] = byte(rand.Uint32() >> rand.N(8))
		}
		value := cleanLabel(string(b))
		if !utf8.ValidString(value) || len(value) > MaxLabelBytes || value == "" {
			t.Fatalf("%q becomes %q", b, value)
		}
		if utf8.Valid(b) && len(b) > 0 && !strings.HasPrefix(string(b), value) {
			t.Fatalf("%q becomes %q", b, value)
		}
		if again := cleanLabel(value); again != value {
			t.Fatalf("%q becomes %q, and then %q", b, value, again)
		}
	}
}

// Many callers find the same series, and never too many.
func TestLabelsAtOnce(t *testing.T) {
	l := NewLabels(func(key string) string { return key })
	var c Client
	c.Add(l)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 500 {
				for _, s := range c.Series(fmt.Sprint(i % 150)) {
					s.Granted()
				}
			}
		})
		wg.Go(func() { l.All() })
	}
	wg.Wait()
	sum := int64(0)
	for _, s := range l.All() {
		sum += s.Held()
	}
	if n := len(l.All()); n != MaxLabels+1 || sum != 4000 {
		t.Errorf("%d series, %d grants", n, sum)
	}
}

// A client does not keep the labels of a handler that is gone.
func TestUnusedLabelsAreForgotten(t *testing.T) {
	var c Client
	for range 100 {
		c.Add(NewLabels(func(key string) string { return key }))
	}
	kept := NewLabels(func(key string) string { return key })
	runtime.GC()
	runtime.GC()
	c.Add(kept)
	if n := len(*c.labels.Load()); n != 1 {
		t.Errorf("%d labels are in use", n)
	}
	if s := c.Series("a"); len(s) != 1 || s[0] != kept.All()[0] {
		t.Errorf("%v", s)
	}
	runtime.KeepAlive(kept)
}

func TestEncoderWrites(t *testing.T) {
	var l Latency
	l.Observe(3 * time.Second)
	text := func(open bool) string {
		e := Encoder{Open: open}
		e.Family(Family{Name: "a_total", Kind: KindCounter, Help: "A \\ \"b\"\nc."})
		e.Count("a_total", 1<<63, "x", "\"\n\\\xff", "y", "")
		e.Family(Family{Name: "b_info", Kind: KindInfo, Help: "B."})
		e.Count("b_info", 1)
		e.Family(Family{Name: "c_seconds", Kind: KindHistogram, Unit: "seconds", Help: "C."})
		e.Histogram("c_seconds", l.Read(), "k", "v")
		return string(e.End())
	}
	for _, want := range []string{
		"# HELP a A \\\\ \\\"b\\\"\\nc.\n# TYPE a counter\na_total{x=\"\\\"\\n\\\\\uFFFD\",y=\"\"} 9223372036854775808\n",
		"# TYPE b info\nb_info 1\n",
		"# TYPE c_seconds histogram\n# UNIT c_seconds seconds\nc_seconds_bucket{k=\"v\",le=\"0.0001\"} 0\n",
		"c_seconds_bucket{k=\"v\",le=\"1.0\"} 0\nc_seconds_bucket{k=\"v\",le=\"2.5\"} 0\nc_seconds_bucket{k=\"v\",le=\"5.0\"} 1\nc_seconds_bucket{k=\"v\",le=\"10.0\"} 1\nc_seconds_bucket{k=\"v\",le=\"+Inf\"} 1\nc_seconds_count{k=\"v\"} 1\nc_seconds_sum{k=\"v\"} 3\n# EOF\n",
	} {
		if got := text(true); !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	for _, want := range []string{
		"# HELP a_total A \\\\ \"b\"\\nc.\n# TYPE a_total counter\n",
		"# TYPE b_info gauge\n",
		"c_seconds_bucket{k=\"v\",le=\"1\"} 0\n",
	} {
		if got := text(false); !strings.Contains(got, want) || strings.Contains(got, "# EOF") || strings.Contains(got, "# UNIT") {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

// The labels of requests that find their series, of a million different keys, and the
// counts of a lock's life.
func BenchmarkSeries(b *testing.B) {
	var c Client
	b.Run("no labels", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Series("orders/7")
		}
	})
	l := NewLabels(func(key string) string { return key })
	c.Add(l)
	keys := make([]string, 1<<20)
	for i := range keys {
		keys[i] = fmt.Sprint("orders/", i)
		if i < 1000 {
			c.Series(keys[i])
		}
	}
	for name, mask := range map[string]int{"known": 63, "a million keys": len(keys) - 1} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.Series(keys[i&mask])
			}
		})
	}
	runtime.KeepAlive(l)
}

func BenchmarkLockCounted(b *testing.B) {
	var c Client
	b.ReportAllocs()
	for b.Loop() {
		c.Waits.Observe(3 * time.Millisecond)
		c.Held.Add(1)
		c.Held.Add(-1)
		c.Holds.Observe(2 * time.Second)
	}
}
