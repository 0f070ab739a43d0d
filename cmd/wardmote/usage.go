package main

import (
	"flag"
	"fmt"
	"runtime/debug"
	"strings"
	"text/tabwriter"
)

// commands returns all commands in the order of the usage.
func commands() []*command {
	return []*command{
		statusCommand(), membersCommand(), locksCommand(), whyCommand(), shardsCommand(), sessionsCommand(),
		eventsCommand(), askCommand(), breakCommand(), recoverCommand(), runCommand(),
	}
}

// usage is the text of wardmote help.
func usage() string {
	var b strings.Builder
	b.WriteString("wardmote shows a cluster, repairs it, and runs programs under its locks.\n\n")
	b.WriteString("usage: wardmote COMMAND [flags] [arguments]\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %s\t%s\n", strings.TrimRight(c.name+" "+c.args, " "), c.short)
	}
	fmt.Fprintf(w, "  help [COMMAND]\tthis text, or a command's flags\n  version\tthe version of the program\n")
	w.Flush()
	ways := flag.NewFlagSet("", flag.ContinueOnError)
	new(way).define(ways, byURL|byJoin|withJSON)
	b.WriteString("\n" + waysText + "\nflags of the way to the cluster:\n" + flagsText(ways) + "\n" + exitText)
	return b.String()
}

const waysText = `Two ways lead to a cluster:
  -url URL          the page of a member, by package lockshttp: the answer is that
                    member's view, and has an age; it comes without a quorum too
  -join HOST:PORT   take part in the cluster as a member without a vote, with the
                    secrets of the cluster; for run the only way
Without both, WARDMOTE_URL and then WARDMOTE_JOIN count.
`

const exitText = `Exit codes:
  0    done; of status: all is well
  1    not done; of status: degraded
  2    of status: no quorum
  64   the command line is wrong
  69   no member, no page or no quorum could be reached in time
  71   of run: the lock was lost, or about to be, and the command was ended
  75   of run: the key is taken, or -wait ran out
  77   refused by the cluster or by the page
  78   the configuration is wrong: a variable, a secret, an address
  126  of run: the command cannot be executed
  127  of run: there is no such command
  Otherwise run ends with the code of the command, or with 128 and the number of
  the signal that ended it.
`

// usage is the text of wardmote help COMMAND.
func (c *command) usage() string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: wardmote %s [flags]", c.name)
	if c.args != "" {
		b.WriteString(" " + c.args)
	}
	fmt.Fprintf(&b, "\n\n%s\n", strings.TrimSpace(c.long))
	own, ways := flag.NewFlagSet(c.name, flag.ContinueOnError), flag.NewFlagSet(c.name, flag.ContinueOnError)
	c.prepare(own)
	new(way).define(ways, c.ways)
	if text := flagsText(own); text != "" {
		b.WriteString("\nflags:\n" + text)
	}
	var names []string
	ways.VisitAll(func(f *flag.Flag) { names = append(names, "-"+f.Name) })
	b.WriteString("\n" + indent("flags of the way to the cluster, see wardmote help: "+strings.Join(names, " "), "", 78) + "\n")
	return b.String()
}

// flagsText describes flags.
func flagsText(fs *flag.FlagSet) string {
	var b strings.Builder
	fs.VisitAll(func(f *flag.Flag) {
		name, text := flag.UnquoteUsage(f)
		fmt.Fprintf(&b, "  -%s", f.Name)
		if name != "" {
			b.WriteString(" " + name)
		}
		if d := f.DefValue; d != "" && d != "false" && d != "0s" && d != "0" {
			text += " (default " + d + ")"
		}
		b.WriteString("\n" + indent(text, "      ", 78) + "\n")
	})
	return b.String()
}

// indent breaks a text into lines of a width, each behind a prefix.
func indent(text, prefix string, width int) string {
	var lines []string
	line := prefix
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > width && line != prefix {
			lines, line = append(lines, line), prefix
		}
		if line != prefix {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
