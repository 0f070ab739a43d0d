package lockshttp

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of requests.
const (
	maxQuery  = 8 << 10 // bytes of the query of an address
	maxKey    = 512     // bytes of a key
	maxPage   = 1000    // keys or sessions of a document
	pageSize  = 100     // the default
	maxDigits = 20      // of a number of 64 bits
)

// inputError is a parameter that cannot be used. Nothing was changed.
type inputError struct {
	field  string
	reason string
}

func (e *inputError) Error() string { return e.field + ": " + e.reason }

func badInput(field, format string, args ...any) error {
	return &inputError{field, fmt.Sprintf(format, args...)}
}

// queryOf returns the parameters of a request for a document. Each must be one of
// allowed, stand once, and be valid UTF-8.
func queryOf(r *http.Request, allowed ...string) (url.Values, error) {
	if len(r.URL.RawQuery) > maxQuery {
		return nil, badInput("query", "%d bytes exceed %d", len(r.URL.RawQuery), maxQuery)
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badInput("query", "cannot be read")
	}
	return values, checkFields(values, allowed, nil)
}

// checkFields returns an error unless each field of values is one of allowed and valid
// UTF-8, and stands once or is one of repeated.
func checkFields(values url.Values, allowed, repeated []string) error {
	for field, all := range values {
		switch {
		case !slices.Contains(allowed, field):
			return badInput(fmt.Sprintf("%.40q", field), "no such parameter here; there are: %s", strings.Join(allowed, ", "))
		case len(all) > 1 && !slices.Contains(repeated, field):
			return badInput(field, "stands %d times", len(all))
		}
		for _, v := range all {
			if !utf8.ValidString(v) {
				return badInput(field, "not valid UTF-8")
			}
		}
	}
	return nil
}

// textOf returns a parameter of up to limit bytes.
func textOf(values url.Values, field string, limit int) (string, error) {
	v := values.Get(field)
	if len(v) > limit {
		return "", badInput(field, "%d bytes exceed %d", len(v), limit)
	}
	return v, nil
}

// keyOf returns a parameter that must be a key.
func keyOf(values url.Values, field string) (string, error) {
	v, err := textOf(values, field, maxKey)
	switch {
	case err != nil:
		return "", err
	case v == "":
		return "", badInput(field, "is missing")
	case v[0] == 0:
		return "", badInput(field, "keys that begin with a NUL byte are reserved")
	}
	return v, nil
}

// prefixOf returns a parameter that must be empty or the beginning of a key.
func prefixOf(values url.Values, field string) (string, error) {
	if values.Get(field) == "" {
		return "", nil
	}
	return keyOf(values, field)
}

// countOf returns a parameter that must be a number from least to most. If the parameter
// is missing, countOf returns missing; a negative one is an error.
func countOf(values url.Values, field string, least, most, missing int) (int, error) {
	v := values.Get(field)
	if v == "" && !values.Has(field) && missing >= 0 {
		return missing, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most || !digits(v) {
		return 0, badInput(field, "%.40q is no number from %d to %d", v, least, most)
	}
	return n, nil
}

// digits reports whether s consists of decimal digits, at most as many as a number of 64
// bits may have.
func digits(s string) bool {
	return s != "" && len(s) <= maxDigits && strings.Trim(s, "0123456789") == ""
}

// choiceOf returns a parameter that must be missing or one of choices; the first is the
// default.
func choiceOf(values url.Values, field string, choices ...string) (string, error) {
	if !values.Has(field) {
		return choices[0], nil
	}
	if v := values.Get(field); slices.Contains(choices, v) {
		return v, nil
	}
	return "", badInput(field, "%.40q is none of %s", values.Get(field), strings.Join(choices, ", "))
}
