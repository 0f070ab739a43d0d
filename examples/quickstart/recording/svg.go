package main

import (
	"fmt"
	"html"
	"io"
	"strings"
	"time"
)

// The measures of the picture, in pixels.
const (
	charWidth  = 8.4
	lineHeight = 18
	margin     = 14
	titleBar   = 26
	width      = columns*84/10 + 2*margin + 1
	height     = rows*lineHeight + titleBar + 2*margin
)

// colours are the classes of styles, each with its rules for light and dark.
var colours = []struct{ style, class, light, dark string }{
	{"", "n", "fill:#24292f", "fill:#d8dee4"},
	{"1", "b", "fill:#0b0f14;font-weight:bold", "fill:#ffffff;font-weight:bold"},
	{"2", "f", "fill:#8c959f", "fill:#6e7781"},
	{"31", "r", "fill:#cf222e", "fill:#ff7b72"},
	{"32", "g", "fill:#1a7f37", "fill:#56d364"},
	{"33", "y", "fill:#9a6700", "fill:#e3b341"},
	{"36", "c", "fill:#0969da", "fill:#79c0ff"},
	{"1;97;41", "a", "fill:#ffffff;font-weight:bold", "fill:#ffffff;font-weight:bold"},
}

func class(style string) string {
	for _, c := range colours {
		if c.style == style {
			return c.class
		}
	}
	return "n"
}

