package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A virtual machine is often given its memory page by page, when a page is first
// touched, and gives free memory back within seconds. Where that is so a fresh
// page costs several microseconds instead of a quarter of one, a task needs two to
// four of them, and what a run reaches tells how much memory was used shortly
// before it. So all free memory is touched before a run, and kept: as clean pages
// of the file cache, which the kernel hands out again without asking the host.

// warmFree is the part of the memory that is left free, one in so many.
const warmFree = 60

// warmFile has a size and no contents: reading it takes memory, but no disk. It
// stays, so that the next run finds the memory as this one leaves it.
func warmFile() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("duly-bench-memory-%d", os.Getuid()))
}

// warmMemory does nothing where the machine does not tell its memory.
func warmMemory(ctx context.Context) error {
	total, free, available, err := memory("/proc/meminfo")
	if errors.Is(err, os.ErrNotExist) || free < total/warmFree {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(warmFile(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("warm the memory: %w", err)
	}
	err = readAll(ctx, f, available-total/warmFree)
	return errors.Join(err, f.Close())
}

func readAll(ctx context.Context, f *os.File, size int64) error {
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("warm the memory: %w", err)
	}
	buf := make([]byte, 1<<20)
	for ctx.Err() == nil {
		if _, err := f.Read(buf); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("warm the memory: %w", err)
		}
	}
	return ctx.Err()
}

// memory reads the bytes of memory that there are, that nobody uses, and that
// could be had.
func memory(path string) (total, free, available int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, 0, err
	}
	defer f.Close()
	sizes := map[string]*int64{"MemTotal:": &total, "MemFree:": &free, "MemAvailable:": &available}
	for scan := bufio.NewScanner(f); scan.Scan(); {
		words := strings.Fields(scan.Text())
		if len(words) < 2 || sizes[words[0]] == nil {
			continue
		}
		kib, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("%s: %s %q: %w", path, words[0], words[1], err)
		}
		*sizes[words[0]] = kib << 10
	}
	return total, free, available, nil
}
