//go:build mutants

package mutants

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A mutant is one bug, and the tests that must fail because of it.
type mutant struct {
	name     string
	breaks   string // the promise or rule
	file     string
	old, new string
	and      [2]string // another old and new text of the file, if the rule is kept twice
	pkg      string    // the package with the tests
	run      string    // the tests' pattern
	full     bool      // the tests need all rounds, and network namespaces: not without root
}

// plant returns the text with the bug.
func (m mutant) plant(t *testing.T, text string) string {
	for _, edit := range [][2]string{{m.old, m.new}, m.and} {
		if edit[0] == "" {
			continue
		}
		if n := strings.Count(text, edit[0]); n != 1 {
			t.Fatalf("%s has the text to replace %d times:\n%s", m.file, n, edit[0])
		}
		text = strings.Replace(text, edit[0], edit[1], 1)
	}
	return text
}

func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	tree := copyTree(t, root)
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			if m.full {
				if os.Getuid() != 0 {
					t.Skip("needs network namespaces")
				}
				t.Setenv("WARDMOTE_FULL", "1")
			}
			path := filepath.Join(tree, m.file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(m.plant(t, string(text))), 0o600); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}()
			if out, err := command(tree, "go", "vet", "./"+filepath.Dir(m.file)); err != nil && !strings.Contains(out, "unreachable") {
				t.Fatalf("the mutant does not build:\n%s", out)
			}
			out, err := command(tree, "go", "test", "-count=1", "-timeout", "4m", "-run", m.run, "./"+m.pkg)
			failed := failures(out)
			switch {
			case strings.Contains(out, "no tests to run"):
				t.Errorf("no test matches %s in %s", m.run, m.pkg)
			case err == nil:
				t.Errorf("the mutant survives: %s", m.breaks)
			case len(failed) == 0:
				t.Errorf("no test failed by its own assertion:\n%s", out)
			default:
				t.Logf("caught by %s", strings.Join(failed, ", "))
			}
		})
	}
}

func command(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// failures are the names of the tests that failed.
func failures(out string) (names []string) {
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			names = append(names, strings.Fields(name)[0])
		}
	}
	return names
}

// copyTree copies the files that git knows, and new ones, to a temporary
// directory.
func copyTree(t *testing.T, root string) string {
	out, err := command(root, "git", "ls-files", "--cached", "--others", "--exclude-standard")
	if err != nil {
		t.Fatalf("git: %v\n%s", err, out)
	}
	tree := t.TempDir()
	for name := range strings.Lines(out) {
		name = strings.TrimSpace(name)
		if err := copyFile(filepath.Join(root, name), filepath.Join(tree, name)); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if os.IsNotExist(err) {
		return nil // deleted, and not committed yet
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fmt.Errorf("copying the tree: %w", err)
	}
	return os.WriteFile(to, b, 0o600)
}
