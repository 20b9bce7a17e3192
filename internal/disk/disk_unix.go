//go:build linux || darwin

package disk

import "syscall"

// Room is how many bytes the disk of a directory has, and how many of them users without privileges may still write;
// false: that is not known.
func Room(dir string) (free, size int64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, false
	}
	block := int64(s.Bsize)
	return int64(s.Bavail) * block, int64(s.Blocks) * block, true
}
