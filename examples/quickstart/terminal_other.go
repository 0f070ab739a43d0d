//go:build !(darwin || linux || windows)

package main

import (
	"errors"
	"os"
)

// isTerminal is always false, so that these systems always run the script.
func isTerminal(*os.File) bool { return false }

func singleKeys() (restore func(), err error) { return nil, errors.ErrUnsupported }

func windowSize() (width, height int) { return 0, 0 }
