//go:build unix

package fences

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// The example sql has the same output with PostgreSQL, MariaDB and SQLite.
func TestTheExampleInOtherDatabases(t *testing.T) {
	const example = "../../examples/sql"
	want, err := os.ReadFile(filepath.Join(example, "testdata", "output.txt"))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "sql")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = example
	if err := run(build); err != nil {
		t.Fatal(err)
	}
	for _, d := range databases {
		var database string
		switch d.name {
		case "PostgreSQL by pgx":
			database = d.dsn(t, d.address(t))
		case "MariaDB":
			database = "mysql:" + d.dsn(t, d.address(t))
		default:
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			out, err := exec.Command(program, "-database", database).CombinedOutput()
			got := regexp.MustCompile(`\d{12,}`).ReplaceAllString(string(out), "…")
			if err != nil || got != string(want) {
				t.Errorf("%v: the program says\n%s", err, got)
			}
			db := d.open(t, d.address(t))
			var n int
			if err := db.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_name LIKE 'wardmote_example%'").Scan(&n); err != nil || n > 0 {
				t.Errorf("%d tables of the example are left: %v", n, err)
			}
		})
	}
}
