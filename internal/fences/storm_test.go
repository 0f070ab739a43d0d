//go:build unix

package fences

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/fence/fencetest"
)

// stormTime is the time that writers with random pauses work on each database.
func stormTime(tb testing.TB) time.Duration {
	text := os.Getenv("WARDMOTE_STORM")
	if text == "" {
		return time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		tb.Fatalf("WARDMOTE_STORM: %v", err)
	}
	return d
}

// compareThenWrite is the guard that people write by hand: a transaction reads the mark,
// compares, and writes.
type compareThenWrite struct {
	*row
	mark string
}

func (r compareThenWrite) Write(ctx context.Context, t fence.Token, value string) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var mark int64
	if err := tx.QueryRowContext(ctx, r.mark, r.key).Scan(&mark); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if t < fence.Token(mark) {
		return &fence.StaleError{Token: t, Seen: fence.Token(mark)}
	}
	fencetest.Pause(ctx, "between check and write")
	if _, err := tx.ExecContext(ctx, r.set, value, r.key); err != nil {
		return err
	}
	return tx.Commit()
}

// Eight writers with random pauses: a guard loses no update, and admits no write out of
// token order. Comparing and then writing does, at the isolation that a database has
// unless told otherwise; SQLite has a single writer, and is serializable.
func TestStorm(t *testing.T) {
	for _, d := range databases {
		for _, f := range forms {
			t.Run(d.name+", "+f.name, func(t *testing.T) {
				db := d.open(t, d.address(t))
				db.SetMaxOpenConns(20)
				r := d.newRow(t, db, f)
				result, err := fencetest.Storm(t, r, 8, stormTime(t))
				if err != nil {
					t.Fatal(err)
				}
				t.Log(result)
				if err := result.Err(); err != nil {
					t.Error(err)
				}
			})
		}
		if d.name != "PostgreSQL by pgx" && d.name != "MariaDB" {
			continue
		}
		t.Run(d.name+", the control", func(t *testing.T) {
			db := d.open(t, d.address(t))
			db.SetMaxOpenConns(20)
			r := compareThenWrite{d.newRow(t, db, forms[0]), d.bind("SELECT token FROM wardmote_fence WHERE resource = ?")}
			result, err := fencetest.Storm(t, r, 8, stormTime(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Log(result)
			if result.Lost == 0 && result.Late == 0 {
				t.Error("compare and then write has no fault: the storm proves nothing")
			}
		})
	}
}

// One holder's transactions, each of one update: without a guard, with Do, and with a
// claim in every transaction's place for comparison.
func BenchmarkHolder(b *testing.B) {
	for _, d := range databases {
		for _, f := range forms {
			b.Run(d.name+"/"+f.name, func(b *testing.B) {
				db := d.open(b, d.address(b))
				r := d.newRow(b, db, f)
				ctx := b.Context()
				if err := r.Claim(ctx, 7); err != nil {
					b.Fatal(err)
				}
				if err := r.Write(ctx, 7, "x"); err != nil {
					b.Fatal(err)
				}
				bare := func() error {
					tx, err := db.BeginTx(ctx, nil)
					if err != nil {
						return err
					}
					defer func() { _ = tx.Rollback() }()
					if _, err := tx.ExecContext(ctx, r.set, "x", r.key); err != nil {
						return err
					}
					return tx.Commit()
				}
				// In turns, since the host's speed changes from second to second.
				var times [3]time.Duration
				calls := []func() error{bare, func() error { return r.Write(ctx, 7, "x") }, func() error { return r.Claim(ctx, 7) }}
				for b.Loop() {
					for i, call := range calls {
						const turn = 20
						began := time.Now()
						for range turn {
							if err := call(); err != nil {
								b.Fatal(err)
							}
						}
						times[i] += time.Since(began) / turn
					}
				}
				b.ReportMetric(float64(times[0])/float64(times[1]), "of-unfenced")
				b.ReportMetric(float64(times[0].Microseconds())/float64(b.N), "µs/unfenced")
				b.ReportMetric(float64(times[1].Microseconds())/float64(b.N), "µs/fenced")
				b.ReportMetric(float64(times[2].Microseconds())/float64(b.N), "µs/claim")
			})
		}
	}
}
