package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
)

// chart draws wardmote's rate divided by each peer's, as bars on a logarithmic scale
// with a line from the least ratio to the most.
func (r report) chart() []byte {
	type bar struct {
		label, class string
		ratio        spread
	}
	var bars []bar
	for _, t := range r.tables {
		for _, us := range r.systems {
			if !us.kind.ours || us.in != t.workload.in || t.workload.event != nil || t.workload.share > 0 {
				continue // the rate of an open loop is given
			}
			for _, p := range r.systems {
				compared := slices.ContainsFunc(comparisons, func(c comparison) bool { return c.ours == us.kind.class && c.theirs == p.kind.class })
				a, b := t.samples[us.kind.name], t.samples[p.kind.name]
				if p.kind.ours || p.in != us.in || !compared || len(a) == 0 || len(b) == 0 {
					continue
				}
				bars = append(bars, bar{t.workload.name + ": " + us.kind.name + " / " + p.kind.name, string(us.kind.class), spreadOf(ratios(a, b, sample.rate))})
			}
		}
	}
	const left, wide, high = 300, 460, 18
	least, most := 0.1, 100.0
	for _, bar := range bars {
		for bar.ratio.most > most {
			most *= 10
		}
	}
	at := func(v float64) float64 {
		v = min(max(v, least), most)
		return left + wide*math.Log(v/least)/math.Log(most/least)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" role="img">`+"\n", left+wide+60, high*len(bars)+50)
	b.WriteString("<title>Cycles a second, wardmote divided by its peers</title>\n")
	b.WriteString("<style>text{fill:#333}.durable{fill:#2a6f97}.boot{fill:#468faf}.memory{fill:#89c2d9}line{stroke:#999}@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>\n")
	for v := least; v <= most; v *= 10 {
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="24" y2="%d"/><text x="%.1f" y="16" text-anchor="middle">%gx</text>`+"\n", at(v), at(v), high*len(bars)+30, at(v), v)
	}
	for i, bar := range bars {
		y := 30 + high*i
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-6, y+11, html.EscapeString(bar.label))
		from, to := at(1), at(bar.ratio.median)
		fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="12"/>`, bar.class, min(from, to), y, max(math.Abs(to-from), 1))
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, at(bar.ratio.least), at(bar.ratio.most), y+6, y+6)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", max(from, at(bar.ratio.most))+4, y+11, digits(bar.ratio.median))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
