// Package fencetest tests a guard: a resource that refuses the writes of former lock
// holders by their fencing tokens. Run plays every way in which guards are known to
// fail, on the guards of this module and on yours:
//
//	func TestMyGuard(t *testing.T) {
//		fencetest.Run(t, func(tb testing.TB) fencetest.Resource { return openMine(tb) })
//	}
//
// # What a Resource is
//
// One value, a text, that is protected by tokens. The suite claims, writes and reads;
// it never looks at the mark, so that a mark can be kept in any way. Each call of the
// open function gives a new resource, without a value and with no token shown to it.
// The suite calls a Resource from many goroutines, as the processes of former and
// present holders would.
//
// # Pauses
//
// A guard fails where a write is stopped between its check and its effect, while others
// claim and write. Only the Resource knows where that is: let its Write call Pause
// wherever another process could be stopped, at least between the check and the effect,
// and before a commit. The suite stops one write at each of these places, lets a later
// holder work, and lets the first go on. A Resource that never calls Pause is tested by
// random schedules alone, and Run says so in the log.
//
// # A test that can fail
//
// Each Run first plays its cases on a guard of its own that compares and then writes,
// and fails if the cases do not find the fault: a suite that finds nothing there proves
// nothing about yours.
package fencetest
