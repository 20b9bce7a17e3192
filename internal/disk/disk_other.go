//go:build !linux && !darwin

package disk

// Room is not known here.
func Room(string) (free, size int64, ok bool) { return 0, 0, false }
