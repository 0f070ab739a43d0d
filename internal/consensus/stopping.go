package consensus

import (
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// stopInTime is stop for a caller that must go on although the disk hangs: nobody
// can end such a write. After timing.StopWithoutDisk it gives up with
// ErrDiskStalled, and the Raft runs on.
func (r *Raft) stopInTime() error {
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	t := time.NewTimer(timing.StopWithoutDisk)
	defer t.Stop()
	select {
	case err := <-stopped:
		return err
	case <-t.C:
		return ErrDiskStalled
	}
}
