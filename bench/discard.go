package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// mountInfo is where Linux lists what is mounted, with the options.
const mountInfo = "/proc/self/mountinfo"

// withoutDiscard has the file system of dir keep from telling its device at once of
// what was deleted, if it does that, and returns what lets it do so again. The device
// may be busy with it: where it is a host's file, everybody's syncs wait a tenth of a
// second for a file of 200 MB that goes. Those who run databases trim from time to
// time instead (fstrim).
func withoutDiscard(dir string) (giveBack func() error, err error) {
	info, err := os.ReadFile(mountInfo)
	if err != nil {
		return nil, fmt.Errorf("no-discard: %w", err)
	}
	point, discards, err := mountOf(string(info), dir)
	if err != nil {
		return nil, fmt.Errorf("no-discard: %w", err)
	}
	return switchDiscard(point, discards, remount)
}

// switchDiscard switches off what is on.
func switchDiscard(point string, discards bool, remount func(point, option string) error) (func() error, error) {
	if !discards {
		return func() error { return nil }, nil
	}
	if err := remount(point, "nodiscard"); err != nil {
		return nil, fmt.Errorf("no-discard: as root only: %w", err)
	}
	return func() error {
		if err := remount(point, "discard"); err != nil {
			return fmt.Errorf("discard as before: %w", err)
		}
		return nil
	}, nil
}

func remount(point, option string) error {
	if out, err := exec.Command("mount", "-o", "remount,"+option, point).CombinedOutput(); err != nil {
		return fmt.Errorf("mount -o remount,%s %s: %w: %s", option, point, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// mountOf tells where the file system of dir is mounted, and whether it tells its
// device at once of what is deleted. Of two mounts over each other the later counts.
func mountOf(info, dir string) (point string, discards bool, err error) {
	at, err := filepath.Abs(dir)
	if err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	if err != nil {
		return "", false, fmt.Errorf("directory %s: %w", dir, err)
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(info) {
		// 36 35 98:0 /root /point options [optional]... - type source super-options
		before, after, _ := strings.Cut(line, " - ")
		mount, super := strings.Fields(before), strings.Fields(after)
		if len(mount) < 6 || len(super) < 3 {
			continue
		}
		p := unescape.Replace(mount[4])
		if holds := p == "/" || at == p || strings.HasPrefix(at, p+"/"); holds && len(p) >= len(point) {
			point, discards = p, slices.Contains(strings.Split(super[2], ","), "discard")
		}
	}
	if point == "" {
		return "", false, fmt.Errorf("directory %s: no mount holds it", dir)
	}
	return point, discards, nil
}
