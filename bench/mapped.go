package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// keepCached keeps files in memory: it maps every file under the folders and reads it
// in. A guest that gives file cache back to its host takes what nobody has mapped; one
// whose memory is its own keeps the log's files in it anyway. It returns what lets them
// go.
func keepCached(dirs ...string) (release func() error, err error) {
	var maps [][]byte
	release = func() error {
		var errs []error
		for _, m := range maps {
			errs = append(errs, syscall.Munmap(m))
		}
		return errors.Join(errs...)
	}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				var m []byte
				if m, err = mapFile(path); m != nil {
					maps = append(maps, m)
				}
			}
			if path != dir && errors.Is(err, fs.ErrNotExist) {
				return nil // a database removes files of its own while somebody looks
			}
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("keep %s in memory: %w", dir, err), release())
		}
	}
	return release, nil
}

// mapFile maps a file; nil: there is nothing to map.
func mapFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return nil, err
	}
	return syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED|syscall.MAP_POPULATE)
}
