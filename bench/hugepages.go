package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// nrHugePages is where Linux says and is told how many huge pages it keeps.
const nrHugePages = "/proc/sys/vm/nr_hugepages"

// hugePagesWanted hold the shared memory of the throwaway server: its buffers of
// 2 GB and some 120 MB beside them, in pages of 2 MiB.
const hugePagesWanted = 1100

// reserveHugePages has the system keep so many more huge pages than it does, and
// returns what gives them back.
func reserveHugePages(file string, more int) (giveBack func() error, err error) {
	before, err := readCount(file)
	if err != nil {
		return nil, fmt.Errorf("huge-pages: %w", err)
	}
	if err := writeCount(file, before+more); err != nil {
		return nil, fmt.Errorf("huge-pages: as root only: %w", err)
	}
	giveBack = func() error {
		if err := writeCount(file, before); err != nil {
			return fmt.Errorf("give huge pages back: %w", err)
		}
		return nil
	}
	has, err := readCount(file)
	if err == nil && has < before+more {
		err = fmt.Errorf("%d of %d: not enough memory in one piece", has-before, more)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("huge-pages: %w", err), giveBack())
	}
	return giveBack, nil
}

func readCount(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func writeCount(file string, n int) error {
	return os.WriteFile(file, []byte(strconv.Itoa(n)+"\n"), 0)
}
