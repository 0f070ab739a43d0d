package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/fence/sqlfence"
)

var rewrite = flag.Bool("rewrite", false, "write the output to testdata")

// The output is that in testdata, but for the tokens.
func TestTheProgram(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out strings.Builder
	if err := run(t.Context(), &out, ""); err != nil {
		t.Fatalf("%v, after\n%s", err, out.String())
	}
	got := regexp.MustCompile(`\d{12,}`).ReplaceAllString(out.String(), "…")
	golden := filepath.Join("testdata", "output.txt")
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got != string(want) {
		t.Errorf("%v: the program says\n%s\nand not\n%s", err, got, want)
	}
	if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*")); err != nil || len(left) > 0 {
		t.Errorf("the program has left behind %v %v", left, err)
	}
}

func TestAProgramThatIsEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, new(strings.Builder), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("the program ends with %v", err)
	}
	if err := run(t.Context(), new(strings.Builder), "oracle:x"); err == nil || !strings.Contains(err.Error(), "want postgres") {
		t.Errorf("a database that the program does not know: %v", err)
	}
}

// A withdrawal of too much changes nothing.
func TestTooLittleMoney(t *testing.T) {
	db, dialect, err := open("sqlite:" + filepath.Join(t.TempDir(), "bank"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	client, err := wardmote.Local(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Node().Stop()
	guard, err := sqlfence.New(dialect, sqlfence.Table{Name: table, Resource: "id", Token: "fence", InRow: true})
	if err != nil {
		t.Fatal(err)
	}
	bank := Bank{DB: db, Dialect: dialect, Guard: guard, Locks: client}
	if err := bank.Open(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	if _, err := bank.Withdraw(t.Context(), start+1); !errors.Is(err, ErrTooLittle) {
		t.Errorf("too much: %v", err)
	}
	if left, err := bank.Withdraw(t.Context(), start); left != 0 || err != nil {
		t.Errorf("all: %d left, %v", left, err)
	}
	if balance, paid, err := bank.Read(t.Context()); balance != 0 || paid != start || err != nil {
		t.Errorf("the account has %d, and paid %d: %v", balance, paid, err)
	}
}
