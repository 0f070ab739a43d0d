package main

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/wardmote/wardmote/fence"
)

// A tree is a directory of text files that agents change. Each file has a mark of its own
// in another directory: the highest token that was shown for the file. So the marks are as
// fine as the locks: a refusal means that another agent has held the very file since.
type tree struct{ files, marks string }

// guard opens the mark of a file.
func (t tree) guard(name string) (*fence.File, error) {
	return fence.OpenFile(filepath.Join(t.marks, url.PathEscape(name)))
}

// claim shows the token for a file. After claim no holder of an earlier token can change
// the file.
func (t tree) claim(name string, token fence.Token) error {
	g, err := t.guard(name)
	if err != nil {
		return err
	}
	return errors.Join(g.Claim(token), g.Close())
}

func (t tree) read(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(t.files, name))
	return string(text), err
}

// write replaces a file, unless a higher token was shown for the file. A process that is
// killed during write leaves the old text or the new.
func (t tree) write(name string, token fence.Token, text string) error {
	g, err := t.guard(name)
	if err != nil {
		return err
	}
	path := filepath.Join(t.files, name)
	err = g.Do(token, func() error {
		// Only the writer within Do uses the temporary name.
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	})
	return errors.Join(err, g.Close())
}

// has reports whether the text has the line of a task.
func has(text, task string) bool { return strings.Contains("\n"+text, "\n"+task+"\n") }
