package meter

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// Limits of the labels that a program gives to keys.
const (
	MaxLabels     = 100 // values; all further values count as Other
	MaxLabelBytes = 64  // of a value; a longer value is cut
)

// Other is the label of all values past MaxLabels, and of the empty value.
const Other = "other"

// Series has the counts of the requests with one label.
type Series struct {
	Label string
	Waits Span
	Holds Span
	Lost  Counter
	held  atomic.Int64
}

// Granted and Ended count the grants that are held.
func (s *Series) Granted() { s.held.Add(1) }

// Ended counts the end of a grant.
func (s *Series) Ended() { s.held.Add(-1) }

// Held returns the number of grants that are held.
func (s *Series) Held() int64 { return s.held.Load() }

// Labels has a series for each label, and no more than MaxLabels and Other: the first
// values keep their series for good.
type Labels struct {
	label func(key string) string
	other *Series

	mu    sync.Mutex                         // of writers
	known atomic.Pointer[map[string]*Series] // replaced, never changed
}

// NewLabels returns a table of the labels that the function gives.
func NewLabels(label func(key string) string) *Labels {
	t := &Labels{label: label, other: &Series{Label: Other}}
	t.known.Store(&map[string]*Series{Other: t.other})
	return t
}

// series returns the series of key's label.
func (t *Labels) series(key string) *Series {
	value := t.label(key)
	if s := (*t.known.Load())[value]; s != nil {
		return s
	}
	value = cleanLabel(value)
	known := *t.known.Load()
	if s := known[value]; s != nil {
		return s
	}
	if len(known) > MaxLabels {
		return t.other
	}
	return t.add(value)
}

// add returns the series of a clean value, which may be new.
func (t *Labels) add(value string) *Series {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := *t.known.Load()
	if s := known[value]; s != nil {
		return s
	}
	if len(known) > MaxLabels { // with Other
		return t.other
	}
	known = maps.Clone(known)
	s := &Series{Label: strings.Clone(value)} // not a part of a long key
	known[s.Label] = s
	t.known.Store(&known)
	return s
}

// All returns all series, by label.
func (t *Labels) All() []*Series {
	return slices.SortedFunc(maps.Values(*t.known.Load()), func(a, b *Series) int { return strings.Compare(a.Label, b.Label) })
}

// cleanLabel returns value as valid UTF-8 of at most MaxLabelBytes, and Other for "".
func cleanLabel(value string) string {
	value = cutLabel(strings.ToValidUTF8(cutLabel(value), string(utf8.RuneError)))
	if value == "" {
		return Other
	}
	return value
}

// cutLabel returns the beginning of value, of at most MaxLabelBytes, and cuts no rune.
func cutLabel(value string) string {
	if len(value) <= MaxLabelBytes {
		return value
	}
	end := MaxLabelBytes
	for end > MaxLabelBytes-utf8.UTFMax && !utf8.RuneStart(value[end]) {
		end--
	}
	return value[:end]
}
