// Package fencetest tests a guard: a resource with fencing tokens, which refuses the
// writes of former lock holders. Run plays every known failure of guards, on the guards of
// this module and on yours:
//
//	func TestMyGuard(t *testing.T) {
//		fencetest.Run(t, func(tb testing.TB) fencetest.Resource { return openMine(tb) })
//	}
//
// # Resources
//
// A Resource is one value, a text, protected by tokens. The suite claims, writes and reads
// the value. The suite never looks at the mark, so a guard may keep its mark in any way.
// Each call of the open function gives a new resource, without a value and with no token shown to it.
// The suite calls a Resource from many goroutines, as the processes of former and
// present holders would.
//
// # Pauses
//
// A guard fails if a write is stopped between the check and the effect, while others claim
// and write. Only the Resource knows these places. Write must call Pause at each place
// where another process could be stopped, at least between the check and the effect, and
// before a commit. The suite stops a write at each place in turn, lets a later holder work,
// and then lets the write go on. A Resource without calls of Pause is tested by random
// schedules alone, and Run says so in the log.
//
// # The control
//
// Each Run first plays its cases on a broken guard, which compares and then writes. Run
// fails if the cases do not find the fault, because then the cases would prove nothing
// about your guard.
package fencetest
