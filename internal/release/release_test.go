package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite NOTICE")

const root = "../.."

// NOTICE has every module that is compiled in, with its licence, and no other. Run with
// -rewrite after a change of go.mod.
func TestNoticeIsTrue(t *testing.T) {
	all, err := modules(root)
	if err != nil {
		t.Fatal(err)
	}
	want, name := notice(all), filepath.Join(root, "NOTICE")
	if *rewrite {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("NOTICE is\n%s\nwant\n%s", got, want)
	}
	if len(all) < 10 {
		t.Errorf("only %d modules found", len(all))
	}
}

func TestLicencesAreTold(t *testing.T) {
	for text, want := range map[string]string{
		"Mozilla Public License Version\n2.0":                                                         "MPL-2.0",
		"Apache License\n Version 2.0, January 2004":                                                  "Apache-2.0",
		"Permission is hereby granted, free of charge, to any\nperson obtaining a copy":               "MIT",
		"Redistribution and use in source and binary forms, with ... Neither the name of Google Inc.": "BSD-3-Clause",
		"Redistribution and use in source and binary forms, with or without":                          "BSD-2-Clause",
		"GNU GENERAL PUBLIC LICENSE Version 3":                                                        "",
		"All rights reserved":                                                                         "",
	} {
		if got := licenceName([]byte(text)); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestPackedFilesComeOutAgain(t *testing.T) {
	files := []file{{"wardmote", 0o755, []byte("program")}, {"licences/a_b.txt", 0o644, nil}}
	first, err := pack("wardmote-v1", files)
	if err != nil {
		t.Fatal(err)
	}
	again, err := pack("wardmote-v1", files)
	if err != nil || !bytes.Equal(first, again) {
		t.Fatalf("the same files give other bytes: %v", err)
	}
	z, err := gzip.NewReader(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(z)
	var names []string
	for {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, head.Name)
		if head.Mode&0o100 == 0 && strings.HasSuffix(head.Name, "/wardmote") {
			t.Error("the program cannot be run")
		}
	}
	if want := []string{"wardmote-v1/wardmote", "wardmote-v1/licences/a_b.txt"}; !slices.Equal(names, want) {
		t.Errorf("the archive has %q, want %q", names, want)
	}
}

// Two clones in two directories give the same bytes, and the program says its version.
func TestTwoClonesGiveOneRelease(t *testing.T) {
	if os.Getenv("WARDMOTE_RELEASE") == "" {
		t.Skip("WARDMOTE_RELEASE=1 builds the command in two clones, which takes a minute: make release does")
	}
	here := target{runtime.GOOS, runtime.GOARCH}
	var sums [][]byte
	for range 2 {
		clone, out := filepath.Join(t.TempDir(), "clone"), filepath.Join(t.TempDir(), "dist")
		if b, err := exec.Command("git", "clone", "-q", root, clone).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		if b, err := exec.Command("git", "-C", clone, "tag", "v0.0.1").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		if err := run(clone, out, []target{here}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, b)
		if err := run(clone, out, nil); err == nil {
			t.Error("a directory in use is taken")
		}
		archive := filepath.Join(out, "wardmote-v0.0.1-"+here.String()+".tar.gz")
		if b, err := exec.Command("tar", "-xzf", archive, "-C", out).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		said, err := exec.Command(filepath.Join(out, "wardmote-v0.0.1", here.program()), "version").Output()
		if err != nil || !strings.Contains(string(said), "v0.0.1") {
			t.Errorf("the program says %q, %v", said, err)
		}
		if err := os.WriteFile(filepath.Join(clone, "LICENSE"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := run(clone, filepath.Join(t.TempDir(), "dist"), nil); err == nil {
			t.Error("a changed checkout is released")
		}
	}
	if !bytes.Equal(sums[0], sums[1]) {
		t.Errorf("two clones give\n%s%s", sums[0], sums[1])
	}
}
