package procfs

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

func TestThisProcess(t *testing.T) {
	child := exec.Command("sh", "-c", "sleep 60 & echo; wait")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // its child is there
		t.Fatal(err)
	}
	all := Family(os.Getpid())
	if below := Family(child.Process.Pid); len(below) != 2 || !slices.Contains(all, below[0]) || !slices.Contains(all, below[1]) || all[0] != os.Getpid() {
		t.Errorf("family %v of this process, %v of its child", all, below)
	}
	if Stolen() < 0 {
		t.Error("less than nothing is stolen")
	}
	if mib, err := PSS(os.Getpid()); err != nil || mib <= 0 {
		t.Errorf("memory %v, %v", mib, err)
	}
	for _, pid := range Family(child.Process.Pid) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // it may have ended
		}
	}
	_ = child.Wait() // it was killed
	if Stat(child.Process.Pid) != nil || Family(0) != nil {
		t.Error("a process that has ended, and none, are there")
	}
	if _, err := PSS(0); err == nil {
		t.Error("no process has memory")
	}
}
