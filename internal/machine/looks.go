package machine

// looks counts the work of commands, for tests: records, sessions and other elements of
// tables that are looked up, and elements of lists that are passed over or moved. It is nil
// in a program.
var looks *int

// look counts n elements.
func look(n int) {
	if looks != nil {
		*looks += n
	}
}
