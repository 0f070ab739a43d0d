package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxSecretFile bounds a file with secrets, in bytes.
const maxSecretFile = 64 << 10

// ReadSecret reads a file with secrets, of at most 64 KiB. Symbolic links are
// followed, because a Kubernetes volume shows its files through links, and the file at
// the end is judged: see the package comment. The text of an error ends with the way
// to mend it, and has neither the path nor bytes of the file: a program may have got
// the secret itself in place of the path.
func ReadSecret(path string) ([]byte, error) {
	// Not followed by a wait for the writer of a named pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|noWait, 0)
	if err != nil {
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			err = pathErr.Err
		}
		return nil, fmt.Errorf("%w: name a file that this process can read", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, errors.New("its mode is unknown: name a file on another file system")
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("not a regular file, but %v: name a file", info.Mode().Type())
	}
	if err := judgeSecret(info); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	switch {
	case err != nil:
		return nil, errors.New("a failed read: check the disk")
	case len(b) > maxSecretFile:
		return nil, fmt.Errorf("exceeds %d bytes: name the file with the secrets alone", maxSecretFile)
	}
	return b, nil
}
