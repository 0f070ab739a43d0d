package main

import (
	"strings"
	"unicode/utf8"
)

// cell is a place on the screen. A style is the parameter of the terminal's code for it:
// "1;97;41".
type cell struct {
	char  rune
	style string
}

// picture is a screen at a moment: lines of cells.
type picture [][]cell

// text returns the picture without styles.
func (p picture) text() string {
	var b strings.Builder
	for _, line := range p {
		var text strings.Builder
		for _, c := range line {
			text.WriteRune(c.char)
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
	return b.String()
}

// screen is a terminal that knows the codes of the quickstart: the second screen, the
// corner, the rest of a line and of the screen, and styles.
type screen struct {
	main, second picture
	onSecond     bool
	x, y         int
	style        string
	rest         []byte // the beginning of a code or of a character

	// complete is the second screen as it was when the quickstart had last drawn all of
	// it, or nil.
	complete picture
}

func newScreen() *screen { return &screen{main: blank(), second: blank()} }

func blank() picture {
	p := make(picture, rows)
	for y := range p {
		p[y] = make([]cell, columns)
		for x := range p[y] {
			p[y][x].char = ' '
		}
	}
	return p
}

func (p picture) clone() picture {
	out := make(picture, len(p))
	for y := range p {
		out[y] = append([]cell(nil), p[y]...)
	}
	return out
}

func (s *screen) shown() picture {
	if s.onSecond {
		return s.second
	}
	return s.main
}

// Write shows the bytes that a program has sent. A character or a code may come in two
// parts.
func (s *screen) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	for len(s.rest) > 0 {
		n := 1
		switch c := s.rest[0]; {
		case c == '\x1b':
			end := codeEnd(s.rest)
			if end == 0 {
				return len(p), nil
			}
			s.code(string(s.rest[2:end-1]), s.rest[end-1])
			n = end
		case c == '\r':
			s.x = 0
		case c == '\n':
			s.newLine()
		case !utf8.FullRune(s.rest):
			return len(p), nil
		default:
			var char rune
			char, n = utf8.DecodeRune(s.rest)
			s.put(char)
		}
		s.rest = s.rest[n:]
	}
	return len(p), nil
}

// codeEnd returns the length of a code at the beginning of b: ESC [, parameters, a
// letter. It returns 0 if the code is not complete.
func codeEnd(b []byte) int {
	for i := 2; i < len(b); i++ {
		if c := b[i]; c >= '@' && c <= '~' {
			return i + 1
		}
	}
	return 0
}

func (s *screen) code(parameters string, letter byte) {
	switch letter {
	case 'm':
		s.style = parameters
	case 'H':
		s.x, s.y = 0, 0
	case 'K':
		s.erase(s.y, s.x)
	case 'J':
		s.erase(s.y, s.x)
		for y := s.y + 1; y < rows; y++ {
			s.erase(y, 0)
		}
		s.complete = s.shown().clone()
	case 'h', 'l':
		if parameters == "?1049" {
			s.onSecond = letter == 'h'
			if s.onSecond {
				s.second = blank()
			}
			s.x, s.y = 0, 1 // the main screen has the command in its first line
		}
	}
}

func (s *screen) erase(y, from int) {
	for x := from; x < columns; x++ {
		s.shown()[y][x] = cell{char: ' '}
	}
}

func (s *screen) put(char rune) {
	if s.x == columns {
		s.x = 0
		s.newLine()
	}
	s.shown()[s.y][s.x] = cell{char, s.style}
	s.x++
}

func (s *screen) newLine() {
	if s.y++; s.y < rows {
		return
	}
	s.y = rows - 1
	p := s.shown()
	copy(p, p[1:])
	p[rows-1] = blank()[0]
}
