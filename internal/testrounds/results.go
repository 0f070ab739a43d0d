package testrounds

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Simulate returns how long a suite shall look for broken promises: the duration in
// WARDMOTE_SIM, or quick without the variable. The duration is of the host's clock.
func Simulate(quick time.Duration) (time.Duration, error) {
	text := os.Getenv("WARDMOTE_SIM")
	if text == "" {
		return quick, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("WARDMOTE_SIM is %q, and must be a duration above 0, like 90s", text)
	}
	return d, nil
}

// Seed returns the seed in WARDMOTE_SEED, or another without the variable.
func Seed(another uint64) (uint64, error) {
	text := os.Getenv("WARDMOTE_SEED")
	if text == "" {
		return another, nil
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("WARDMOTE_SEED is %q, and must be a number from 0 to 2^64-1", text)
	}
	return seed, nil
}

// AppendResult appends a result as a line of JSON to the file that WARDMOTE_RESULTS names,
// and does nothing without the variable. Several processes may append to one file.
func AppendResult(result any) error {
	name := os.Getenv("WARDMOTE_RESULTS")
	if name == "" {
		return nil
	}
	line, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("a result: %w", err)
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("a result: %w", err)
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil { // one write: lines of two processes do not mix
		return fmt.Errorf("a result: %w", err)
	}
	return f.Close()
}
