package machine

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// words are a command line's arguments: name=value, and bare words.
type words struct {
	named map[string]string
	bare  []string
	err   error
}

func split(line string) (verb string, w words) {
	fields := strings.Fields(line)
	w.named = make(map[string]string)
	for _, f := range fields[1:] {
		if k, v, ok := strings.Cut(f, "="); ok {
			w.named[k] = v
		} else {
			w.bare = append(w.bare, f)
		}
	}
	return fields[0], w
}

func (w *words) next() string {
	if len(w.bare) == 0 {
		return ""
	}
	v := w.bare[0]
	w.bare = w.bare[1:]
	return v
}

func (w *words) num(name string, missing uint64) uint64 {
	v, ok := w.named[name]
	if !ok {
		return missing
	}
	delete(w.named, name)
	n, err := number(v)
	if err != nil {
		w.err = err
	}
	return n
}

func (w *words) int(name string) int {
	v, ok := w.named[name]
	if !ok {
		return 0
	}
	delete(w.named, name)
	n, err := strconv.Atoi(v)
	if err != nil {
		w.err = err
	}
	return n
}

func (w *words) tokens(name string) (tokens []Token) {
	for _, n := range w.seqs(name) {
		tokens = append(tokens, Token(n))
	}
	return tokens
}

func number(v string) (uint64, error) {
	switch v {
	case "max":
		return math.MaxUint64, nil
	case "max-token":
		return uint64(MaxToken), nil
	}
	return strconv.ParseUint(v, 10, 64)
}

// textOf reads a bare or named value. The value "x*600" is 600 times x, "bad-utf8"
// is a byte that is not UTF-8, and "none" is empty.
func textOf(v string) string {
	switch v {
	case "bad-utf8":
		return "\xff"
	case "none":
		return ""
	}
	if s, n, ok := strings.Cut(v, "*"); ok {
		if n, err := strconv.Atoi(n); err == nil {
			return strings.Repeat(s, n)
		}
	}
	return v
}

func (w *words) text(name, missing string) string {
	v, ok := w.named[name]
	if !ok {
		v = missing
	}
	delete(w.named, name)
	return textOf(v)
}

// seqs reads "1,2,5-9".
func (w *words) seqs(name string) (seqs []uint64) {
	v, ok := w.named[name]
	if !ok {
		return nil
	}
	delete(w.named, name)
	for _, part := range strings.Split(v, ",") {
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		a, err1 := number(first)
		b, err2 := number(last)
		if err1 != nil || err2 != nil || b-a > 1<<20 {
			w.err = fmt.Errorf("bad range %q", part)
			return nil
		}
		for n := a; ; n++ {
			seqs = append(seqs, n)
			if n == b {
				break
			}
		}
	}
	return seqs
}
