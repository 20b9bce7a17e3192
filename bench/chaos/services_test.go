package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/rpc"
	"path/filepath"
	"testing"
	"time"

	"duly.dev/duly/examples/drone"
)

func deskFor(t *testing.T, o drone.ServiceOptions) (*drone.Services, remote) {
	t.Helper()
	services, err := drone.NewServices(o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	d, err := openDesk(path, &Desk{services, &outage{}, &gauge{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	client, err := rpc.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return services, remote{client}
}

// TestDesk: what agents elsewhere do is in the books here, with the services' own
// answers.
func TestDesk(t *testing.T) {
	services, far := deskFor(t, drone.ServiceOptions{Seed: 1})
	in := drone.Call{Task: "t1", Key: "t1/drone/0", Attempt: 1}
	serial, err := far.Do(t.Context(), drone.StepDrone, in)
	if err != nil || serial == 0 {
		t.Fatalf("%d %v", serial, err)
	}
	if e := services.Books().Entry("t1", drone.StepDrone); e.Live != 1 || e.Serial != serial {
		t.Errorf("%+v, want one live effect of serial %d", e, serial)
	}
	if err := far.Undo(t.Context(), drone.StepDrone, in); err != nil {
		t.Fatal(err)
	}
	var failed *drone.ServiceError
	if _, err := far.Do(t.Context(), drone.StepDrone, in); !errors.As(err, &failed) || failed.Code != 410 {
		t.Errorf("a do after its undo: %v, want 410", err)
	}
	if e := services.Books().Entry("t1", drone.StepDrone); e.Live != 0 || e.Tombstones != 1 {
		t.Errorf("%+v, want a tombstone and nothing live", e)
	}
}

// TestRemoteGivesUp: a caller whose time is over does not wait for services that
// never answer.
func TestRemoteGivesUp(t *testing.T) {
	near, far := net.Pipe()
	swallowed := make(chan struct{})
	go func() {
		defer close(swallowed)
		_, _ = io.Copy(io.Discard, far) // until the client goes
	}()
	client := rpc.NewClient(near)
	t.Cleanup(func() { client.Close(); <-swallowed; far.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := remote{client}.Do(ctx, drone.StepDrone, drone.Call{Task: "t", Key: "t/drone/0", Attempt: 1})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the end of the caller's time", err)
	}
}
