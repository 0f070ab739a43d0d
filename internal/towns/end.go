package towns

import "os/exec"

// AtEnd has a shell run the lines of a script when end is called, or when this process
// ends in whatever way: for things that the kernel leaves behind. Failures of the lines are
// not told. end returns when the script has ended.
func AtEnd(script string) (end func(), err error) {
	cmd := exec.Command("sh", "-c", "trap '' INT TERM HUP; cat >/dev/null\n"+script)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = in.Close()
		_ = cmd.Wait()
	}, nil
}
