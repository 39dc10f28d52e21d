package rig

import (
	"fmt"
	"os"
	"path/filepath"
)

// diskSize is the size of a Disk that is not full. Its files are in memory, which they occupy only
// as they grow.
const diskSize = 2 << 30

// Disk is a file system of an engine's own, for its data but not for its log. It can be full. Disks
// are in memory, so they require Linux and a process that RunInNamespace started. Methods must not
// be called concurrently.
type Disk struct{ dir string }

// newDisk creates an empty disk at dir, or returns nil if want is not set. dir is created if it is
// missing.
func newDisk(dir string, want bool) (*Disk, error) {
	if !want {
		return nil, nil //nolint:nilnil // no disk is a valid result
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	d := &Disk{dir: dir}
	if err := d.mount(); err != nil {
		return nil, fmt.Errorf("create a disk at %s: %w", dir, err)
	}
	return d, nil
}

// diskDir returns the directory of an engine's data: a disk in dir, or dir itself without one.
func diskDir(dir string, onDisk bool) string {
	if onDisk {
		return filepath.Join(dir, "disk")
	}
	return dir
}

// Fill leaves no space on the disk: no file can be created or grow until Free. Files that are
// removed meanwhile make space again, up to the size that they had.
func (d *Disk) Fill() error {
	for try := 1; ; try++ {
		used, err := d.used()
		if err == nil {
			err = d.resize(used)
		}
		// The disk cannot be smaller than its files, which may have grown.
		if err == nil || try == 100 {
			return err
		}
	}
}

// Free makes space on the disk again.
func (d *Disk) Free() error { return d.resize(diskSize) }
