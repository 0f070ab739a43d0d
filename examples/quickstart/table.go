package main

import (
	"fmt"
	"strings"
	"time"
)

// screen is the part of the table that is not on the board.
type screen struct {
	latest  []string // the latest events, the newest last
	page    string   // the address of the live page, or ""
	hint    string   // advice for the user, or ""
	waiting string   // the keys that wait, with the reason, or ""
}

// renderTable returns the screen as lines of at most width columns: the members, the
// latest events, as many as fit, and the keys. There are fewer lines than height, so
// that a line stays free for the cursor.
func renderTable(b *board, s screen, now time.Time, width, height int) []line {
	const most = 32 // lines, also on a taller screen
	gap := []line{nil}
	if height < 18 {
		gap = nil
	}
	top := []line{spread(styled(bold, "wardmote").plus(piece{fmt.Sprintf("  three processes, one cluster, TTL %v", ttl), plain}),
		line{{elapsed(b, now), faint}}, width)}
	if s.page != "" {
		top = append(top, line{{"live page ", faint}, {s.page, cyan}, {"  (" + names[1] + "/ is " + names[1] + "'s own view)", faint}})
	}
	top = append(top, gap...)
	top = append(top, memberTable(b, now, width)...)
	top = append(top, gap...)
	if height >= 22 {
		top = append(top, climax(b, width)...)
	}

	var bottom []line
	bottom = append(bottom, gap...)
	bottom = append(bottom, totals(b))
	if b.broken != "" {
		bottom = append(bottom, styled(alarm, "BROKEN: "+b.broken))
	}
	for _, text := range []struct {
		text  string
		style style
	}{{s.hint, cyan}, {s.waiting, yellow}} {
		if text.text != "" {
			for _, part := range wrapped(text.text, width, 2) {
				bottom = append(bottom, styled(text.style, part))
			}
		}
	}
	bottom = append(bottom, keyLine(width))

	var events []line
	for _, text := range s.latest {
		for _, part := range wrapped(text, width, 9) {
			events = append(events, styled(eventStyle(text), part))
		}
	}
	room := max(0, min(height-1, most)-len(top)-len(bottom))
	fits := min(len(events), room)
	lines := append(top, events[len(events)-fits:]...)
	lines = append(lines, make([]line, room-fits)...) // the keys stay in their place
	lines = append(lines, bottom...)
	lines = lines[:min(len(lines), max(0, height-1))]
	for i, l := range lines {
		lines[i] = l.cropped(width)
	}
	return lines
}

// spread puts two lines at the two ends of a line.
func spread(left, right line, width int) line {
	return left.plus(spaces(max(2, width-left.width()-right.width()))).plus(right...)
}

// column is a column of the table of members.
type column struct {
	head  string
	width int
	right bool // aligned to the right
	from  int  // the least width of a screen that has room for the column
	cell  func(r *row) piece
}

// memberTable returns the table of the members. Narrow screens have fewer columns.
func memberTable(b *board, now time.Time, width int) []line {
	bar := max(6, min(20, width-70))
	columns := []column{
		{"member", 6, false, 0, func(r *row) piece { return piece{r.name, bold} }},
		{"process", 7, true, 100, func(r *row) piece { return piece{fmt.Sprint(r.pid), plain} }},
		{"state", 8, false, 0, stateCell},
		{"trust", bar + 6, false, 0, nil},
		{"role", 9, false, 52, func(r *row) piece { return roleCell(b, r) }},
		{"votes", 5, false, 72, voteCell},
		{"writes", 6, true, 80, func(r *row) piece { return piece{fmt.Sprint(r.writes), plain} }},
		{"top token", 9, true, 110, func(r *row) piece { return tokenCell(b, r) }},
		{"owns shards", width, false, 0, func(r *row) piece { return piece{orDash(summed(b.shardsOf(r.name))), plain} }},
	}
	var head line
	rows := make([]line, len(b.rows))
	for _, c := range columns {
		if width < c.from {
			continue
		}
		between := spaces(2)
		if head == nil {
			between = spaces(0)
		}
		head = head.plus(between).plus(c.fill(line{{c.head, faint}})...)
		for i, r := range b.rows {
			cell := trustCell(r, now, bar)
			if c.cell != nil {
				cell = line{c.cell(r)}
			}
			rows[i] = rows[i].plus(between).plus(c.fill(cell)...)
		}
	}
	return append([]line{head}, rows...)
}

