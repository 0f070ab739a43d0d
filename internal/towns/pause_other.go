//go:build !unix

package towns

import "errors"

func pause(int) error  { return errors.ErrUnsupported }
func resume(int) error { return errors.ErrUnsupported }
