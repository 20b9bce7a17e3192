package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
)

// apart is a process for NATS servers whose configuration a test reloads under load. nats-server 2.15 reads its options without
// their lock when it answers a direct get, so in this process -race would report a reload as a data race.
var apart struct {
	sync.Mutex
	in  io.WriteCloser
	out *bufio.Scanner
	end func() // nil: the process has not started
}

// apartEnv makes the test binary be that process.
const apartEnv = "DULY_TEST_BE_NATS_SERVERS"

// natsApart starts a server with a configuration file in that process, and stops it when the test ends. reload reloads the file.
func natsApart(t *testing.T, file string) (addr string, reload func()) {
	t.Helper()
	ask := func(verb string) string {
		t.Helper()
		said, err := askApart(t, verb+" "+file)
		if err != nil {
			t.Fatalf("%s %s: %v", verb, file, err)
		}
		return said
	}
	addr = ask("start")
	t.Cleanup(func() { ask("stop") })
	return addr, func() { t.Helper(); ask("reload") }
}

// askApart sends the process a line and returns its answer.
func askApart(t *testing.T, line string) (string, error) {
	t.Helper()
	apart.Lock()
	defer apart.Unlock()
	if apart.end == nil {
		cmd := selfCommand(t, append(os.Environ(), apartEnv+"=1"))
		in, err := cmd.StdinPipe()
		if err != nil {
			return "", err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return "", err
		}
		if err := cmd.Start(); err != nil {
			return "", err
		}
		apart.in, apart.out = in, bufio.NewScanner(out)
		apart.end = func() {
			_ = in.Close() // by which it ends
			_ = cmd.Wait() // its exit code does not matter: -race may have reported that read
		}
	}
	if _, err := fmt.Fprintln(apart.in, line); err != nil {
		return "", err
	}
	if !apart.out.Scan() {
		return "", fmt.Errorf("the process has ended: %w", io.ErrUnexpectedEOF)
	}
	said, failed := strings.CutPrefix(apart.out.Text(), "failed ")
	if failed {
		return "", fmt.Errorf("the server: %s", said)
	}
	return said, nil
}

// endApart ends the process after the last test.
func endApart() {
	if apart.end != nil {
		apart.end()
	}
}

// beApart is that process. It answers each line with one.
func beApart() {
	servers := map[string]*natsd.Server{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		verb, file, _ := strings.Cut(lines.Text(), " ")
		said, err := doApart(servers, verb, file)
		if err != nil {
			said = fmt.Sprintf("failed %q", err.Error())
		}
		fmt.Println(said)
	}
}

func doApart(servers map[string]*natsd.Server, verb, file string) (said string, err error) {
	server := servers[file]
	if verb == "stop" {
		server.Shutdown()
		server.WaitForShutdown()
		delete(servers, file)
		return "stopped", nil
	}
	options, err := natsOptions(file)
	if err != nil {
		return "", err
	}
	if verb == "reload" {
		return "reloaded", server.ReloadOptions(options)
	}
	if server, err = natsd.NewServer(options); err != nil {
		return "", err
	}
	go server.Start()
	servers[file] = server
	if !server.ReadyForConnections(10 * time.Second) {
		return "", errors.New("it is not ready for connections")
	}
	return server.Addr().String(), nil
}

// natsOptions reads the options of a configuration file.
func natsOptions(file string) (*natsd.Options, error) {
	options, err := natsd.ProcessConfigFile(file)
	if err != nil {
		return nil, err
	}
	options.NoSigs = true
	return options, nil
}
