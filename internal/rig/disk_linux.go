package rig

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

func (d *Disk) mount() error {
	if !InNamespace() {
		return errors.New("it requires its own namespace: see RunInNamespace")
	}
	return unix.Mount("tmpfs", d.dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", int64(diskSize)))
}

// used returns the bytes that the disk's files occupy.
func (d *Disk) used() (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(d.dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Blocks-s.Bfree) * s.Bsize, nil //nolint:gosec // far below the limit
}

func (d *Disk) resize(size int64) error {
	return unix.Mount("tmpfs", d.dir, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d,mode=0700", size))
}

// close removes the disk and its files. It does nothing if d is nil.
func (d *Disk) close() {
	if d != nil {
		_ = unix.Unmount(d.dir, unix.MNT_DETACH) // the namespace removes what remains
	}
}
