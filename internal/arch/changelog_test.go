package arch

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// A merge of two branches that have both added to the changelog leaves headings inside of
// lists and headings twice, and no conflict.
func TestTheChangelogIsInOrder(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, damage := range checkChangelog(string(text)) {
		t.Error("CHANGELOG.md: " + damage)
	}
}

// checkChangelog returns the lines that run into the list or the heading above, and the
// headings and entries that a version has twice.
func checkChangelog(text string) (damaged []string) {
	const (
		blank = iota
		title // a heading, or a paragraph
		list
	)
	above := blank
	seen := make(map[string]bool)
	for i, line := range strings.Split(text, "\n") {
		damage := func(what string) { damaged = append(damaged, fmt.Sprintf("line %d, %q: %s", i+1, line, what)) }
		entry := strings.HasPrefix(line, "- ")
		switch {
		case strings.HasPrefix(line, "## "):
			seen = make(map[string]bool)
		case strings.HasPrefix(line, "### "), strings.HasPrefix(line, "**"), entry:
			if seen[line] {
				damage("there twice")
			}
			seen[line] = true
		}
		switch {
		case line == "":
			above = blank
		case entry:
			if above == title {
				damage("no blank line above")
			}
			above = list
		case strings.HasPrefix(line, "  "):
			if above != list {
				damage("indented, and in no list")
			}
		default:
			if above == list {
				damage("runs into the list above")
			}
			above = title
		}
	}
	return damaged
}

func TestADamagedChangelogIsFound(t *testing.T) {
	const good = "# Changelog\n\nTwo\nlines.\n\n## Unreleased\n\n### Locks\n\n**Lazy.** Some\ntext.\n\n- One,\n  of two lines.\n- Two.\n\n## v1.0.0\n\n### Locks\n\n- One,\n"
	if d := checkChangelog(good); d != nil {
		t.Errorf("%q", d)
	}
	for _, change := range [][2]string{
		{"- Two.\n", "- Two.\nA heading.\n"},
		{"### Locks\n\n**", "### Locks\n- An entry.\n\n**"},
		{"- Two.\n", "- Two.\n\n### Locks\n"},
		{"- Two.\n", "- One,\n"},
		{"**Lazy.** Some\n", "**Lazy.** Some\n\n  "},
	} {
		if d := checkChangelog(strings.Replace(good, change[0], change[1], 1)); len(d) == 0 {
			t.Errorf("%q is not found", change[1])
		}
	}
}
