package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMountOf(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "a b", "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	root := "21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard,errors=remount-ro\n"
	inner := "22 21 0:5 / " + dir + `/a\040b` + " rw - ext4 /dev/vdb rw,nodiscard\n"
	for _, at := range []struct {
		info, dir, point string
		discards         bool
	}{
		{root + inner, dir, "/", true},
		{root + inner, dir + "/a b", dir + "/a b", false},
		{root + inner, dir + "/a b/c", dir + "/a b", false},
		{inner + root, dir + "/a b/c", dir + "/a b", false},
		{root + "23 1 0:6 / / rw - xfs /dev/vdc rw\n", dir, "/", false},
		{"nonsense\n" + root, dir, "/", true},
	} {
		if point, discards, err := mountOf(at.info, at.dir); point != at.point || discards != at.discards || err != nil {
			t.Errorf("%s in %q: %q, %v, %v, want %q, %v", at.dir, at.info, point, discards, err, at.point, at.discards)
		}
	}
	if _, _, err := mountOf("", dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("nothing is mounted: %v", err)
	}
	if _, _, err := mountOf(root, filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there has a mount")
	}
}

func TestDiscardIsSwitchedBack(t *testing.T) {
	var did []string
	remount := func(point, option string) error {
		did = append(did, point+" "+option)
		return nil
	}
	for _, discards := range []bool{true, false} {
		giveBack, err := switchDiscard("/x", discards, remount)
		if err != nil {
			t.Fatal(err)
		}
		did = append(did, "load")
		if err := giveBack(); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"/x nodiscard", "load", "/x discard", "load"}; !slices.Equal(did, want) {
		t.Errorf("%q, want %q", did, want)
	}
	refuses := func(string, string) error { return errors.New("refused") }
	if _, err := switchDiscard("/x", true, refuses); err == nil || !strings.Contains(err.Error(), "no-discard") {
		t.Errorf("a mount that refuses: %v", err)
	}
}
