package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// renderTable returns the board as lines of at most width columns: the members,
// the latest events, as many as fit, and the keys. There are fewer lines than
// height, so that a line stays free for the cursor.
func renderTable(b *board, now time.Time, latest []string, width, height int) []string {
	lines := []string{
		fmt.Sprintf("wardmote: three processes, one cluster, TTL %v, %d shards%22s", ttl, shards, elapsed(b, now)),
		"",
		fmt.Sprintf("%-6s %7s  %-8s %-9s  %-5s %7s  %-18s %9s", "member", "process", "state", "role", "voter", "writes", "shards", "top token"),
	}
	for _, r := range b.rows {
		role, voter, token := "–", "no", "–"
		if b.scheduler.member == r.name {
			role = "scheduler"
		}
		switch {
		case r.leads && r.state == running:
			voter = "leads"
		case r.voter:
			voter = "yes"
		}
		if t := b.highest(r.name); t > 0 {
			token = short(t)
		}
		lines = append(lines, fmt.Sprintf("%-6s %7d  %-8s %-9s  %-5s %7d  %-18s %9s",
			r.name, r.pid, r.state, role, voter, r.writes, shardList(b.shardsOf(r.name)), token))
	}
	keys := []string{"",
		fmt.Sprintf("jobs run by schedulers: %d   stale writes refused by the fence: %d", b.jobs, len(b.refusals)),
		fmt.Sprintf("k  kill -9 the scheduler   p  pause it for %v   r  restart the dead   q  quit", pauseFor),
	}
	if b.broken != "" {
		keys = append(keys, "BROKEN: "+b.broken)
	}
	fits := min(len(latest), max(0, height-len(lines)-len(keys)-2))
	lines = append(lines, "")
	lines = append(lines, latest[len(latest)-fits:]...)
	lines = append(lines, keys...)
	for i, line := range lines {
		lines[i] = crop(line, width)
	}
	return lines
}

// shardList returns the number of owned shards and the shards themselves.
func shardList(owned []int) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%2d:", len(owned))
	for i, shard := range owned {
		// The column has room for six shards. A member owns more only while other
		// members are dead.
		if i == 5 && len(owned) > 6 {
			s.WriteString(" …")
			break
		}
		fmt.Fprintf(&s, " %d", shard)
	}
	return s.String()
}

func elapsed(b *board, now time.Time) string { return fmt.Sprintf("%.1fs", now.Sub(b.began).Seconds()) }

func crop(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(0, width)])
}
