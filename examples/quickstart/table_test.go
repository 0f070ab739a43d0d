package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// render returns the screen as text without colours.
func render(b *board, s screen, now time.Time, width, height int) []string {
	var out []string
	for _, l := range renderTable(b, s, now, width, height) {
		out = append(out, strings.TrimRight(l.text(false), " "))
	}
	return out
}

func busyBoard() *board {
	events := append(owning("ann", 10, 0, 4, 8), owning("cid", 20, 1, 2, 3, 5, 6, 7, 9)...)
	b := boardAfter(append(events, event{Kind: elected, Member: "cid", Token: 3764928399802368})...)
	b.apply(event{Kind: status, Member: "ann", Voter: true, Writes: 12, Trust: 1500 * time.Millisecond}, at(10000))
	b.row("ann").state = paused
	b.apply(event{Kind: status, Member: "cid", Voter: true, Leads: true, Writes: 345, Trust: 1900 * time.Millisecond}, at(12345))
	b.apply(event{Kind: exited, Member: "ben"}, at(0))
	return b
}

func TestTableShowsTheBoard(t *testing.T) {
	s := screen{latest: []string{"   1.0s  older", "   3.0s  the latest"}, page: "http://127.0.0.1:1/", hint: "try k", waiting: "waiting: k"}
	got := strings.Join(render(busyBoard(), s, at(12345), 90, 18), "\n")
	want := `wardmote  three processes, one cluster, TTL 2s                                       12.3s
live page http://127.0.0.1:1/  (ben/ is ben's own view)

member  state     trust                       role       votes  writes  owns shards
ann     paused    ···················· ended  –          yes        12  0 4 8
ben     dead      –                           –          no          7  –
cid     running   ███████████████████· 1.9s   scheduler  leads     345  1-3 5-7 9

   1.0s  older
   3.0s  the latest



jobs run 0   writes 364   stale writes refused 0
try k
waiting: k
k kill -9 the scheduler   p pause it 6s   i cut it off 6s   r restart the dead   q quit`
	if got != want {
		t.Errorf("table:\n%s\nwant:\n%s", got, want)
	}
}

func TestNarrowTableHasTheEssentials(t *testing.T) {
	got := strings.Join(render(busyBoard(), screen{}, at(12345), 60, 8), "\n")
	want := `wardmote  three processes, one cluster, TTL 2s         12.3s
member  state     trust         role       owns shards
ann     paused    ······ ended  –          0 4 8
ben     dead      –             –          –
cid     running   ██████ 1.9s   scheduler  1-3 5-7 9
jobs run 0   writes 364   stale writes refused 0
k kill   p pause   i cut off   r restart   q quit`
	if got != want {
		t.Errorf("table:\n%s\nwant:\n%s", got, want)
	}
}

func TestTableFitsTheScreen(t *testing.T) {
	b := busyBoard()
	for range 4 {
		b.apply(event{Kind: refused, Member: "ann", Shard: 3, Token: 10, Seen: 20}, at(0))
	}
	b.broken = strings.Repeat("broken ", 40)
	s := screen{latest: slices.Repeat([]string{strings.Repeat("é", 150), strings.Repeat("wo rd", 40)}, 25),
		page: strings.Repeat("p", 150), hint: strings.Repeat("hint ", 50), waiting: strings.Repeat("wait ", 50)}
	for _, size := range [][2]int{{80, 24}, {40, 12}, {60, 20}, {100, 28}, {200, 60}, {1, 1}, {10, 3}} {
		lines := renderTable(b, s, at(0), size[0], size[1])
		if len(lines) >= size[1] {
			t.Errorf("%d lines on a screen of %d: it would scroll", len(lines), size[1])
		}
		for _, l := range lines {
			if l.width() > size[0] {
				t.Errorf("a line of %d columns on a screen of %d", l.width(), size[0])
			}
		}
	}
}

