package fusefs

import (
	"time"

	"golang.org/x/sys/unix"
)

// coarseNow is the clock that the kernel takes file times from. Content files
// get theirs from the kernel, so that a finer clock here would make a file that
// is written after another one look older.
func coarseNow() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		return time.Now()
	}
	return time.Unix(ts.Unix())
}
