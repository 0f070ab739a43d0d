package docs

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var rewriteFigures = flag.Bool("rewrite-figures", false, "copy the figures of benchmark.md to the README")

// The README's figures against peers are those of the last report of the benchmark. Run
// with -rewrite-figures after a new report, as make bench does.
func TestTheReadmeHasTheFiguresOfTheBenchmark(t *testing.T) {
	report, readme := read(t, "benchmark.md"), read(t, "../README.md")
	_, figures, _ := marked(t, "benchmark.md", report)
	if bytes.Count(figures, []byte("\n")) < 5 {
		t.Fatalf("benchmark.md has hardly any figures: %q", figures)
	}
	before, found, after := marked(t, "README.md", readme)
	if bytes.Equal(figures, found) {
		return
	}
	if !*rewriteFigures {
		t.Fatalf("README.md has the figures of another report: run go test ./docs -run Figures -rewrite-figures\n%s", found)
	}
	if err := os.WriteFile("../README.md", bytes.Join([][]byte{before, figures, after}, nil), 0o644); err != nil {
		t.Fatal(err)
	}
}

// marked cuts a text at the marks around the figures. The marks stay outside.
func marked(t *testing.T, file string, text []byte) (before, figures, after []byte) {
	t.Helper()
	const begin, end = "<!-- figures -->\n", "<!-- /figures -->\n"
	if bytes.Count(text, []byte(begin)) != 1 || bytes.Count(text, []byte(end)) != 1 {
		t.Fatalf("%s does not have the marks %q and %q once each", file, begin, end)
	}
	i := bytes.Index(text, []byte(begin)) + len(begin)
	j := bytes.Index(text, []byte(end))
	if j < i {
		t.Fatalf("%s has its marks in the wrong order", file)
	}
	return text[:i], text[i:j], text[j:]
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