// A process that is dead or stopped reports nothing, and its bar runs down all the same.
func TestTrustRunsDown(t *testing.T) {
	b := boardAfter(event{Kind: status, Member: "ann", Trust: 1800 * time.Millisecond})
	r := b.row("ann")
	var got []string
	for ms := 2500; ms <= 4500; ms += 400 {
		if ms == 2900 {
			b.apply(event{Kind: exited, Member: "ann"}, at(ms))
		}
		got = append(got, trustCell(r, at(ms), 10).text(false))
	}
	want := []string{"█████████· 1.8s", "███████··· 1.4s", "█████····· 1.0s", "███······· 0.6s", "█········· 0.2s", "·········· ended"}
	if !slices.Equal(got, want) {
		t.Errorf("trust:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The refusal is what the demo leads to.
func TestRefusalStandsOut(t *testing.T) {
	b := boardAfter(event{Kind: owns, Member: "ben", Shard: 3, Token: 20},
		event{Kind: refused, Member: "ann", Shard: 3, Token: 10, Seen: 20})
	got := strings.Join(render(b, screen{}, at(0), 80, 24), "\n")
	for _, want := range []string{"┃ THE FENCE REFUSED 1 stale write\n", "ann woke in the middle of a write to shard 3, under token 10.", "had shown token 20."} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if line := renderTable(b, screen{}, at(0), 80, 24)[7].text(true); !strings.Contains(line, "\x1b[1;97;41mTHE FENCE") {
		t.Errorf("%q is not in the colours of an alarm", line)
	}
}

func TestShardsAreSummedUp(t *testing.T) {
	for _, tt := range []struct {
		numbers []int
		want    string
	}{
		{nil, ""}, {[]int{7}, "7"}, {[]int{0, 1, 2, 3}, "0-3"}, {[]int{0, 2, 3, 7, 9, 10, 11}, "0 2-3 7 9-11"},
	} {
		if got := summed(tt.numbers); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.numbers, got, tt.want)
		}
	}
}

func TestOwnersAreToldOnceAfterABurst(t *testing.T) {
	b := boardAfter(append(owning("ann", 10, 0, 1, 2, 3), owning("ben", 20, 4, 5)...)...) // at 2500
	if got := b.changedOwners(at(2500)); got != "" {
		t.Errorf("told in the middle of the burst: %s", got)
	}
	if got, want := b.changedOwners(at(3000)), "ann owns 0-3, ben owns 4-5"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	if got := b.changedOwners(at(9000)); got != "" {
		t.Errorf("told again: %s", got)
	}
	for i, shard := range []int{4, 5} {
		b.apply(event{Kind: gaveUp, Member: "ben", Shard: shard, Token: fence.Token(20 + i)}, at(9000))
	}
	if got, want := b.changedOwners(at(9500)), "ben owns nothing"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	// The locks of a dead process are not free before its trust has run down.
	b.apply(event{Kind: exited, Member: "ann"}, at(10000))
	if got := b.changedOwners(at(10500)); got != "" {
		t.Errorf("told of a dead process: %s", got)
	}
}

func TestTextWrapsAtWords(t *testing.T) {
	got := wrapped("   1.0s  ann owns all the shards", 17, 9)
	want := []string{"   1.0s  ann owns", "         all the", "         shards"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := wrapped("averylongword", 5, 2); !slices.Equal(got, []string{"averylongword"}) {
		t.Errorf("%q", got)
	}
}

func TestColoursAreWanted(t *testing.T) {
	for env, want := range map[string]bool{"": true, "NO_COLOR=1": false, "NO_COLOR=": true, "TERM=dumb": false, "TERM=xterm": true} {
		name, value, _ := strings.Cut(env, "=")
		getenv := func(n string) string {
			if n == name {
				return value
			}
			return ""
		}
		if got := wantsColour(getenv); got != want {
			t.Errorf("%q: %v", env, got)
		}
	}
	l := line{{"a", red}, {" b", plain}}
	if got := l.text(false); got != "a b" {
		t.Errorf("without colours: %q", got)
	}
	if got := l.text(true); got != "\x1b[31ma\x1b[m b" {
		t.Errorf("with colours: %q", got)
	}
}

func TestScreenSizeIsTheTerminalsFirst(t *testing.T) {
	for _, tt := range []struct {
		told     int
		variable string
		want     int
	}{{100, "60", 100}, {0, "60", 60}, {0, "wide", 80}, {0, "-1", 80}, {0, "", 80}} {
		if got := sizeOr(tt.told, tt.variable, 80); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}
