package timing

import (
	"testing"
	"time"
)

// A quantile is of the latest durations alone, and is one of them.
func TestQuantilesAreOfTheLatest(t *testing.T) {
	var l Latest
	if q := l.Quantiles(); q != (Quantiles{}) {
		t.Errorf("of none: %+v", q)
	}
	l.Add(7)
	if q := l.Quantiles(); q != (Quantiles{1, 7, 7, 7, 7}) {
		t.Errorf("of one: %+v", q)
	}
	for range 1000 {
		l.Add(time.Hour)
	}
	for i := range maxLatest {
		l.Add(time.Duration(i + 1))
	}
	if q := l.Quantiles(); q != (Quantiles{1001 + maxLatest, 128, 231, 254, 256}) {
		t.Errorf("of 1 to 256: %+v", q)
	}
}
