package drone

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// startNATS runs a NATS server in the test and connects to it.
func startNATS(t *testing.T, options ...nats.Option) *nats.Conn {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("NATS server does not come up")
	}
	return connectNATS(t, s.ClientURL(), options...)
}

func connectNATS(t *testing.T, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// startAgents serves all five agents until the test ends.
func startAgents(t *testing.T, nc *nats.Conn, all *Services) {
	t.Helper()
	a, err := NewAgent(nc, NewWorkflow(QuickPlan()), all)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("agents: %v", err)
		}
	})
}

// command is the wire's command, version 1.
type command struct {
	V          int                        `json:"v"`
	Task       string                     `json:"task"`
	Type       string                     `json:"type"`
	Step       string                     `json:"step"`
	Attempt    int                        `json:"attempt"`
	Key        string                     `json:"key"`
	CompleteBy time.Time                  `json:"complete_by"`
	LeftMS     int64                      `json:"left_ms"`
	Input      Request                    `json:"input"`
	Results    map[string]json.RawMessage `json:"results"`
}

// scheduler plays Duly's part for one task over bare NATS.
type scheduler struct {
	nc      *nats.Conn
	input   Request
	results map[string]json.RawMessage
	within  time.Duration
	seq     int
}

// send makes one command and returns the reply. While the agents have not yet
// subscribed the server says so at once, and the command is sent again.
func (s *scheduler) send(t *testing.T, verb string, step Step, agent string, attempt int) (*nats.Msg, error) {
	t.Helper()
	id := s.input.DeliveryID
	data, err := json.Marshal(command{
		V: 1, Task: id, Type: Type, Step: step.String(), Attempt: attempt, Key: id + "/" + step.String() + "/0",
		CompleteBy: time.Now().Add(s.within).UTC().Truncate(time.Microsecond), LeftMS: s.within.Milliseconds(),
		Input: s.input, Results: s.results,
	})
	if err != nil {
		t.Fatal(err)
	}
	// The agents answer to a reply subject of the wire's form.
	s.seq++
	inbox := "duly.reply.0.1." + strconv.Itoa(s.seq)
	sub, err := s.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	deadline := time.Now().Add(10 * time.Second)
	for {
		if err := s.nc.PublishRequest("duly."+verb+"."+agent, inbox, data); err != nil {
			t.Fatal(err)
		}
		msg, err := sub.NextMsg(s.within + 200*time.Millisecond)
		if !errors.Is(err, nats.ErrNoResponders) || time.Now().After(deadline) {
			return msg, err
		}
	}
}

// do expects success and keeps the result for the steps behind it.
func (s *scheduler) do(t *testing.T, step Step, agent string, result any) {
	t.Helper()
	msg, err := s.send(t, "do", step, agent, 1)
	if err != nil {
		t.Fatalf("do %s: %v", step, err)
	}
	if code := msg.Header.Get("Nats-Service-Error-Code"); code != "" {
		t.Fatalf("do %s: %s %s", step, code, msg.Header.Get("Nats-Service-Error"))
	}
	if err := json.Unmarshal(msg.Data, result); err != nil {
		t.Fatalf("do %s: %v", step, err)
	}
	s.results[step.String()] = msg.Data
}

func (s *scheduler) doAll(t *testing.T) (Assignment, Confirmed) {
	t.Helper()
	var (
		assigned  Assignment
		confirmed Confirmed
	)
	s.do(t, StepAccount, "account.check", &AccountStatus{})
	s.do(t, StepPackage, "package.create", &PackageReceipt{})
	s.do(t, StepTransport, "transport.check", &Transport{})
	s.do(t, StepDrone, "drone.schedule", &assigned)
	s.do(t, StepDelivery, "delivery.create", &confirmed)
	return assigned, confirmed
}

func newScheduler(nc *nats.Conn, input Request) *scheduler {
	return &scheduler{nc: nc, input: input, results: map[string]json.RawMessage{}, within: 5 * time.Second}
}

// Reference defects 9 and 11: a delivery got another's drone, and lost its
// expedited flag.
//
// covers: S7, I1, D9, D11
func TestAgentsCarryADeliveryThrough(t *testing.T) {
	nc := startNATS(t)
	all := newServices(t, ServiceOptions{Seed: 1})
	startAgents(t, nc, all)
	g := NewGenerator(1)
	var ids []string
	outcomes := OutcomeMap{}
	drones := map[string]bool{}
	for i := range 20 {
		input := g.Request(i)
		input.Expedited = i%2 == 0
		assigned, confirmed := newScheduler(nc, input).doAll(t)
		want := Confirmed{DeliveryID: input.DeliveryID, DroneID: assigned.DroneID, PackageID: input.PackageInfo.PackageID, Expedited: input.Expedited}
		if confirmed != want {
			t.Errorf("delivery %d: %+v, want %+v", i, confirmed, want)
		}
		if drones[assigned.DroneID] {
			t.Errorf("drone %s flies two deliveries", assigned.DroneID)
		}
		drones[assigned.DroneID] = true
		ids = append(ids, input.DeliveryID)
		outcomes[input.DeliveryID] = Outcome{State: StateProcessed}
	}
	if report := all.Books().Check(ids, outcomes); !report.Clean() || report.Processed != len(ids) {
		t.Errorf("report %+v", report)
	}
}

