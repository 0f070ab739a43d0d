//go:build !unix

package processes

import "errors"

func limitFiles(size uint64) error {
	if size == 0 {
		return nil
	}
	return errors.ErrUnsupported
}