// fill returns a cell as wide as the column.
func (c column) fill(cell line) line {
	cell = cell.cropped(c.width)
	room := spaces(c.width - cell.width())
	if c.right {
		return append(line{room}, cell...)
	}
	return cell.plus(room)
}

func stateCell(r *row) piece {
	styles := map[state]style{starting: yellow, running: green, paused: red, cutOff: red, dead: faint}
	return piece{string(r.state), styles[r.state]}
}

// trustCell returns the time for which the member may trust its locks if no further beat
// is confirmed: a bar that runs down, and each confirmed beat fills the bar again.
func trustCell(r *row, now time.Time, width int) line {
	left := r.trustUntil.Sub(now)
	switch {
	case r.trustUntil.IsZero():
		return line{{"–", plain}}
	case left <= 0:
		return line{{strings.Repeat("·", width), faint}, {" ended", red}}
	}
	full := min(width, int((left*time.Duration(width)+ttl-1)/ttl)) // the last column stays until the end
	s := green
	switch {
	case left < ttl/5:
		s = red
	case left < ttl/2:
		s = yellow
	}
	return line{{strings.Repeat("█", full), s}, {strings.Repeat("·", width-full), faint}, {fmt.Sprintf(" %.1fs", left.Seconds()), plain}}
}

func roleCell(b *board, r *row) piece {
	if b.scheduler.member == r.name {
		return piece{"scheduler", bold}
	}
	return piece{"–", plain}
}

func voteCell(r *row) piece {
	switch {
	case r.leads && r.state == running:
		return piece{"leads", plain}
	case r.voter:
		return piece{"yes", plain}
	}
	return piece{"no", yellow}
}

func tokenCell(b *board, r *row) piece {
	if t := b.highest(r.name); t > 0 {
		return piece{short(t), plain}
	}
	return piece{"–", plain}
}

// climax returns the refusal of the fence, which the whole demo leads to.
func climax(b *board, width int) []line {
	if len(b.refusals) == 0 {
		return nil
	}
	n := len(b.refusals)
	e := b.refusals[n-1]
	var out []line
	for i, text := range []string{
		fmt.Sprintf("THE FENCE REFUSED %d stale write%s", n, plural(n)),
		fmt.Sprintf("The latest: %s woke in the middle of a write to shard %d, under token %s.", e.Member, e.Shard, short(e.Token)),
		fmt.Sprintf("The next owner had shown token %s. No lock can stop such a write; the fence did.", short(e.Seen)),
	} {
		s := red
		if i == 0 {
			s = alarm
		}
		for _, part := range wrapped(text, width-4, 0) {
			out = append(out, line{{"┃ ", red}, {part, s}})
		}
	}
	return append(out, nil)
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

func totals(b *board) line {
	s := plain
	if len(b.refusals) > 0 {
		s = red
	}
	return line{{fmt.Sprintf("jobs run %d   writes %d   ", b.jobs, b.writes()), plain}, {fmt.Sprintf("stale writes refused %d", len(b.refusals)), s}}
}

// keyLine names the keys, in as many words as fit.
func keyLine(width int) line {
	names := [][2]string{{"k", "kill -9 the scheduler"}, {"p", fmt.Sprintf("pause it %v", pauseFor)}, {"i", fmt.Sprintf("cut it off %v", pauseFor)}, {"r", "restart the dead"}, {"q", "quit"}}
	brief := [][2]string{{"k", "kill"}, {"p", "pause"}, {"i", "cut off"}, {"r", "restart"}, {"q", "quit"}}
	build := func(names [][2]string) (out line) {
		for _, n := range names {
			out = out.plus(piece{n[0], bold}, piece{" " + n[1] + "   ", plain})
		}
		return out
	}
	if all := build(names); all.width() <= width+3 {
		return all
	}
	return build(brief)
}

// eventStyle returns the style of an event's line.
func eventStyle(text string) style {
	switch {
	case strings.Contains(text, "REFUSES"):
		return red
	case strings.Contains(text, " is elected "):
		return green
	case strings.Contains(text, "kill -9"), strings.Contains(text, "SIGSTOP"), strings.Contains(text, "cut off"):
		return yellow
	}
	return plain
}

// summed returns numbers, which rise, as ranges: 0-3 7 9-11.
func summed(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(numbers[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", numbers[i], numbers[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, " ")
}

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}

func elapsed(b *board, now time.Time) string { return fmt.Sprintf("%.1fs", now.Sub(b.began).Seconds()) }
