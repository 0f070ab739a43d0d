package lockshttp

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// parsed is a text of metrics as a strict reader sees it.
type parsed struct {
	families map[string]*parsedFamily // by the name of the family
	samples  map[string]float64       // by name and labels
}

type parsedFamily struct {
	name, kind, unit string
	help             bool
	samples          []parsedSample
}

type parsedSample struct {
	name   string
	labels [][2]string
	value  float64
	series string
}

func (s parsedSample) label(name string) string {
	for _, l := range s.labels {
		if l[0] == name {
			return l[1]
		}
	}
	return ""
}

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
)

// parseMetrics reads text as strictly as the specifications of OpenMetrics 1.0 (open) and
// of the Prometheus format 0.0.4 allow, and more strictly where they only advise: every
// family has its type and its help, and no two series are equal.
func parseMetrics(text string, open bool) (*parsed, error) {
	p := &parsed{families: make(map[string]*parsedFamily), samples: make(map[string]float64)}
	if !utf8.ValidString(text) {
		return nil, errors.New("not valid UTF-8")
	}
	if open {
		body, ok := strings.CutSuffix(text, "# EOF\n")
		if !ok || body != "" && !strings.HasSuffix(body, "\n") {
			return nil, errors.New("no # EOF in the end")
		}
		text = body
	}
	if !strings.HasSuffix(text, "\n") {
		return nil, errors.New("the last line does not end")
	}
	var at *parsedFamily
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		var err error
		if rest, ok := strings.CutPrefix(line, "# "); ok {
			at, err = p.metadata(at, rest, open)
		} else {
			err = p.sample(at, line, open)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", n+1, line, err)
		}
	}
	for _, f := range p.families {
		if err := f.check(open); err != nil {
			return nil, fmt.Errorf("family %s: %w", f.name, err)
		}
	}
	return p, nil
}

func (p *parsed) metadata(at *parsedFamily, rest string, open bool) (*parsedFamily, error) {
	word, rest, _ := strings.Cut(rest, " ")
	name, text, ok := strings.Cut(rest, " ")
	if !ok || !metricName.MatchString(name) {
		return nil, errors.New("no name")
	}
	if at == nil || at.name != name {
		if p.families[name] != nil {
			return nil, errors.New("the family stands in two places")
		}
		at = &parsedFamily{name: name}
		p.families[name] = at
	}
	if len(at.samples) > 0 {
		return nil, errors.New("metadata after samples")
	}
	switch word {
	case "TYPE":
		kinds := "gauge counter histogram"
		if open {
			kinds += " info"
		}
		if at.kind != "" || !strings.Contains(" "+kinds+" ", " "+text+" ") {
			return nil, errors.New("a second or an unknown type")
		}
		at.kind = text
	case "HELP":
		if _, err := unescape(text, open); err != nil || at.help || text == "" {
			return nil, fmt.Errorf("a second or a bad help: %w", err)
		}
		at.help = true
	case "UNIT":
		if !open || at.unit != "" || !strings.HasSuffix(name, "_"+text) {
			return nil, errors.New("a unit that is not in the name")
		}
		at.unit = text
	default:
		return nil, errors.New("an unknown comment")
	}
	return at, nil
}

func (p *parsed) sample(at *parsedFamily, line string, open bool) error {
	if at == nil {
		return errors.New("a sample without a family")
	}
	end := strings.IndexAny(line, "{ ")
	if end < 0 {
		return errors.New("no value")
	}
	s := parsedSample{name: line[:end]}
	if !metricName.MatchString(s.name) {
		return errors.New("a bad name")
	}
	rest := line[end:]
	if rest[0] == '{' {
		var err error
		if s.labels, rest, err = parseLabels(rest[1:]); err != nil {
			return err
		}
	}
	value, ok := strings.CutPrefix(rest, " ")
	if !ok || strings.Contains(value, " ") {
		return errors.New("not one value")
	}
	var err error
	if s.value, err = strconv.ParseFloat(value, 64); err != nil {
		return err
	}
	s.series = s.name + fmt.Sprint(s.labels)
	if _, twice := p.samples[s.series]; twice {
		return errors.New("the series is there twice")
	}
	p.samples[s.series] = s.value
	at.samples = append(at.samples, s)
	return nil
}