// draw writes frames as an animated picture. A frame is a column of lines, all frames
// stand side by side, and the animation moves them past a window. Lines that several
// frames have are drawn once.
func draw(w io.Writer, frames []frame) {
	frames = merged(frames)
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img" aria-labelledby="t d">`+"\n", width, height, width)
	io.WriteString(w, `<title id="t">The quickstart on a terminal</title>
<desc id="d">Three processes form a cluster and divide twelve shards. The scheduler is killed, and another process takes over. A paused process wakes up in the middle of its writes, and the fence refuses them.</desc>
`)
	fmt.Fprintf(w, "<style>\n%s%s</style>\n", rules(), animation(frames))
	fmt.Fprintf(w, `<rect class="w" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	fmt.Fprintf(w, `<text class="f" x="%d" y="18">%s</text>`+"\n", margin, html.EscapeString(strings.TrimPrefix(command, "$ ")))

	lines, names := distinct(frames)
	io.WriteString(w, "<defs>\n")
	for i, line := range lines {
		fmt.Fprintf(w, `<g id="%s">%s</g>`+"\n", name(i), drawLine(line))
	}
	fmt.Fprintf(w, "</defs>\n<svg x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"><g class=\"p\">\n", margin, titleBar+margin, width-2*margin, rows*lineHeight)
	for i, f := range frames {
		fmt.Fprintf(w, `<g transform="translate(%d)">`, i*width)
		for y, line := range f.picture {
			if n := names[key(line)]; n != "" {
				fmt.Fprintf(w, `<use href="#%s" y="%d"/>`, n, y*lineHeight)
			}
		}
		if f.key != "" {
			const side = 34
			x, y := width-2*margin-side-4, lineHeight+6 // where the quickstart writes nothing
			fmt.Fprintf(w, `<rect class="k" x="%d" y="%d" width="%d" height="%d" rx="6"/><text class="b" x="%d" y="%d" text-anchor="middle">%s</text>`,
				x, y, side, side, x+side/2, y+22, html.EscapeString(f.key))
		}
		io.WriteString(w, "</g>\n")
	}
	io.WriteString(w, "</g></svg>\n</svg>\n")
}

// merged joins frames that look the same.
func merged(frames []frame) (out []frame) {
	same := func(a, b frame) bool {
		for y := range a.picture {
			if key(a.picture[y]) != key(b.picture[y]) {
				return false
			}
		}
		return a.key == b.key
	}
	for _, f := range frames {
		if n := len(out); n > 0 && same(out[n-1], f) {
			out[n-1].lasts += f.lasts
		} else {
			out = append(out, f)
		}
	}
	return out
}

// rules returns the styles of the picture, for light and dark.
func rules() string {
	var light, dark strings.Builder
	light.WriteString("text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans Mono\",monospace}\n" +
		".w{fill:#ffffff;stroke:#d0d7de}.k{fill:#f6f8fa;stroke:#8c959f}.z{fill:#cf222e}\n")
	dark.WriteString(".w{fill:#0d1117;stroke:#30363d}.k{fill:#21262d;stroke:#8c959f}.z{fill:#b62324}\n")
	for _, c := range colours {
		fmt.Fprintf(&light, ".%s{%s}", c.class, c.light)
		fmt.Fprintf(&dark, ".%s{%s}", c.class, c.dark)
	}
	return light.String() + "\n@media(prefers-color-scheme:dark){" + dark.String() + "}\n"
}

// animation shows each frame for its time. A reader who wants no motion, and a program
// that knows no animations, show one frame: the last of the story.
func animation(frames []frame) string {
	var total time.Duration
	for _, f := range frames {
		total += f.lasts
	}
	var b strings.Builder
	still := max(0, len(frames)-2)
	for still > 0 && frames[still].key != "" {
		still--
	}
	fmt.Fprintf(&b, ".p{transform:translateX(%dpx)}\n", -still*width)
	b.WriteString("@keyframes p{")
	var at time.Duration
	for i, f := range frames {
		fmt.Fprintf(&b, "%.3f%%{transform:translateX(%dpx)}", 100*at.Seconds()/total.Seconds(), -i*width)
		at += f.lasts
	}
	fmt.Fprintf(&b, "100%%{transform:translateX(%dpx)}}\n", -(len(frames)-1)*width)
	fmt.Fprintf(&b, "@media(prefers-reduced-motion:no-preference){.p{animation:p %.1fs steps(1,end) infinite}}\n", total.Seconds())
	return b.String()
}

// distinct returns the lines of all frames, each once and without the empty ones, and
// their names.
func distinct(frames []frame) (lines [][]cell, names map[string]string) {
	names = make(map[string]string)
	for _, f := range frames {
		for _, line := range f.picture {
			k := key(line)
			if _, ok := names[k]; !ok && k != "" {
				names[k] = name(len(lines))
				lines = append(lines, line)
			}
		}
	}
	return lines, names
}

func name(i int) string { return fmt.Sprintf("l%d", i) }

// key returns the same text for lines that look the same, and "" for an empty line.
func key(line []cell) string {
	var b strings.Builder
	for _, r := range runs(line) {
		fmt.Fprintf(&b, "%d %s %s\n", r.x, r.style, r.text)
	}
	return b.String()
}

// run is text of one style at a column. Two spaces end a run, so that columns stay
// aligned in any font.
type run struct {
	x           int
	style, text string
}

func runs(line []cell) (out []run) {
	blank := func(x int) bool { return x >= len(line) || line[x].char == ' ' }
	for x := 0; x < len(line); {
		if blank(x) && line[x].style != "1;97;41" {
			x++
			continue
		}
		end := x
		var text strings.Builder
		for end < len(line) && line[end].style == line[x].style && !(blank(end) && blank(end+1)) && isBar(line[end].char) == isBar(line[x].char) {
			text.WriteRune(line[end].char)
			end++
		}
		if end == x {
			break
		}
		out = append(out, run{x, line[x].style, text.String()})
		x = end
	}
	return out
}

func isBar(char rune) bool { return char == '█' }

// drawLine draws a line at the top of the screen.
func drawLine(line []cell) string {
	var b, text strings.Builder
	const base = 13 // of the letters, below the top of the line
	for _, r := range runs(line) {
		x, n := float64(r.x)*charWidth, float64(len([]rune(r.text)))*charWidth
		switch {
		case isBar([]rune(r.text)[0]):
			fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="2" width="%.1f" height="13"/>`, class(r.style), x, n)
			continue
		case r.style == "1;97;41":
			fmt.Fprintf(&b, `<rect class="z" x="%.1f" y="-1" width="%.1f" height="%d"/>`, x-3, n+6, lineHeight)
		}
		fmt.Fprintf(&text, `<tspan class="%s" x="%.1f">%s</tspan>`, class(r.style), x, html.EscapeString(strings.TrimRight(r.text, " ")))
	}
	if text.Len() > 0 {
		fmt.Fprintf(&b, `<text y="%d">%s</text>`, base, text.String())
	}
	return b.String()
}
