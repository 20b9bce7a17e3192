//go:build linux || darwin

package node

import "syscall"

// diskOf is what the disk of a directory has, for users without privileges.
func diskOf(dir string) (free, size int64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, false
	}
	block := int64(s.Bsize)
	return int64(s.Bavail) * block, int64(s.Blocks) * block, true
}
