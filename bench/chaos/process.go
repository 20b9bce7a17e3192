package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Times of the processes.
const (
	againAfter = 300 * time.Millisecond // a process that ended by itself is started again, as a process manager does
	termMax    = 30 * time.Second       // a process that was asked to end has this long
)

// process is one process of the system under test, through all its lives.
type process struct {
	name  string
	args  []string // the program first
	ready string   // URL that answers 200 when it works; empty: none
	log   *os.File

	mu     sync.Mutex
	cmd    *exec.Cmd
	wanted bool
	exits  int           // lives that ended by themselves
	ended  chan struct{} // closed when the present life is over
	wg     sync.WaitGroup
}

// start begins a life.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted {
		return fmt.Errorf("%s: it is running", p.name)
	}
	p.wanted = true
	return p.launch()
}

// launch starts the program. p.mu is held.
func (p *process) launch() error {
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	// As variables, because an older program does not know the flags.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2", "GOTRACEBACK=all", variable("ALERTS_ALLOW_LOCAL", true), variable("HTTP_STREAMS", readersMost+50))
	// A parent that was killed must not leave children behind, and an interrupt at
	// the terminal is the parent's to handle.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	fmt.Fprintf(p.log, "--- %s starts %s\n", time.Now().Format(time.RFC3339Nano), p.args[0])
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	p.wg.Go(func() {
		err := cmd.Wait()
		fmt.Fprintf(p.log, "--- %s ended: %v\n", time.Now().Format(time.RFC3339Nano), err)
		close(ended)
		p.again(cmd)
	})
	return nil
}

// variable is a setting of a node as its environment has it.
func variable(setting string, value any) string { return fmt.Sprintf("DULY"+"_%s=%v", setting, value) }

// again restarts a process that ended without being told to.
func (p *process) again(ended *exec.Cmd) {
	time.Sleep(againAfter)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted || p.cmd != ended {
		return
	}
	p.exits++
	if err := p.launch(); err != nil {
		fmt.Fprintf(p.log, "--- %v\n", err)
	}
}

// pids is the present life's process, if there is one.
func (p *process) pids() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || !p.wanted {
		return nil
	}
	return []int{p.cmd.Process.Pid}
}

// signal sends a signal to the present life.
func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s: it has not been started", p.name)
	}
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %v: %w", p.name, s, err)
	}
	return nil
}

// end ends the present life with a signal, and waits for it. One that does not
// obey SIGTERM in termMax is killed, and that is an error.
func (p *process) end(s syscall.Signal) error {
	p.mu.Lock()
	p.wanted = false
	ended := p.ended
	p.mu.Unlock()
	if ended == nil {
		return nil
	}
	if err := p.signal(s); err != nil {
		return err
	}
	limit := time.NewTimer(termMax)
	defer limit.Stop()
	select {
	case <-ended:
		return nil
	case <-limit.C:
	}
	err := errors.Join(fmt.Errorf("%s: not ended %v after %v", p.name, termMax, s), p.signal(syscall.SIGQUIT))
	select {
	case <-ended:
	case <-time.After(termMax):
		err = errors.Join(err, p.signal(syscall.SIGKILL))
		<-ended
	}
	return err
}

// close ends it for good.
func (p *process) close() error {
	err := p.end(syscall.SIGKILL)
	p.wg.Wait()
	return errors.Join(err, p.log.Close())
}

// works reports whether the process answers that it is ready.
func (p *process) works(ctx context.Context) bool {
	if p.ready == "" {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.ready, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// unexpected is how often it ended by itself.
func (p *process) unexpected() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exits
}
