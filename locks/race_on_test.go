//go:build race

package locks

const raceDetector = true
