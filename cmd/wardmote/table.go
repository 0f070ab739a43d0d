package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/wardmote/wardmote/internal/documents"
)

// table prints rows in columns.
type table struct{ w *tabwriter.Writer }

func newTable(to io.Writer, heads ...string) *table {
	t := &table{tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)}
	t.row(heads...)
	return t
}

// row leaves cells as they are: the heads of some tables are of the whole program.
func (t *table) row(cells ...string) {
	cleaned := make([]string, len(cells))
	for i, c := range cells {
		cleaned[i] = clean(c)
	}
	fmt.Fprintln(t.w, strings.TrimRight(strings.Join(cleaned, "\t"), "\t"))
}

func (t *table) print() { t.w.Flush() }

// clean makes a name of somebody else harmless for a terminal: no control character is
// printed.
func clean(text string) string {
	if text == "" {
		return "-"
	}
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, text)
}

// printJSON prints a document on lines of its own.
func printJSON(to io.Writer, document any) error {
	b, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(to, string(b))
	return err
}

// number is so many things, for people.
func number[N int | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// since is a duration for people.
func since(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + since(-d)
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Minute).String()
}

// age is an optional duration of a document.
func age(d *documents.Duration) string {
	if d == nil {
		return "-"
	}
	return since(time.Duration(*d))
}

// headLine is one line about a document: the source, the age, a missing quorum.
func headLine(h documents.Head) string {
	text := "as the leader told " + h.Node + " now"
	switch h.Source {
	case documents.SourceTable:
		text = fmt.Sprintf("from the table of %s, %s old", h.Node, since(time.Duration(h.Age)))
	case documents.SourceOwn:
		text = fmt.Sprintf("of %s alone, %s old", h.Node, since(time.Duration(h.Age)))
	}
	if !h.Quorum {
		text = "NO QUORUM; " + text
	}
	return clean(text)
}

// printHead prints the line of a document's head behind its table, and the trouble.
func printHead(to io.Writer, h documents.Head) {
	fmt.Fprintln(to, headLine(h))
	printTrouble(to, h.Reason, h.Next)
}

func printTrouble(to io.Writer, reason, next string) {
	if reason != "" {
		fmt.Fprintln(to, "trouble: "+clean(reason))
	}
	if next != "" {
		fmt.Fprintln(to, "next:    "+clean(next))
	}
}
