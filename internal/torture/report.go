package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// report is the whole report, as Markdown.
func (s *summary) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# What the torture has shown\n\nLast run on %s; commits %s.\n\n", orNone(s.Made), orNone(strings.Join(s.Commits, ", ")))
	b.WriteString(s.table())
	for _, t := range s.Suites {
		if t.faults() == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## Faults of %s\n\n| fault | times |\n|---|---|\n", t.Suite)
		for _, kind := range slices.Sorted(maps.Keys(t.Faults)) {
			name := kind
			if name == "" {
				name = "of any kind"
			}
			fmt.Fprintf(&b, "| %s | %d |\n", name, t.Faults[kind])
		}
		if len(t.Uncovered) > 0 {
			fmt.Fprintf(&b, "\nNever seen: %s.\n", strings.Join(t.Uncovered, ", "))
		}
	}
	if len(s.Fuzz) > 0 {
		b.WriteString("\n## Fuzz targets\n\n| package | target | CPU minutes |\n|---|---|---|\n")
		for _, f := range s.Fuzz {
			fmt.Fprintf(&b, "| %s | %s | %.1f |\n", f.Package, f.Target, f.Minutes)
		}
	}
	if len(s.Mutants) > 0 {
		b.WriteString("\n## Mutants\n\n| mutant | promise | found by |\n|---|---|---|\n")
		for _, m := range s.Mutants {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", m.Name, m.Promise, m.finders())
		}
	}
	b.WriteString("\n## Failures\n\n")
	if len(s.Failures) == 0 {
		b.WriteString("None.\n")
	}
	for _, f := range s.Failures {
		name := f.Suite
		if f.Target != "" {
			name += " " + f.Target
		}
		fmt.Fprintf(&b, "- %s at %s, seed %d, in failures/%s; tried again %d times, repeated %d times:\n  `%s`\n", name, f.Commit, f.Seed, f.ID, f.Tried, f.Repeated, f.Replay)
	}
	return b.String()
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// finders lists the mutant's finders, with their CPU time.
func (m *mutant) finders() string {
	if m.Survived || len(m.Found) == 0 {
		return "nobody"
	}
	var by []string
	for _, f := range m.Found {
		by = append(by, fmt.Sprintf("%s (%.1f s)", f.By, f.CPU))
	}
	return strings.Join(by, ", ")
}

// table has a row for each suite.
func (s *summary) table() string {
	var b strings.Builder
	b.WriteString("| suite | runs | hours of the host | simulated hours | grants | faults | situations seen | violations |\n|---|---|---|---|---|---|---|---|\n")
	for _, t := range s.Suites {
		seen := ""
		switch {
		case t.Coverage > 0 && len(t.Uncovered) > 0:
			seen = fmt.Sprintf("%d of %d", t.Coverage, t.Coverage+len(t.Uncovered))
		case t.Coverage > 0:
			seen = fmt.Sprint(t.Coverage)
		}
		fmt.Fprintf(&b, "| %s | %d | %.1f | %s | %s | %s | %s | %d |\n", t.Suite, t.Runs, t.WallHours,
			unlessZero("%.1f", t.Hours), unlessZero("%.0f", float64(t.Grants)), unlessZero("%.0f", float64(t.faults())), seen, t.Violations)
	}
	return b.String()
}

func unlessZero(format string, x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf(format, x)
}

// promises has a row for each promise with mutants.
func (s *summary) promises() string {
	type row struct{ all, alive int }
	rows := make(map[string]*row)
	var order []string
	for _, m := range s.Mutants {
		r := rows[m.Promise]
		if r == nil {
			r = new(row)
			rows[m.Promise] = r
			order = append(order, m.Promise)
		}
		r.all++
		if m.Survived {
			r.alive++
		}
	}
	if len(order) == 0 {
		return ""
	}
	slices.Sort(order)
	var b strings.Builder
	b.WriteString("| promise | mutants planted | survivors |\n|---|---|---|\n")
	for _, p := range order {
		fmt.Fprintf(&b, "| %s | %d | %d |\n", p, rows[p].all, rows[p].alive)
	}
	return b.String()
}

// figures is the summary as VERIFICATION.md shows it.
func (s *summary) figures() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Runs up to %s, of the commits %s (`make torture`):\n\n%s", orNone(s.Made), orNone(strings.Join(s.Commits, ", ")), s.table())
	if minutes := s.fuzzMinutes(); minutes > 0 {
		fmt.Fprintf(&b, "\n%d fuzz targets had %.0f CPU minutes.\n", len(s.Fuzz), minutes)
	}
	if p := s.promises(); p != "" {
		fmt.Fprintf(&b, "\nOf the mutants, %d were run:\n\n%s", len(s.Mutants), p)
	}
	return b.String()
}

func (s *summary) fuzzMinutes() (sum float64) {
	for _, f := range s.Fuzz {
		sum += f.Minutes
	}
	return sum
}

// The marks around the figures in VERIFICATION.md.
const beginFigures, endFigures = "<!-- figures -->\n", "<!-- /figures -->\n"

// marked cuts a page at the marks around its figures. The marks stay outside.
func marked(page string) (before, figures, after string, err error) {
	i, j := strings.Index(page, beginFigures), strings.Index(page, endFigures)
	if strings.Count(page, beginFigures) != 1 || strings.Count(page, endFigures) != 1 || j < i {
		return "", "", "", fmt.Errorf("the page does not have the marks %q and %q once each, in this order", beginFigures, endFigures)
	}
	i += len(beginFigures)
	return page[:i], page[i:j], page[j:], nil
}
