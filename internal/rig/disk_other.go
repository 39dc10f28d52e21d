//go:build !linux

package rig

func (d *Disk) mount() error { return errLinuxOnly }

func (d *Disk) used() (int64, error) { return 0, errLinuxOnly }

func (d *Disk) resize(int64) error { return errLinuxOnly }

func (d *Disk) close() {}
