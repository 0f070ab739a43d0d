package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A module is a module of others that is compiled into a program with all packages that a
// program can import.
type module struct {
	path    string
	licence string // its name by SPDX
	text    []byte
}

// modules returns the modules that are compiled in, by path.
func modules(root string) ([]module, error) {
	names, err := output(root, nil, "go", "list", "./...")
	if err != nil {
		return nil, err
	}
	args := []string{"list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}"}
	for name := range strings.FieldsSeq(string(names)) {
		if !strings.Contains(name, "/internal/") { // tests import some of these alone
			args = append(args, name)
		}
	}
	list, err := output(root, nil, "go", args...)
	if err != nil {
		return nil, err
	}
	lines := slices.Compact(slices.Sorted(strings.Lines(string(list))))
	var all []module
	for _, line := range lines {
		path, dir, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue // a package of the standard library, or of this module
		}
		text, err := licenceIn(dir)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", path, err)
		}
		name := licenceName(text)
		if name == "" {
			return nil, fmt.Errorf("module %s: a licence that is not known here: read it, and decide", path)
		}
		all = append(all, module{path, name, text})
	}
	return all, nil
}

func licenceIn(dir string) ([]byte, error) {
	for _, name := range []string{"LICENSE", "LICENSE.md", "LICENSE.txt", "LICENCE", "COPYING"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return text, nil
		}
	}
	return nil, fmt.Errorf("no licence in %s", dir)
}

// licenceName returns the SPDX name of a licence's text, or "" for another licence than
// those accepted here.
func licenceName(text []byte) string {
	words := string(bytes.Join(bytes.Fields(text), []byte(" ")))
	has := func(phrase string) bool { return strings.Contains(words, phrase) }
	switch {
	case has("Mozilla Public License") && has("2.0"):
		return "MPL-2.0"
	case has("Apache License") && has("Version 2.0"):
		return "Apache-2.0"
	case has("Permission is hereby granted, free of charge, to any person obtaining a copy"):
		return "MIT"
	case has("Redistribution and use in source and binary forms") && has("Neither the name of"):
		return "BSD-3-Clause"
	case has("Redistribution and use in source and binary forms"):
		return "BSD-2-Clause"
	}
	return ""
}

// notice returns the text of NOTICE.
func notice(all []module) []byte {
	var b bytes.Buffer
	b.WriteString(`wardmote
Licensed under the Apache License, Version 2.0: see LICENSE.

A program with all packages of wardmote compiles in these modules, each under a licence of
its own. The archives of a release have their texts.

`)
	for _, m := range all {
		fmt.Fprintf(&b, "%-12s  %s\n", m.licence, m.path)
	}
	return b.Bytes()
}

// documents returns the texts of an archive.
func documents(root string) ([]file, error) {
	all, err := modules(root)
	if err != nil {
		return nil, err
	}
	var files []file
	for _, name := range []string{"LICENSE", "NOTICE", "docs/command.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{filepath.Base(name), 0o644, text})
	}
	for _, m := range all {
		files = append(files, file{"licences/" + strings.ReplaceAll(m.path, "/", "_") + ".txt", 0o644, m.text})
	}
	return files, nil
}
