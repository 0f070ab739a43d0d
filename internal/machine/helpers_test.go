package machine

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// use has a hold key, leave value, and release.
func use(t *testing.T, s *State, seq *uint64, key, value string, fade bool) Token {
	t.Helper()
	*seq++
	a := session16("a")
	out, _ := apply(t, s, Acquire{Session: a, Seq: *seq, Key: key}, Granted)
	if value != "" {
		apply(t, s, SetValue{Session: a, Token: out.Token, Rev: 1, Value: []byte(value), Fade: fade}, OK)
	}
	apply(t, s, Release{Session: a, Token: out.Token}, OK)
	return out.Token
}

func withA(t testing.TB) *State {
	s := founded()
	apply(t, s, Open{Session: session16("a"), Client: "a", TTL: 1000}, OK)
	return s
}

// content is a Digest of all but the number of commands.
func content(s *State) [sha256.Size]byte {
	i := s.Snapshot()
	i.header.commands = 0
	return i.Digest()
}

func restored(s *State) (*State, error) {
	var b bytes.Buffer
	if _, err := s.Snapshot().WriteTo(&b); err != nil {
		return nil, err
	}
	r, err := Restore(&b)
	if err == nil {
		r.slice, r.quota, r.admits = s.slice, s.quota, s.admits
	}
	return r, err
}

// TestMain sets the number of rapid's cases: 80, or 600 in a full run. The world is
// small, but the meetings in it are many.
func TestMain(m *testing.M) {
	testrounds.CollectRarely()
	if err := flag.Set("rapid.checks", fmt.Sprint(testrounds.Rounds(80, 600))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func founded() *State {
	s := New()
	for _, c := range []Command{
		Found{Cluster: ClusterID{1}, Floor: 1, TTL: 10_000},
		LeaderStart{Term: 1},
		Raise{Term: 1, Format: MaxFormat},
		Lift{Term: 1},
	} {
		if out, _ := s.Apply(c); out.Code != OK {
			panic(fmt.Sprintf("%#v: %+v", c, out))
		}
	}
	return s
}

func name(id SessionID) string {
	if id == (SessionID{}) {
		return "nobody"
	}
	return strings.TrimRight(string(id[:]), "\x00")
}

func session16(name string) (id SessionID) {
	if name != "nobody" {
		copy(id[:], name)
	}
	return id
}

func image(s *State) []byte {
	var b bytes.Buffer
	if _, err := s.Snapshot().WriteTo(&b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// end ends a session by c and as many slices as it takes, and returns all events.
func end(t testing.TB, s *State, c Command, id SessionID) (events []Event) {
	t.Helper()
	out, events := s.Apply(c)
	for out.Code == Unfinished {
		var more []Event
		out, more = s.Apply(EndSlice{Session: id})
		events = append(events, more...)
	}
	if out.Code != OK {
		t.Fatalf("%#v: %+v", c, out)
	}
	return events
}

func apply(t testing.TB, s *State, c Command, want Code) (Outcome, []Event) {
	t.Helper()
	out, events := s.Apply(c)
	if out.Code != want {
		t.Fatalf("%#v: %+v, want code %d", c, out, want)
	}
	return out, events
}
