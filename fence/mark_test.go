package fence

import (
	"bytes"
	"math"
	"slices"
	"testing"
)

func TestMarkIsTextThatAPersonCanRead(t *testing.T) {
	// Marks of this format are on users' disks: a change needs a new version.
	for r, want := range map[record]string{
		{0, 0}:                           "wardmote-fence 2 count=0 token=0 crc32c=804d6242",
		{12, 1234}:                       "wardmote-fence 2 count=12 token=1234 crc32c=a816a9a4",
		{math.MaxUint64, math.MaxUint64}: "wardmote-fence 2 count=18446744073709551615 token=18446744073709551615 crc32c=5aa2f5c7",
	} {
		got := string(r.line())
		if got != want {
			t.Errorf("record %+v is %q, want %q", r, got, want)
		}
		if len(got) > maxLine {
			t.Errorf("record %+v has %d bytes, maxLine is %d", r, len(got), maxLine)
		}
	}
	if r, err := decodeMark(firstMark()); r != (record{1, 0}) || err != nil {
		t.Errorf("a new mark reads as %+v, %v", r, err)
	}
}

// lines returns the records of blocks that are a line and newlines.
func lines(blocks ...string) []byte {
	var b []byte
	for _, text := range blocks {
		b = append(b, text...)
		b = append(b, bytes.Repeat([]byte{'\n'}, blockSize-len(text))...)
	}
	return b
}

func line(count uint64, t Token) string { return string(record{count, t}.line()) }

func TestWhichRecordIsTheLatest(t *testing.T) {
	const torn = "wardmote-fence 2 cou"
	for _, test := range []struct {
		says   string
		blocks [4]string
		want   Token
		fails  bool
	}{
		{"the even one", [4]string{line(4, 7), line(4, 7), line(3, 5), line(3, 5)}, 7, false},
		{"the odd one", [4]string{line(4, 7), line(4, 7), line(5, 9), line(5, 9)}, 9, false},
		{"more digits", [4]string{line(10, 70), line(10, 70), line(9, 8), line(9, 8)}, 70, false},
		{"a store whose second copy is missing", [4]string{line(6, 11), line(4, 7), line(5, 9), line(5, 9)}, 11, false},
		{"a store whose first copy is missing", [4]string{line(4, 7), line(6, 11), line(5, 9), line(5, 9)}, 11, false},
		{"a torn first copy", [4]string{torn, line(4, 7), line(5, 9), line(5, 9)}, 9, false},
		{"a torn second copy", [4]string{line(6, 11), torn, line(5, 9), line(5, 9)}, 11, false},
		{"damage in both pairs", [4]string{line(4, 7), torn, "", line(5, 9)}, 9, false},
		{"a store that power loss has dropped", [4]string{line(2, 3), line(2, 3), line(5, 9), line(5, 9)}, 9, false},
		{"equal tokens", [4]string{line(4, 9), line(4, 9), line(5, 9), line(5, 9)}, 9, false},
		{"no even record", [4]string{torn, torn, line(5, 9), line(5, 9)}, 0, true},
		{"no odd record", [4]string{line(4, 7), line(4, 7), "", torn}, 0, true},
		{"an odd record in an even place", [4]string{line(7, 11), line(7, 11), line(5, 9), line(5, 9)}, 0, true},
		{"an even record in an odd place", [4]string{line(4, 7), line(4, 7), line(6, 9), line(6, 9)}, 0, true},
		{"tokens that fall", [4]string{line(6, 8), line(6, 8), line(5, 9), line(5, 9)}, 0, true},
		{"tokens that fall in a pair", [4]string{line(6, 6), line(4, 7), line(5, 5), line(5, 5)}, 0, true},
		{"two tokens of one store", [4]string{line(6, 10), line(6, 11), line(5, 9), line(5, 9)}, 0, true},
		{"text behind the records", [4]string{line(4, 7) + "\nx", line(4, 7) + " ", line(5, 9), line(5, 9)}, 0, true},
	} {
		r, err := decodeMark(lines(test.blocks[:]...))
		if r.token != test.want || (err != nil) != test.fails {
			t.Errorf("%s: the mark is %d, %v, want %d", test.says, r.token, err, test.want)
		}
	}
}

// Changes each bit of one copy, and of both copies, cuts the mark at each length and
// appends bytes. The mark is never read as another one.
func TestDamagedMarkIsNeverRead(t *testing.T) {
	for _, tok := range []Token{0, 7, 1<<53 + 1, math.MaxUint64} {
		latest := record{13, tok}
		good := append(record{12, tok / 2}.pair(), latest.pair()...)
		if got, err := decodeMark(good); got != latest || err != nil {
			t.Fatalf("%+v reads as %+v, %v", latest, got, err)
		}
		for n := range good {
			if got, err := decodeMark(good[:n]); err == nil {
				t.Errorf("cut to %d bytes the mark reads as %+v", n, got)
			}
		}
		for n := range maxLine + 10 {
			for _, bits := range []byte{1, 2, 4, 8, 16, 32, 64, 128, 255} {
				b := good[pairSize+n] ^ bits
				one, both := slices.Clone(good), slices.Clone(good)
				one[pairSize+n] = b
				both[pairSize+n], both[pairSize+blockSize+n] = b, b
				if got, err := decodeMark(one); got != latest || err != nil {
					t.Fatalf("with %#x at byte %d of one copy the mark reads as %+v, %v", b, n, got, err)
				}
				if got, err := decodeMark(both); err == nil {
					t.Fatalf("with %#x at byte %d of both copies the mark reads as %+v", b, n, got)
				}
			}
		}
		for _, tail := range []string{"\n", " ", "\x00", string(good)} {
			if got, err := decodeMark(append(slices.Clone(good), tail...)); err == nil {
				t.Errorf("with %.10q behind the mark reads as %+v", tail, got)
			}
		}
	}
}

func FuzzDecodeMark(f *testing.F) {
	for _, tok := range []Token{0, 7, math.MaxUint64} {
		f.Add(line(4, tok), line(4, tok), line(5, tok), line(3, tok))
	}
	f.Add("", "", "", "")
	f.Add("wardmote-fence 2 count=04 token=07 crc32c=00000000", line(4, 7), line(5, 7), line(5, 7))
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		texts := []string{a, b, c, d}
		for _, text := range texts {
			if len(text) > blockSize {
				return
			}
		}
		blocks := lines(texts...)
		r, err := decodeMark(blocks)
		if err != nil {
			if r != (record{}) {
				t.Errorf("the error %v came with %+v", err, r)
			}
			return
		}
		if !bytes.Contains(blocks[r.offset():][:pairSize], append(r.line(), '\n')) {
			t.Errorf("%q reads as %+v", texts, r)
		}
	})
}