// Reference defect 4: no failure was ever undone.
//
// covers: D4
func TestAgentsUndo(t *testing.T) {
	nc := startNATS(t)
	all := newServices(t, ServiceOptions{Seed: 1})
	startAgents(t, nc, all)
	s := newScheduler(nc, NewGenerator(1).Request(0))
	s.doAll(t)
	for step, agent := range map[Step]string{StepDelivery: "delivery.create", StepDrone: "drone.schedule", StepPackage: "package.create"} {
		for attempt := range 2 {
			msg, err := s.send(t, "undo", step, agent, attempt+1)
			if err != nil || msg.Header.Get("Nats-Service-Error-Code") != "" {
				t.Fatalf("undo %s: %+v, %v", step, msg, err)
			}
		}
		wantCode(t, s, step, agent, "410")
	}
	id := s.input.DeliveryID
	report := all.Books().Check([]string{id}, OutcomeMap{id: {State: StateUndone}})
	if !report.Clean() {
		t.Errorf("report %+v", report)
	}
}

func wantCode(t *testing.T, s *scheduler, step Step, agent, want string) {
	t.Helper()
	msg, err := s.send(t, "do", step, agent, 3)
	if err != nil {
		t.Fatalf("do %s: %v", step, err)
	}
	if got := msg.Header.Get("Nats-Service-Error-Code"); got != want {
		t.Errorf("do %s: code %q, want %s: %s", step, got, want, msg.Header.Get("Nats-Service-Error"))
	}
}

// covers: I7
func TestAgentsRefuse(t *testing.T) {
	nc := startNATS(t)
	all := newServices(t, ServiceOptions{Seed: 1, Faults: Faults{Refused: 1}})
	startAgents(t, nc, all)
	s := newScheduler(nc, NewGenerator(1).Request(0))
	wantCode(t, s, StepAccount, "account.check", "403")
	s.results["package"] = json.RawMessage(`{"packageId":"p"}`)
	wantCode(t, s, StepDelivery, "delivery.create", "500") // no drone was scheduled: a bug, worth another try
	s.results["drone"] = json.RawMessage(`{"droneId":"kite-1"}`)
	wantCode(t, s, StepDelivery, "delivery.create", "422")
}

// A hanging service and a dead agent look alike from here: no answer comes, not
// even an error.
//
// covers: E7, S9
func TestAgentsAreSilentPastTheirTime(t *testing.T) {
	nc := startNATS(t)
	all := newServices(t, ServiceOptions{Seed: 1, Faults: Faults{TimedOut: 0.5, Silent: 0.5}})
	startAgents(t, nc, all)
	s := newScheduler(nc, NewGenerator(1).Request(0))
	s.within = 50 * time.Millisecond
	if msg, err := s.send(t, "do", StepDrone, "drone.schedule", 1); err == nil {
		t.Errorf("answered %s %v", msg.Data, msg.Header)
	}
	if got := all.Service(StepDrone).Stats(); got.Silent != 1 {
		t.Errorf("stats %+v", got)
	}
	if err := all.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Replies suffer on the agents' connection; each command is one effect still.
//
// covers: E2
func TestAgentsOnABadNetwork(t *testing.T) {
	nc := startNATS(t)
	tamper, err := NewTamper(1, Faults{Doubled: 1})
	if err != nil {
		t.Fatal(err)
	}
	all := newServices(t, ServiceOptions{Seed: 1})
	startAgents(t, connectNATS(t, nc.ConnectedUrl(), tamper.Option()), all)
	s := newScheduler(nc, NewGenerator(1).Request(0))
	s.doAll(t)
	id := s.input.DeliveryID
	if report := all.Books().Check([]string{id}, OutcomeMap{id: {State: StateProcessed}}); !report.Clean() {
		t.Errorf("report %+v", report)
	}
	if replies, doubled, dropped := tamper.Counts(); replies < StepCount || doubled != replies || dropped != 0 {
		t.Errorf("%d replies, %d doubled, %d dropped", replies, doubled, dropped)
	}
}

func TestDroneIDs(t *testing.T) {
	for _, serial := range []uint32{1, 0xdeadbeef, 1<<32 - 1} {
		if got, err := droneSerial(droneID(serial)); err != nil || got != serial {
			t.Errorf("%d became %d, %v", serial, got, err)
		}
	}
	for _, id := range []string{"", "drone-", "1f", "kite-1f", "drone-100000000"} {
		if _, err := droneSerial(id); err == nil || !strings.Contains(err.Error(), "drone id") {
			t.Errorf("%q: %v", id, err)
		}
	}
}
