// Command wardmote shows the state of a cluster, takes part in its repair, and runs other
// programs under its locks.
//
//	wardmote status -url http://127.0.0.1:8080/wardmote/
//	wardmote run -join 10.0.0.7:7000 nightly -- ./backup.sh
//
// docs/command.md describes all commands, flags and exit codes, and wardmote help prints
// the same.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == guardCommand {
		os.Exit(guardMain())
	}
	p := &program{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	os.Exit(p.main(os.Args[1:]))
}

// program is one run of the command.
type program struct {
	in       io.Reader
	out, err io.Writer
}

// command is one of the program's commands.
type command struct {
	name  string
	args  string // after the flags, for the usage
	short string // one line
	long  string // paragraphs
	ways  wayFlags
	// prepare defines the flags of the command, and returns the function that runs the
	// command. rest are the arguments behind the flags.
	prepare func(fs *flag.FlagSet) func(p *program, way *way, rest []string) error
}

// The exit codes. docs/command.md has the same table.
const (
	exitOK            = 0
	exitFailed        = 1 // of status: degraded
	exitNoQuorum      = 2 // of status alone
	exitUsage         = 64
	exitUnavailable   = 69
	exitLost          = 71
	exitBusy          = 75
	exitDenied        = 77
	exitConfig        = 78
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // plus the number of the signal
)

// failure is an error with an exit code. Text is one line; next is the thing to do.
type failure struct {
	code int
	text string
	next string
}

func (f *failure) Error() string {
	if f.next == "" {
		return f.text
	}
	return f.text + "; " + f.next
}

func fail(code int, next, format string, args ...any) error {
	return &failure{code: code, text: fmt.Sprintf(format, args...), next: next}
}

// exited ends the program with a code and without a line: the code says everything.
type exited int

func (e exited) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func usageError(command, format string, args ...any) error {
	return fail(exitUsage, "see wardmote help"+strings.TrimRight(" "+command, " "), format, args...)
}

// main runs the command line and returns the exit code.
func (p *program) main(args []string) int {
	err := p.dispatch(args)
	var code exited
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	}
	f := asFailure(err)
	fmt.Fprintln(p.err, "wardmote: "+clean(oneLine(f.Error())))
	return f.code
}

// oneLine replaces the line ends in a text of several lines, such as joined errors.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(c rune) bool { return c == '\n' || c == '\r' }), "; ")
}

func (p *program) dispatch(args []string) error {
	if len(args) == 0 {
		fmt.Fprint(p.err, usage())
		return exited(exitUsage)
	}
	switch name := args[0]; name {
	case "help", "-h", "-help", "--help":
		return p.help(args[1:])
	case "version", "-version", "--version":
		fmt.Fprintln(p.out, "wardmote "+version())
		return nil
	default:
		c := commandNamed(name)
		if c == nil {
			return usageError("", "there is no command %q", name)
		}
		return p.runCommand(c, args[1:])
	}
}

func (p *program) help(args []string) error {
	if len(args) == 0 {
		fmt.Fprint(p.out, usage())
		return nil
	}
	c := commandNamed(args[0])
	if c == nil || len(args) > 1 {
		return usageError("", "there is no command %q", strings.Join(args, " "))
	}
	fmt.Fprint(p.out, c.usage())
	return nil
}

// runCommand parses the flags of c and runs c.
func (p *program) runCommand(c *command, args []string) error {
	way := new(way)
	fs, run := c.flagSet(way)
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(p.out, c.usage())
		return nil
	case err != nil:
		return usageError(c.name, "%s: %v", c.name, err)
	}
	way.set = make(map[string]bool)
	fs.Visit(func(f *flag.Flag) { way.set[f.Name] = true })
	if err := way.check(c); err != nil {
		return err
	}
	return run(p, way, fs.Args())
}

// flagSet returns the flags of c, silent: the caller prints errors and usage.
func (c *command) flagSet(way *way) (*flag.FlagSet, func(*program, *way, []string) error) {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	way.define(fs, c.ways)
	return fs, c.prepare(fs)
}

func commandNamed(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return c
		}
	}
	return nil
}

// noArguments refuses arguments behind the flags.
func noArguments(command string, rest []string) error {
	if len(rest) > 0 {
		return usageError(command, "%s takes no argument, and flags come first: %q", command, rest[0])
	}
	return nil
}
