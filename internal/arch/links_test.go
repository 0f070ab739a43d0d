package arch

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// A reader who follows a link of a document arrives: at a file or directory of the
// repository, and at a heading if the link names one. Links to other sites are not
// followed.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	root := findRoot(t)
	docs, err := readDocuments(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"README.md", "ARCHITECTURE.md", "docs/failures.md"} {
		if _, ok := docs[want]; !ok {
			t.Errorf("%s was not read", want)
		}
	}
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
		return err == nil
	}
	links, broken := checkLinks(docs, exists)
	if links < 20 {
		t.Errorf("only %d links found: the documents have more", links)
	}
	for _, b := range broken {
		t.Error(b)
	}
}

// readDocuments reads the Markdown files below root, of nested modules too.
func readDocuments(root string) (map[string]string, error) {
	docs := make(map[string]string)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(p) != ".md":
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		docs[filepath.ToSlash(rel)] = string(b)
		return err
	})
	return docs, err
}

var (
	// Links of Markdown: in place, and as a definition below the text. Links of HTML:
	// a picture for light and dark has several.
	linkForms = []*regexp.Regexp{
		regexp.MustCompile(`\]\(\s*<?([^)>\s]+)>?(?:\s+"[^"]*")?\s*\)`),
		regexp.MustCompile(`(?m)^ {0,3}\[[^\]^]+\]:\s+<?(\S+?)>?(?:\s|$)`),
		regexp.MustCompile(`\b(?:href|src|srcset)="([^"]+)"`),
	}
	fenced   = regexp.MustCompile("(?ms)^ {0,3}```.*?^ {0,3}```[ \t]*$")
	inCode   = regexp.MustCompile("`[^`\n]+`")
	heading  = regexp.MustCompile(`(?m)^#{1,6}\s+(.*?)\s*#*\s*$`)
	anchored = regexp.MustCompile(`<a\s+(?:id|name)="([^"]+)"`)
	linkText = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// checkLinks finds the links of the documents that lead nowhere. A document's key is
// its path from the repository's root.
func checkLinks(docs map[string]string, exists func(name string) bool) (links int, broken []string) {
	for name, text := range docs {
		prose := fenced.ReplaceAllString(text, "")
		for _, form := range linkForms {
			for _, m := range form.FindAllStringSubmatch(inCode.ReplaceAllString(prose, ""), -1) {
				target, err := url.Parse(m[1])
				if err == nil && (target.Scheme != "" || target.Host != "") {
					continue
				}
				links++
				if why := followLink(docs, exists, name, target, err); why != "" {
					broken = append(broken, fmt.Sprintf("%s: link to %s: %s", name, m[1], why))
				}
			}
		}
	}
	slices.Sort(broken)
	return links, broken
}

// followLink returns the reason why a link in the document name leads nowhere, or "".
func followLink(docs map[string]string, exists func(string) bool, name string, target *url.URL, err error) string {
	if err != nil {
		return err.Error()
	}
	if strings.HasPrefix(target.Path, "/") {
		return "write the path from the document, since readers have the repository in any place"
	}
	to := name
	if target.Path != "" {
		to = path.Join(path.Dir(name), target.Path)
	}
	switch {
	case to == ".." || strings.HasPrefix(to, "../"):
		return "leaves the repository"
	case target.Path != "" && !exists(to):
		return "no such file"
	case target.Fragment == "":
		return ""
	}
	text, ok := docs[to]
	if !ok {
		return "only documents have anchors: lines of a file move"
	}
	if !slices.Contains(anchors(text), target.Fragment) {
		return "no such heading"
	}
	return ""
}

// anchors returns the anchors of a document, as GitHub makes them: a heading in lower
// case, without punctuation, with '-' for a space, and numbered if it comes again.
func anchors(text string) (out []string) {
	text = fenced.ReplaceAllString(text, "")
	seen := make(map[string]int)
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsNumber(r):
				return unicode.ToLower(r)
			}
			return -1
		}, linkText.ReplaceAllString(m[1], "$1"))
		n := seen[slug]
		seen[slug]++
		if n > 0 {
			slug = fmt.Sprintf("%s-%d", slug, n)
		}
		out = append(out, slug)
	}
	for _, m := range anchored.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

func TestDeadLinksAreFound(t *testing.T) {
	docs := map[string]string{
		"README.md": "",
		"docs/a.md": "# One `two`: three\n\n## Again\n\n## Again\n\n<a id=\"by-hand\"></a>\n\n```\n# No heading\n```\n",
	}
	exists := func(name string) bool { _, ok := docs[name]; return ok || name == "docs" || name == "docs/b.svg" }
	for _, tt := range []struct{ text, why string }{
		{"[a](docs/a.md) ![b](docs/b.svg) [d](docs) [own](#here)\n\n## Here", ""},
		{"[a](docs/a.md#one-two-three) [2](docs/a.md#again-1 \"title\") [h](docs/a.md#by-hand)", ""},
		{"[a]: docs/a.md\n[b]: <docs/b.svg> \"title\"", ""},
		{"<source srcset=\"docs/b.svg\"><a href=\"https://example.org/x\">", ""},
		{"[x](https://example.org/x#y) [m](mailto:a@example.org)", ""},
		{"`[x](gone.md)` and\n```\n[x](gone.md)\n```\n", ""},
		{"[a](gone.md)", "no such file"},
		{"![a](docs/gone.svg)", "no such file"},
		{"[a]: gone.md", "no such file"},
		{"<img src=\"gone.svg\">", "no such file"},
		{"[a](docs/a.md#gone)", "no such heading"},
		{"[a](docs/a.md#no-heading)", "no such heading"},
		{"[a](docs/a.md#again-2)", "no such heading"},
		{"[own](#gone)", "no such heading"},
		{"[a](docs/b.svg#L10)", "only documents"},
		{"[a](/docs/a.md)", "from the document"},
		{"[a](../x.md)", "leaves the repository"},
		{"[a](docs/%zz.md)", "invalid URL escape"},
	} {
		docs["README.md"] = tt.text
		_, broken := checkLinks(docs, exists)
		if got := strings.Join(broken, "; "); (got == "") != (tt.why == "") || !strings.Contains(got, tt.why) || len(broken) > 1 {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.why)
		}
	}
}
