package meter

import (
	"strconv"
	"strings"
	"time"
)

// Kind is the type of a family of metrics.
type Kind uint8

// The kinds.
const (
	KindGauge Kind = iota
	KindCounter
	KindHistogram
	KindInfo
)

func (k Kind) String() string { return [...]string{"gauge", "counter", "histogram", "info"}[k] }

// Family describes a family of metrics. The Name of a counter ends in _total, and that
// of an info in _info, as in the samples. Unit is the unit in which the values are, as it
// stands in Name, or empty.
type Family struct {
	Name string
	Kind Kind
	Unit string
	Help string
}

// Encoder writes families of metrics as text: in the format of OpenMetrics 1.0 if Open
// is set, and else in the format 0.0.4 of Prometheus.
//
// The caller writes each family once, with the samples of one family together.
type Encoder struct {
	Open bool
	text []byte
}

// Content types of the formats.
const (
	OpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8"
	Prometheus  = "text/plain; version=0.0.4; charset=utf-8"
)

// Family begins a family.
func (e *Encoder) Family(f Family) {
	name, kind := f.Name, f.Kind.String()
	if e.Open {
		switch f.Kind {
		case KindCounter:
			name = strings.TrimSuffix(name, "_total")
		case KindInfo:
			name = strings.TrimSuffix(name, "_info")
		}
	} else if f.Kind == KindInfo {
		kind = "gauge"
	}
	e.line("# HELP ", name, " ", escape(f.Help, e.Open))
	e.line("# TYPE ", name, " ", kind)
	if e.Open && f.Unit != "" {
		e.line("# UNIT ", name, " ", f.Unit)
	}
}

// Count writes a sample of a counter, or of a gauge that is an integer. labels has names
// and values in turn.
func (e *Encoder) Count(name string, n uint64, labels ...string) {
	e.sample(name, strconv.FormatUint(n, 10), labels)
}

// Int writes a sample of a gauge.
func (e *Encoder) Int(name string, n int64, labels ...string) {
	e.sample(name, strconv.FormatInt(n, 10), labels)
}

// Bool writes a sample of a gauge: 1 or 0.
func (e *Encoder) Bool(name string, is bool, labels ...string) {
	n := int64(0)
	if is {
		n = 1
	}
	e.Int(name, n, labels...)
}

// Float writes a sample of a gauge.
func (e *Encoder) Float(name string, x float64, labels ...string) {
	e.sample(name, strconv.FormatFloat(x, 'g', -1, 64), labels)
}

// Histogram writes the samples of a histogram in seconds.
func (e *Encoder) Histogram(name string, h Histogram, labels ...string) {
	sum := uint64(0)
	with := append(labels[:len(labels):len(labels)], "le", "")
	for i, n := range h.Counts {
		sum += n
		le := "+Inf"
		if i < len(h.Bounds) {
			le = seconds(h.Bounds[i])
			if e.Open && !strings.ContainsAny(le, ".e") {
				le += ".0" // the canonical form of OpenMetrics
			}
		}
		with[len(with)-1] = le
		e.Count(name+"_bucket", sum, with...)
	}
	e.Count(name+"_count", sum, labels...)
	e.Float(name+"_sum", h.Sum.Seconds(), labels...)
}

// End returns the text.
func (e *Encoder) End() []byte {
	if e.Open {
		e.line("# EOF")
	}
	return e.text
}

func (e *Encoder) sample(name, value string, labels []string) {
	e.text = append(e.text, name...)
	for i := 0; i+1 < len(labels); i += 2 {
		if i == 0 {
			e.text = append(e.text, '{')
		} else {
			e.text = append(e.text, ',')
		}
		e.text = append(e.text, labels[i]...)
		e.text = append(e.text, '=', '"')
		e.text = append(e.text, escape(strings.ToValidUTF8(labels[i+1], "\uFFFD"), true)...)
		e.text = append(e.text, '"')
	}
	if len(labels) > 1 {
		e.text = append(e.text, '}')
	}
	e.line(" ", value)
}

func (e *Encoder) line(parts ...string) {
	for _, p := range parts {
		e.text = append(e.text, p...)
	}
	e.text = append(e.text, '\n')
}

// seconds returns d in seconds, without loss.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'g', -1, 64) }

var (
	escapes      = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	escapesPlain = strings.NewReplacer(`\`, `\\`, "\n", `\n`) // of the help text of Prometheus
)

func escape(text string, quotes bool) string {
	if quotes {
		return escapes.Replace(text)
	}
	return escapesPlain.Replace(text)
}
