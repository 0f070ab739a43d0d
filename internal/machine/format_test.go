package machine

import (
	"bytes"
	"strings"
	"testing"
)

// nextFormats makes up the next format, with Ask as a new command and Delay as a new
// attribute.
var nextFormats = formats{max: MaxFormat + 1, next: func(encoded []byte) int {
	c := must(DecodeCommand(encoded))
	switch c := c.(type) {
	case Ask:
		return MaxFormat + 1
	case Acquire:
		if c.Delay > 0 {
			return MaxFormat + 1
		}
	}
	return Format(c)
}}

// TestANewCommandWaitsForTheRaise: a command of the next format is refused, and
// changes nothing, until the leader has raised the table; then the command works.
func TestANewCommandWaitsForTheRaise(t *testing.T) {
	s, a := founded(), session16("a")
	s.formats = nextFormats
	apply(t, s, Open{Session: a, Client: "a", TTL: 1000}, OK)
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k"}, Granted)
	before := content(s)
	for _, c := range []Command{Ask{Session: a, Key: "k"}, Acquire{Session: a, Seq: 2, Key: "l", Spec: Spec{Delay: 5}}} {
		if out, events := apply(t, s, c, WrongFormat); out.Limit != MaxFormat || len(events) > 0 || content(s) != before {
			t.Errorf("%#v: %+v, %+v", c, out, events)
		}
	}
	apply(t, s, Raise{Term: 1, Format: MaxFormat + 1}, OK)
	if s.Format() != MaxFormat+1 {
		t.Fatalf("format %d", s.Format())
	}
	apply(t, s, Ask{Session: a, Key: "k"}, OK)
	apply(t, s, Acquire{Session: a, Seq: 2, Key: "l", Spec: Spec{Delay: 5}}, Granted)
	apply(t, s, Raise{Term: 1, Format: MaxFormat}, OK) // a late copy
	if s.Format() != MaxFormat+1 {
		t.Errorf("the format fell to %d", s.Format())
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// TestAnEarlierVersionStopsAtTheRaise: a voter of an earlier version refuses a Raise
// beyond its formats. No other voter does, so the voter knows to stop. Nor does the
// voter read a later snapshot.
func TestAnEarlierVersionStopsAtTheRaise(t *testing.T) {
	later, earlier := founded(), founded()
	later.formats = nextFormats
	raise := Raise{Term: 1, Format: MaxFormat + 1}
	apply(t, later, raise, OK)
	out, _ := apply(t, earlier, raise, BadCommand)
	if out.Field != "Format" || out.Limit != MaxFormat || earlier.Format() != MaxFormat {
		t.Errorf("%+v, format %d", out, earlier.Format())
	}
	if _, err := Restore(bytes.NewReader(image(later))); err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("a snapshot of the next format: %v", err)
	}
}

// TestFormatsAreOfThisVersion: this version reads the formats of all its commands.
func TestFormatsAreOfThisVersion(t *testing.T) {
	for _, c := range everyCommand() {
		if f := Format(c); f < 1 || f > MaxFormat {
			t.Errorf("%#v: format %d", c, f)
		}
	}
}
