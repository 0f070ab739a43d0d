package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

func TestScreenShowsWhatIsSent(t *testing.T) {
	s := newScreen()
	sent := "one\r\ntwo\x1b[?1049h\x1b[?25l\x1b[Hhead\x1b[K\r\n\x1b[1;97;41malarm\x1b[m é█\x1b[K\r\n\x1b[J"
	for i := range len(sent) { // in any parts
		s.Write([]byte{sent[i]})
	}
	if got := strings.TrimSpace(s.complete.text()); got != "head\nalarm é█" {
		t.Errorf("the second screen: %q", got)
	}
	if got := s.complete[1][0].style + s.complete[1][6].style; got != "1;97;41" {
		t.Errorf("styles %q", got)
	}
	s.Write([]byte("\x1b[Hh\x1b[K\r\n\x1b[J"))
	if got := strings.TrimSpace(s.complete.text()); got != "h" {
		t.Errorf("drawn again: %q", got)
	}
	s.Write([]byte("\x1b[?1049lend"))
	if got := strings.TrimSpace(s.main.text()); got != "one\nend" {
		t.Errorf("the main screen: %q", got)
	}
}

func TestLongTextScrolls(t *testing.T) {
	s := newScreen()
	s.Write([]byte(strings.Repeat("x", columns+1) + strings.Repeat("\r\n", rows) + "end"))
	lines := strings.Split(s.shown().text(), "\n")
	if lines[rows-1] != "end" || lines[0] != "" {
		t.Errorf("first line %q, last line %q", lines[0], lines[rows-1])
	}
}

func pictureOf(text string) picture {
	s := newScreen()
	s.Write([]byte(text))
	return s.main
}

func TestPictureHasEachLineOnce(t *testing.T) {
	a := pictureOf("same  <here>\r\n\x1b[32m██\x1b[m\x1b[2m··\x1b[m 1.0s")
	b := pictureOf("same  <here>\r\n\x1b[31m█\x1b[m\x1b[2m···\x1b[m 0.5s")
	var out, again bytes.Buffer
	frames := []frame{{picture: a, lasts: time.Second}, {picture: a, lasts: time.Second}, {picture: b, lasts: time.Second, key: "k"}, {picture: a, lasts: time.Second}}
	draw(&out, frames)
	draw(&again, frames)
	if out.String() != again.String() {
		t.Error("two pictures of the same frames differ")
	}
	svg := out.String()
	wellFormed(t, svg)
	for text, want := range map[string]int{"&lt;here&gt;": 1, "1.0s": 1, "0.5s": 1, "<g transform=": 3, `class="k"`: 1, `class="g"`: 1} {
		if got := strings.Count(svg, text); got != want {
			t.Errorf("%q stands %d times in the picture, want %d", text, got, want)
		}
	}
	if !strings.Contains(svg, "animation:p 4.0s") || !strings.Contains(svg, "prefers-color-scheme:dark") {
		t.Error("no animation, or no dark colours")
	}
}

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The picture in the README is small, and shows the whole story.
func TestReadmeHasARecording(t *testing.T) {
	b, err := os.ReadFile("../../../docs/quickstart.svg")
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 200_000 {
		t.Errorf("%d bytes", len(b))
	}
	svg := string(b)
	wellFormed(t, svg)
	for _, want := range []string{"kill -9", "is elected scheduler", "SIGSTOP", "THE FENCE REFUSED", "0 stale writes accepted"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture does not show %q", want)
		}
	}
}
