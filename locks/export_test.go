package locks

// RaceDetector tells the tests of package locks_test that they run under it.
const RaceDetector = raceDetector
