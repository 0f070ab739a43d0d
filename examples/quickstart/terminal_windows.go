package main

import (
	"os"

	"golang.org/x/sys/windows"
)

func isTerminal(f *os.File) bool {
	var mode uint32
	return windows.GetConsoleMode(windows.Handle(f.Fd()), &mode) == nil
}

// singleKeys turns on the control codes of the table. The console delivers keys by
// line: press Enter after each key.
func singleKeys() (restore func(), err error) {
	out := windows.Handle(os.Stdout.Fd())
	var before uint32
	if err := windows.GetConsoleMode(out, &before); err != nil {
		return nil, err
	}
	if err := windows.SetConsoleMode(out, before|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING); err != nil {
		return nil, err
	}
	return func() { _ = windows.SetConsoleMode(out, before) }, nil
}

func windowSize() (width, height int) {
	var info windows.ConsoleScreenBufferInfo
	if err := windows.GetConsoleScreenBufferInfo(windows.Handle(os.Stdout.Fd()), &info); err != nil {
		return 0, 0
	}
	return int(info.Window.Right-info.Window.Left) + 1, int(info.Window.Bottom-info.Window.Top) + 1
}
