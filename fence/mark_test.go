package fence

import (
	"math"
	"slices"
	"testing"
)

func TestMarkIsOneLineThatAPersonCanRead(t *testing.T) {
	// Marks of this format are on users' disks: a change needs a new version.
	for tok, want := range map[Token]string{
		0:              "wardmote-fence 1 token=0 crc32c=1adeb621\n",
		7:              "wardmote-fence 1 token=7 crc32c=ce14d2ca\n",
		math.MaxUint64: "wardmote-fence 1 token=18446744073709551615 crc32c=33ae7cc2\n",
	} {
		got := string(encodeMark(tok))
		if got != want {
			t.Errorf("mark %d is %q, want %q", tok, got, want)
		}
		if len(got) > maxMark {
			t.Errorf("mark %d has %d bytes, maxMark is %d", tok, len(got), maxMark)
		}
	}
}

// Changes each byte to every other value, cuts the mark at each length and appends
// bytes.
func TestDamagedMarkIsNeverRead(t *testing.T) {
	for _, tok := range []Token{0, 7, 1<<53 + 1, math.MaxUint64} {
		good := encodeMark(tok)
		if got, err := decodeMark(good); got != tok || err != nil {
			t.Fatalf("decodeMark(%q) = %d, %v", good, got, err)
		}
		for n := range good {
			if got, err := decodeMark(good[:n]); err == nil {
				t.Errorf("%q cut to %d bytes reads as %d", good, n, got)
			}
			for b := range 256 {
				bad := slices.Clone(good)
				bad[n] = byte(b)
				if got, err := decodeMark(bad); err == nil && byte(b) != good[n] {
					t.Errorf("%q reads as %d, it was %d", bad, got, tok)
				}
			}
		}
		for _, tail := range []string{"\n", " ", "\x00", string(good)} {
			if got, err := decodeMark(append(slices.Clone(good), tail...)); err == nil {
				t.Errorf("%q with %q behind it reads as %d", good, tail, got)
			}
		}
		if got, err := decodeMark(make([]byte, len(good))); err == nil {
			t.Errorf("zero bytes read as %d", got)
		}
	}
}

func FuzzDecodeMark(f *testing.F) {
	for _, tok := range []Token{0, 7, math.MaxUint64} {
		f.Add(encodeMark(tok))
	}
	f.Add([]byte{})
	f.Add([]byte(markHead + "07 crc32c=00000000\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tok, err := decodeMark(b)
		if err == nil && string(encodeMark(tok)) != string(b) {
			t.Errorf("%q reads as %d, which is written %q", b, tok, encodeMark(tok))
		}
		if err != nil && tok != 0 {
			t.Errorf("%q gave the error %v and also the token %d", b, err, tok)
		}
	})
}
