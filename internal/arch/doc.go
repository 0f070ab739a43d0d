// Package arch holds the tests that keep the house as ARCHITECTURE.md draws it:
// which package may import which, what code must not call, and which directories
// there are. Each rule carries its reason and prints it when it is broken.
//
// There is nothing to import here. To see the rules, open arch_test.go; to change
// one, change its reason first.
package arch
