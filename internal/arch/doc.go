// Package arch keeps the rules of the house: the arrows between packages, the
// functions that no library code calls, the sizes of files and functions, and
// the names that users see. arrows_test.go and rules_test.go are the rules, each
// with its reason; check_test.go finds where the tree breaks them; bite_test.go
// breaks each rule on purpose.
package arch
