//go:build !unix

package localpg

import (
	"errors"
	"os/exec"
)

type account struct{}

func serverUser() (*account, error) {
	return nil, errors.New("throwaway PostgreSQL clusters need a Unix system")
}

func (*account) own(string) error      { return nil }
func (*account) openPath(string) error { return nil }

type guard struct{ serverExited <-chan error }

func watch(*account, ...string) (*guard, error) { return &guard{}, nil }

func (*guard) command(_, program string, args ...string) *exec.Cmd {
	return exec.Command(program, args...)
}

func (*guard) release() error { return nil }

func signalQuit(int) error { return errors.ErrUnsupported }
