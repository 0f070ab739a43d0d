//go:build mutants

package mutants

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

var more = flag.String("suites", "", "comma-separated names of suites that look at each mutant in the packages they run, beside the mutant's own tests")

// A mutant is one bug, and the tests that must fail because of it.
type mutant struct {
	name     string
	promise  promise
	breaks   string // the rule
	file     string
	old, new string
	and      [2]string // another old and new text of the file, if the rule is kept twice
	pkg      string    // the package with the tests
	run      string    // the tests' pattern
	also     []string  // names of suites that must find the bug too, each by itself
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

// outcome is the line of a mutant in the results.
type outcome struct {
	Suite    string   `json:"suite"` // "mutants"
	Commit   string   `json:"commit"`
	Mutant   string   `json:"mutant"`
	Promise  string   `json:"promise"`
	Breaks   string   `json:"breaks"`
	Survived bool     `json:"survived"`
	Found    []find   `json:"found"`
	Missed   []string `json:"missed,omitempty"` // suites that looked and found nothing
}

// find is a success of a suite.
type find struct {
	By      string   `json:"by"`      // "package locks", or a suite's name
	Tests   []string `json:"tests"`   // that failed up to the first, and beside it
	Seconds float64  `json:"seconds"` // of the run of the tests, without the build
	CPU     float64  `json:"cpu"`     // the same in seconds of CPU time
}

func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	head, err := command(root, nil, "git", "describe", "--always", "--dirty", "--exclude=*")
	if err != nil {
		t.Fatalf("git: %v\n%s", err, head)
	}
	var others []string
	for name := range strings.SplitSeq(*more, ",") {
		if _, known := suites[name]; !known && name != "" {
			t.Fatalf("-suites: there is no suite %q", name)
		} else if known {
			others = append(others, name)
		}
	}
	for _, m := range allMutants() {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, root, m)
			o := outcome{Suite: "mutants", Commit: strings.TrimSpace(head), Mutant: m.name, Promise: string(m.promise), Breaks: m.breaks}
			l.look(&o, "package "+m.pkg, suite{pkg: m.pkg, run: m.run}, true)
			for _, name := range m.also {
				if suites[name].root && os.Getuid() != 0 {
					t.Logf("%s did not look: it needs network namespaces, and so root", name)
					continue
				}
				l.look(&o, name, suites[name], true)
			}
			for _, name := range others {
				if s := suites[name]; slices.Contains(s.sees, filepath.Dir(m.file)) && !slices.Contains(m.also, name) {
					l.look(&o, name, s, false)
				}
			}
			o.Survived = len(o.Found) == 0
			if err := testrounds.AppendResult(o); err != nil {
				t.Error(err)
			}
		})
	}
}

// A lab builds tests with one bug, and runs them.
type lab struct {
	t       *testing.T
	root    string
	mutant  mutant
	overlay string            // the file that names the text with the bug
	built   map[string]string // the test binary of each package
}

func newLab(t *testing.T, root string, m mutant) *lab {
	l := &lab{t: t, root: root, mutant: m, overlay: filepath.Join(t.TempDir(), "overlay.json"), built: make(map[string]string)}
	path := filepath.Join(root, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	planted := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(planted, []byte(m.plant(t, string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: planted}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.overlay, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

// binary builds the tests of a package. The tree is not touched: the bug is an overlay.
func (l *lab) binary(pkg string) string {
	if name := l.built[pkg]; name != "" {
		return name
	}
	name := filepath.Join(l.t.TempDir(), "mutant.test")
	if out, err := command(l.root, nil, "go", "test", "-c", "-vet=off", "-ldflags=-w", "-overlay", l.overlay, "-o", name, "./"+pkg); err != nil {
		l.t.Fatalf("the mutant does not build:\n%s", out)
	}
	l.built[pkg] = name
	return name
}

// look runs a suite at the mutant and writes the outcome down. A suite that must find the
// bug and does not fails the test.
func (l *lab) look(o *outcome, by string, s suite, must bool) {
	l.t.Helper()
	args := []string{"-test.run", s.run, "-test.timeout", "4m", "-test.failfast"}
	if imports(l.t, filepath.Join(l.root, s.pkg), `"pgregory.net/rapid"`) {
		// A kept input would be tried at the next mutants, too, and nobody reads the file.
		args = append(args, "-rapid.nofailfile", "-rapid.shrinktime", "1s")
	}
	cmd := exec.Command(l.binary(s.pkg), args...)
	cmd.Dir = filepath.Join(l.root, s.pkg)
	kept, err := os.MkdirTemp("", "mutant-") // recordings of storms that fail; sockets have no long names
	if err != nil {
		l.t.Fatal(err)
	}
	defer os.RemoveAll(kept)
	cmd.Env = append(os.Environ(), append([]string{"WARDMOTE_RESULTS=", "WARDMOTE_STORM_DIR=" + kept}, s.env...)...)
	began := time.Now()
	b, err := cmd.CombinedOutput()
	took, out := time.Since(began), string(b)
	failed := failures(out)
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		l.t.Errorf("%s: %v", by, err)
	case strings.Contains(out, "no tests to run"):
		l.t.Errorf("no test matches %s in %s", s.run, s.pkg)
	case err == nil:
		o.Missed = append(o.Missed, by)
		if must {
			l.t.Errorf("the mutant survives %s: %s", by, l.mutant.breaks)
		}
	case len(failed) == 0:
		o.Missed = append(o.Missed, by)
		l.t.Errorf("%s: no test failed by its own assertion:\n%s", by, out)
	default:
		used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		o.Found = append(o.Found, find{by, failed, seconds(took), seconds(used)})
		l.t.Logf("found by %s in %.1f s: %s", by, took.Seconds(), strings.Join(failed, ", "))
	}
}

func seconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Millisecond)) / float64(time.Second)
}

// imports reports whether a test file of a directory has a text.
func imports(t *testing.T, dir, text string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(name string) bool {
		b, err := os.ReadFile(name)
		return err == nil && strings.Contains(string(b), text)
	})
}

func command(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// failures returns the names of the failed tests.
func failures(out string) (names []string) {
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			names = append(names, strings.Fields(name)[0])
		}
	}
	return names
}

// check fails for a mutant with an unknown promise or suite, or without a name.
func (m mutant) check() error {
	switch {
	case !slices.Contains(promises, m.promise):
		return fmt.Errorf("%s: the promise %q is none of the list", m.name, m.promise)
	case m.breaks == "" || m.pkg == "" || m.run == "":
		return fmt.Errorf("%s: the rule, the package or the tests are not named", m.name)
	}
	for _, name := range m.also {
		if _, known := suites[name]; !known {
			return fmt.Errorf("%s: there is no suite %q", m.name, name)
		}
	}
	return nil
}
