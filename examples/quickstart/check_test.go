package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// at returns the time n milliseconds after a fixed moment.
func at(n int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(n)) }

func (f findings) clean() bool { return f.Stale+f.Overlaps+f.Shared+f.Lost == 0 }

// A check without findings proves something only if the check finds planted errors.
func TestCheckFindsPlantedErrors(t *testing.T) {
	good := []entry{
		{Token: 10, Member: "ann", Seq: 1, At: at(0)},
		{Token: 10, Member: "ann", Seq: 2, At: at(10)},
		{Token: 12, Member: "ben", Seq: 3, At: at(20)},
		{Token: 15, Member: "ann", Seq: 4, At: at(30)},
	}
	tests := []struct {
		name string
		log  []entry
		want findings
		says string
	}{
		{name: "nothing", log: nil},
		{name: "all is well", log: good, want: findings{Writes: 4}},
		{
			name: "a stale write, whose token falls",
			log: append(good[:3:3],
				entry{Token: 10, Member: "ann", Seq: 4, At: at(30)}),
			want: findings{Writes: 4, Stale: 1, Overlaps: 1},
			says: "entry 4: ann wrote under token 10 after token 12",
		},
		{
			name: "each stale write counts, until the next larger token and after",
			log: append(good[:3:3],
				entry{Token: 10, Member: "ann", Seq: 4, At: at(30)},
				entry{Token: 11, Member: "cid", Seq: 5, At: at(40)},
				entry{Token: 12, Member: "ben", Seq: 6, At: at(50)}),
			want: findings{Writes: 6, Stale: 2, Overlaps: 1},
			says: "after token 12",
		},
		{
			name: "two owners in turns",
			log: []entry{
				{Token: 10, Member: "ann", Seq: 1, At: at(0)},
				{Token: 12, Member: "ben", Seq: 2, At: at(10)},
				{Token: 10, Member: "ann", Seq: 3, At: at(20)},
				{Token: 12, Member: "ben", Seq: 4, At: at(30)},
			},
			want: findings{Writes: 4, Stale: 1, Overlaps: 1},
			says: "entry 3",
		},
		{
			name: "in order in the file, but at once by the clock",
			log: []entry{
				{Token: 10, Member: "ann", Seq: 1, At: at(0)},
				{Token: 10, Member: "ann", Seq: 2, At: at(25)},
				{Token: 12, Member: "ben", Seq: 3, At: at(20)},
			},
			want: findings{Writes: 3, Overlaps: 1},
			says: "wrote under token 10 until",
		},
		{
			name: "at once by the clock, with another owner's time between",
			log: []entry{
				{Token: 10, Member: "ann", Seq: 1, At: at(25)},
				{Token: 12, Member: "ben", Seq: 2, At: at(10)},
				{Token: 15, Member: "cid", Seq: 3, At: at(20)},
			},
			want: findings{Writes: 3, Overlaps: 2},
			says: "ben under token 12 from",
		},
		{
			name: "two members with one token",
			log: []entry{
				{Token: 10, Member: "ann", Seq: 1, At: at(0)},
				{Token: 10, Member: "ben", Seq: 2, At: at(10)},
			},
			want: findings{Writes: 2, Shared: 1},
			says: "ben wrote under token 10, which is ann's",
		},
		{
			name: "an update lost: the next owner read before it was written",
			log: append(good[:2:2],
				entry{Token: 12, Member: "ben", Seq: 2, At: at(20)}),
			want: findings{Writes: 3, Lost: 1},
			says: "ben gave it the number 2",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got findings
			got.check(3, test.log)
			first := got.First
			got.First = ""
			if got != test.want {
				t.Errorf("found %+v, want %+v", got, test.want)
			}
			if !strings.Contains(first, test.says) || (first == "") != (test.says == "") {
				t.Errorf("says %q, want it to contain %q", first, test.says)
			}
			if got.clean() != (test.says == "") {
				t.Errorf("clean() = %t with %+v", got.clean(), got)
			}
		})
	}
}

// Two owners of a shard in one process, with the fence and then without the fence.
func TestLedgerRefusesTheStaleOwner(t *testing.T) {
	folder := t.TempDir()
	open := func() *ledger {
		b, err := openLedger(folder, 5)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	old, next := open(), open()
	write := func(b *ledger, e entry) error { e.Shard = 5; return b.Append(e) }

	if err := write(old, entry{Token: 10, Member: "ann", Seq: 1}); err != nil {
		t.Fatal(err)
	}
	if err := next.Claim(12); err != nil {
		t.Fatal(err)
	}
	// The new owner has not written yet; the claim is enough.
	var stale *fence.StaleError
	if err := write(old, entry{Token: 10, Member: "ann", Seq: 2}); !errors.As(err, &stale) || stale.Seen != 12 {
		t.Fatalf("stale write: %v, want a *fence.StaleError that has seen 12", err)
	}
	if last, err := next.Last(); err != nil || last != 1 {
		t.Fatalf("Last() = %d, %v, want 1: the refused write left something", last, err)
	}
	if err := write(next, entry{Token: 12, Member: "ben", Seq: 2}); err != nil {
		t.Fatal(err)
	}
	f, err := checkLedgers(folder)
	if err != nil || !f.clean() || f.Writes != 2 {
		t.Fatalf("checkLedgers: %+v, %v, want 2 clean writes", f, err)
	}

	// A stale write without the fence: the check finds the write.
	if _, err := old.file.WriteString(`{"shard":5,"token":"10","member":"ann","seq":3,"at":"2030-01-01T00:00:00Z"}` + "\n"); err != nil {
		t.Fatal(err)
	}
	f, err = checkLedgers(folder)
	if err != nil || f.Stale != 1 || f.Overlaps != 1 {
		t.Fatalf("checkLedgers after a stale write past the fence: %+v, %v, want 1 stale and 1 overlap", f, err)
	}
}

func TestDamagedLedgerIsAnError(t *testing.T) {
	folder := t.TempDir()
	text := `{"shard":0,"token":"10","member":"ann","seq":1,"at":"2030-01-01T00:00:00Z"}` + "\n" + `{"shard":0,"tok`
	if err := os.WriteFile(ledgerPath(folder, 0), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := checkLedgers(folder); err == nil || !strings.Contains(err.Error(), filepath.Base(ledgerPath(folder, 0))+": line 2") {
		t.Errorf("checkLedgers: %+v, %v, want an error that names line 2", f, err)
	}
}
