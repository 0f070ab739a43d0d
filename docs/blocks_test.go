//go:build unix

package docs

import (
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The blocks of Go in these documents are bodies of functions, and compile.
func TestBlocksCompile(t *testing.T) {
	var source strings.Builder
	source.WriteString("package main\n\nimport (\n\"context\"\n\"fmt\"\n\n\"github.com/wardmote/wardmote/fence\"\n\"github.com/wardmote/wardmote/locks\"\n)\n\n" +
		"var _ = fmt.Sprint\n\nfunc work(context.Context, fence.Token) error { return nil }\n\nfunc main() {}\n\n")
	for _, name := range []string{"choose.md", "coming-from.md"} {
		n := 0
		for _, b := range readBlocks(t, name) {
			if b.language != "go" {
				continue
			}
			n++
			if formatted, err := format.Source([]byte(b.text)); err != nil || string(formatted) != b.text {
				t.Errorf("%s: gofmt would change block %d: %v\n%s", name, n, err, formatted)
			}
			end := "\nreturn nil\n}\n\n"
			if lines := strings.Split(b.text, "\n"); strings.HasPrefix(lines[0], "return ") || len(lines) > 1 && strings.HasPrefix(lines[1], "return ") {
				end = "}\n\n"
			}
			fmt.Fprintf(&source, "// Block %d of %s.\nfunc _(ctx context.Context, client *locks.Client) error {\n%s%s", n, name, b.text, end)
		}
		if n == 0 {
			t.Errorf("no blocks in %s", name)
		}
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(source.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "vet", file)
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // so that CI has compiled all this already
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, source.String())
	}
}