// parseLabels reads the labels of a sample behind the brace.
func parseLabels(text string) (labels [][2]string, rest string, err error) {
	for {
		name, after, ok := strings.Cut(text, `="`)
		if !ok || !labelName.MatchString(name) {
			return nil, "", errors.New("a bad label name")
		}
		end := 0
		for ; end < len(after) && after[end] != '"'; end++ {
			if after[end] == '\\' {
				end++
			}
		}
		if end >= len(after) {
			return nil, "", errors.New("a label without an end")
		}
		value, err := unescape(after[:end], true)
		if err != nil {
			return nil, "", err
		}
		for _, l := range labels {
			if l[0] == name {
				return nil, "", errors.New("a label twice")
			}
		}
		labels = append(labels, [2]string{name, value})
		switch text = after[end+1:]; {
		case strings.HasPrefix(text, "}"):
			return labels, text[1:], nil
		case strings.HasPrefix(text, ","):
			text = text[1:]
		default:
			return nil, "", errors.New("no end of the labels")
		}
	}
}

// unescape reads an escaped text. quotes says whether a quote is escaped.
func unescape(text string, quotes bool) (string, error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && quotes:
			return "", errors.New("a bare quote")
		case c != '\\':
			b.WriteByte(c)
		default:
			if i++; i == len(text) {
				return "", errors.New("an escape without an end")
			}
			switch {
			case text[i] == 'n':
				b.WriteByte('\n')
			case text[i] == '\\', text[i] == '"' && quotes:
				b.WriteByte(text[i])
			default:
				return "", errors.New("an unknown escape")
			}
		}
	}
	return b.String(), nil
}

// check checks a whole family.
func (f *parsedFamily) check(open bool) error {
	if f.kind == "" || !f.help {
		return errors.New("no type or no help")
	}
	suffix := map[string]bool{"": true}
	switch {
	case f.kind == "histogram":
		return f.checkHistogram(open)
	case f.kind == "counter" && open:
		suffix = map[string]bool{"_total": true}
	case f.kind == "info":
		suffix = map[string]bool{"_info": true}
	case f.kind == "counter" && !strings.HasSuffix(f.name, "_total"):
		return errors.New("a counter's name does not end in _total")
	}
	for _, s := range f.samples {
		rest, ok := strings.CutPrefix(s.name, f.name)
		switch {
		case !ok || !suffix[rest]:
			return fmt.Errorf("sample %s is of another family", s.name)
		case math.IsNaN(s.value) || f.kind == "counter" && (s.value < 0 || math.IsInf(s.value, 0)):
			return fmt.Errorf("sample %s is %v", s.name, s.value)
		case f.kind == "info" && s.value != 1:
			return fmt.Errorf("an info of %v", s.value)
		}
	}
	return nil
}

// checkHistogram checks each histogram of the family, of which the samples stand together.
func (f *parsedFamily) checkHistogram(open bool) error {
	type state struct {
		le, count, sum float64
		buckets        float64
		inf            bool
		parts          int
	}
	all := make(map[string]*state)
	for _, s := range f.samples {
		of := fmt.Sprint(s.labels)
		if s.name == f.name+"_bucket" {
			of = fmt.Sprint(s.labels[:len(s.labels)-1])
		}
		h := all[of]
		if h == nil {
			h = &state{le: math.Inf(-1), count: -1, sum: -1}
			all[of] = h
		}
		h.parts++
		switch s.name {
		case f.name + "_bucket":
			text := s.label("le")
			le, err := strconv.ParseFloat(text, 64)
			switch {
			case err != nil:
				return err
			case le <= h.le || s.value < h.buckets || h.inf:
				return fmt.Errorf("bucket %s is out of order", text)
			case open && !strings.ContainsAny(text, ".e") && text != "+Inf":
				return fmt.Errorf("bucket %s is not canonical", text)
			}
			h.le, h.buckets, h.inf = le, s.value, math.IsInf(le, 1)
		case f.name + "_count":
			h.count = s.value
		case f.name + "_sum":
			h.sum = s.value
		default:
			return fmt.Errorf("sample %s is of another family", s.name)
		}
	}
	for of, h := range all {
		if !h.inf || h.count != h.buckets || h.sum < 0 || math.IsNaN(h.sum) || h.parts < 3 {
			return fmt.Errorf("histogram %s: %+v", of, *h)
		}
	}
	return nil
}
