//go:build unix

package fences

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/fence/fencetest"
)

// stormTime is the duration of each storm.
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

// compareThenWrite is a typical guard written by hand: a transaction reads the mark,
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
// token order. The control, which compares and then writes, has both faults at the default
// isolation of PostgreSQL and MariaDB. SQLite is serializable and needs no control.
func TestStorm(t *testing.T) {
	for _, d := range databases {
		for _, f := range d.forms() {
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

// One holder's transactions, each of one update, in turns: without a guard, and with Do.
// After each turn the holder claims under a new token. With the published figures'
// command:
//
//	go test -run '^$' -bench Holder -benchtime 100x .
//
// Each update changes the value: databases write nothing, and sync nothing, where an
// update changes nothing.
func BenchmarkHolder(b *testing.B) {
	for _, d := range databases {
		for _, f := range d.forms() {
			b.Run(d.name+"/"+f.name, func(b *testing.B) {
				db := d.open(b, d.address(b))
				r := d.newRow(b, db, f)
				ctx := b.Context()
				bare := func(value string) error {
					tx, err := db.BeginTx(ctx, nil)
					if err != nil {
						return err
					}
					defer func() { _ = tx.Rollback() }()
					if _, err := tx.ExecContext(ctx, r.set, value, r.key); err != nil {
						return err
					}
					return tx.Commit()
				}
				holder(b, bare, r)
			})
		}
	}
}

// holder runs bare writes, and claims and writes of a resource, in turns, because the
// host's speed changes from second to second. The metrics are medians: of-unfenced of the
// ratio of each two neighbouring turns, the others of the turns.
func holder(b *testing.B, bare func(value string) error, r fencetest.Resource) {
	const turn = 10
	ctx := b.Context()
	token, value := fence.Token(0), 0
	var unfenced, fenced, claims []time.Duration
	calls := func(times *[]time.Duration, n int, call func(value string) error) {
		b.Helper()
		began := time.Now()
		for range n {
			value++
			if err := call(strconv.Itoa(value)); err != nil {
				b.Fatal(err)
			}
		}
		*times = append(*times, time.Since(began)/time.Duration(n))
	}
	claim := func(string) error { token++; return r.Claim(ctx, token) }
	write := func(value string) error { return r.Write(ctx, token, value) }
	// Not measured: the first statements of a connection.
	calls(&claims, 1, claim)
	calls(&fenced, 1, write)
	calls(&unfenced, 1, bare)
	unfenced, fenced, claims = nil, nil, nil
	for first := false; b.Loop(); first = !first {
		if first {
			calls(&unfenced, turn, bare)
		}
		calls(&fenced, turn, write)
		if !first {
			calls(&unfenced, turn, bare)
		}
		calls(&claims, 1, claim)
	}
	var ratios []float64
	for i := range fenced {
		ratios = append(ratios, float64(unfenced[i])/float64(fenced[i]))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "of-unfenced")
	median := func(times []time.Duration) float64 {
		slices.Sort(times)
		return float64(times[len(times)/2].Nanoseconds()) / 1000
	}
	b.ReportMetric(median(unfenced), "µs/unfenced")
	b.ReportMetric(median(fenced), "µs/fenced")
	b.ReportMetric(median(claims), "µs/claim")
	b.ReportMetric(0, "ns/op") // of a whole round: means nothing
}
