package main

import (
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// style is a way to show text: the parameter of the terminal's code for it.
type style string

const (
	plain  style = ""
	bold   style = "1"
	faint  style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
	alarm  style = "1;97;41" // bold, white on red
)

// piece is text in one style. Each rune takes one column.
type piece struct {
	text  string
	style style
}

func (s piece) width() int { return utf8.RuneCountInString(s.text) }

// line is a line of the screen.
type line []piece

func spaces(n int) piece { return piece{strings.Repeat(" ", n), plain} }

func styled(s style, text string) line { return line{{text, s}} }

func (l line) plus(pieces ...piece) line { return append(l[:len(l):len(l)], pieces...) }

func (l line) width() (n int) {
	for _, s := range l {
		n += s.width()
	}
	return n
}

// cropped returns the first columns of a line, width at most.
func (l line) cropped(width int) (out line) {
	for _, s := range l {
		if room := max(0, width-out.width()); s.width() > room {
			return out.plus(piece{string([]rune(s.text)[:room]), s.style})
		}
		out = out.plus(s)
	}
	return out
}

// text returns the line as the terminal gets it.
func (l line) text(colours bool) string {
	var b strings.Builder
	for _, s := range l {
		if colours && s.style != plain {
			b.WriteString("\x1b[" + string(s.style) + "m" + s.text + "\x1b[m")
		} else {
			b.WriteString(s.text)
		}
	}
	return b.String()
}

// wrapped breaks text at spaces into lines of width columns at most, unless a word is
// longer. All lines but the first begin with indent spaces.
func wrapped(text string, width, indent int) (lines []string) {
	current := ""
	for _, word := range strings.SplitAfter(text, " ") {
		bare := strings.TrimRight(word, " ")
		if bare != "" && strings.TrimSpace(current) != "" && utf8.RuneCountInString(current+bare) > width {
			lines = append(lines, strings.TrimRight(current, " "))
			current = strings.Repeat(" ", indent)
		}
		current += word
	}
	return append(lines, strings.TrimRight(current, " "))
}

// screenSize returns the size of the terminal in columns and lines: the terminal's own
// answer, the environment's, or a guess.
func screenSize() (width, height int) {
	width, height = windowSize()
	return sizeOr(width, os.Getenv("COLUMNS"), 80), sizeOr(height, os.Getenv("LINES"), 24)
}

func sizeOr(told int, variable string, guess int) int {
	if told > 0 {
		return told
	}
	if n, err := strconv.Atoi(variable); err == nil && n > 0 {
		return n
	}
	return guess
}

// inColour reports whether a file gets colours: a terminal that has them, unless the
// user wants none (https://no-color.org).
func inColour(f *os.File, getenv func(string) string) bool {
	return isTerminal(f) && wantsColour(getenv)
}

func wantsColour(getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}
