package natsbus

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// heardWishes collects what a watch says.
type heardWishes struct {
	mu   sync.Mutex
	last []core.Wish
	n    int
}

func (h *heardWishes) hear(all []core.Wish) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.n = all, h.n+1
}

func (h *heardWishes) is(want ...core.Wish) func() bool {
	return func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.n > 0 && slices.Equal(h.last, want)
	}
}

// TestWishes: what is wanted of partitions is heard by those who watch, what there was and each change, and what is
// forgotten is heard too; what owners record in the same bucket is none of it, and neither is what cannot be read.
func TestWishes(t *testing.T) {
	c := ready(t)
	three := core.Wish{Partition: 3, Node: "n1"}
	seven := core.Wish{Partition: 7, Avoid: "n2", Until: at}
	put := func(w core.Wish) {
		t.Helper()
		if err := c.PutWish(within(t), w); err != nil {
			t.Fatal(err)
		}
	}
	put(three)
	ctx, stop := context.WithCancel(context.Background())
	heard, done := &heardWishes{}, make(chan error, 1)
	go func() { done <- c.WatchWishes(ctx, heard.hear) }()
	eventually(t, "what there is", heard.is(three))
	put(seven)
	eventually(t, "another", heard.is(three, seven))
	three.Node = "n3"
	put(three)
	eventually(t, "a change", heard.is(three, seven))
	if w, err := c.Wish(within(t), 7); err != nil || w != seven {
		t.Errorf("wish %+v, %v", w, err)
	}
	kv, err := c.Bucket(within(t), names.BucketPartitions())
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"wish.9": "no JSON", "wish.x": `{"v":1,"node":"a"}`, "wish.8": `{"v":2,"node":"a"}`, "wish.03": `{"v":1,"node":"a"}`, "3": `{"partition":3,"epoch":5}`} {
		if _, err := kv.Put(within(t), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	put(core.Wish{Partition: 3})
	eventually(t, "what is forgotten", heard.is(seven))
	if w, err := c.Wish(within(t), 3); err != nil || w != (core.Wish{Partition: 3}) {
		t.Errorf("a wish that is forgotten: %+v, %v", w, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	again := &heardWishes{}
	ctx, stop = context.WithCancel(context.Background())
	go func() { done <- c.WatchWishes(ctx, again.hear) }()
	eventually(t, "what is left, by another watch", again.is(seven))
	stop()
	<-done
	// What owners record is heard as before, and a wish is no evidence.
	evidence := make(chan core.Evidence, 16)
	ctx, stop = context.WithCancel(context.Background())
	go func() { done <- c.WatchEvidence(ctx, nil, func(e core.Evidence) { evidence <- e }) }()
	if e := receive(t, "evidence", evidence); e.Epoch != 5 {
		t.Errorf("heard %+v", e)
	}
	stop()
	<-done
	nothing(t, "more evidence", evidence)
}

// TestLags: what is not acknowledged counts, whether it was handed out or not.
func TestLags(t *testing.T) {
	c := ready(t)
	s := newSink()
	s.gate = make(chan struct{})
	s.read(t, c, 3, 0, ReadConfig{Prefetch: 1})
	publishTasks(t, c, 20)
	lag := func(want uint64) func() bool {
		return func() bool {
			lags, err := c.Lags(within(t))
			if err != nil {
				t.Fatal(err)
			}
			return len(lags) == 1 && lags[part] == Lag{Pending: want, Epoch: 3}
		}
	}
	t.Cleanup(s.release)
	eventually(t, "a message at the handler", func() bool { return len(s.got()) > 0 })
	eventually(t, "all of it, with what the handler has", lag(20))
	for range 5 {
		s.gate <- struct{}{}
	}
	eventually(t, "less, when some is acknowledged", lag(15))
}

// TestPausesChanged: an announcement reaches everyone.
func TestPausesChanged(t *testing.T) {
	c := ready(t)
	told := make(chan struct{}, 4)
	for range 2 {
		sub, err := c.OnPausesChanged(func() { told <- struct{}{} })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(sub.Stop)
	}
	if err := c.AnnouncePauses(); err != nil {
		t.Fatal(err)
	}
	receive(t, "the first", told)
	receive(t, "the second", told)
}

// TestInstances: every instance of an agent answers for itself, also one that is not of Duly's library; other services, those
// of another namespace and what is no answer do not count, and neither does who comes too late.
func TestInstances(t *testing.T) {
	c := ready(t)
	gather := func() ([]AgentInstance, bool) {
		t.Helper()
		began := time.Now()
		all, more, err := c.Instances(within(t), []string{"payment.charge", "foreign", "away", "impostor"})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 5*instancesWithin {
			t.Errorf("it took %v, the limit is %v", took, instancesWithin)
		}
		slices.SortFunc(all, func(a, b AgentInstance) int { return strings.Compare(a.Agent+a.ID, b.Agent+b.ID) })
		return all, more
	}
	eventually(t, "an answer without agents, without waiting for one", func() bool { // on a busy machine the quickest try counts
		asked := time.Now()
		if all, more := gather(); len(all) > 0 || more {
			t.Fatalf("without agents: %+v, %v", all, more)
		}
		return time.Since(asked) < instancesWithin
	})
	began := time.Now()
	for range 2 {
		s, err := c.ServeCommands("payment.charge", true, func(r *CommandRequest) { _ = r.Fail(500, "broken") })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
	}
	service := func(name string, metadata map[string]string) {
		t.Helper()
		s, err := micro.AddService(c.nc, micro.Config{Name: name, Version: "1.0.0", Metadata: metadata, Endpoint: &micro.EndpointConfig{
			Subject: "of." + name, Handler: micro.HandlerFunc(func(r micro.Request) { _ = r.Error("500", "no", nil) }),
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Stop() })
	}
	service("duly-foreign", map[string]string{wire.MetaAgent: "foreign"})
	service("other-foreign", map[string]string{wire.MetaAgent: "foreign"})
	service("duly-impostor", map[string]string{wire.MetaAgent: "payment.charge"})
	service("duly-stranger", map[string]string{wire.MetaAgent: "stranger"})
	liar, err := c.nc.Subscribe(SubjectStatsOf(names, "foreign"), func(m *nats.Msg) { _ = m.Respond([]byte("no JSON")) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = liar.Unsubscribe() })
	for range 3 {
		if _, err := c.nc.RequestWithContext(within(t), "of.duly-foreign", nil); err != nil {
			t.Fatal(err)
		}
	}
	charge := names.CommandSubject("payment.charge", false)
	if err := c.nc.PublishRequest(charge, names.ReplySubject(1, 1, 1), []byte(sampleCommandJSON)); err != nil {
		t.Fatal(err)
	}
	var all []AgentInstance
	eventually(t, "all three, with what they have answered", func() bool {
		var more bool
		all, more = gather()
		return !more && len(all) == 3 && all[0].Calls == 3 && all[1].Calls+all[2].Calls == 1
	})
	if all[0].Agent != "foreign" || all[0].Errors != 3 || all[0].Messages != 3 || all[0].Busy <= 0 {
		t.Errorf("a foreign agent: %+v", all[0])
	}
	for _, is := range all[1:] {
		if is.Agent != "payment.charge" || is.ID == "" || is.ID == all[0].ID || is.Errors != is.Calls || is.Started.Before(began.Add(-time.Minute)) || is.Started.After(time.Now().Add(time.Minute)) {
			t.Errorf("an agent of ours: %+v", is)
		}
	}
	if all[1].ID == all[2].ID {
		t.Error("two instances have one id")
	}
}

// TestInstancesAreBounded: so many answers are read and no more, and it is said that there may be others.
func TestInstancesAreBounded(t *testing.T) {
	c := ready(t)
	flood, err := c.nc.Subscribe(SubjectStatsOf(names, "a"), func(m *nats.Msg) {
		for i := range instancesMax + 50 {
			_ = m.Respond([]byte(`{"name":"duly-a","id":"` + strconv.Itoa(i) + `","metadata":{"duly_agent":"a"}}`))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flood.Unsubscribe() })
	eventually(t, "as many as are read", func() bool { // a busy machine may not have read them when the time is over
		all, more, err := c.Instances(within(t), []string{"a"})
		if err != nil || len(all) > instancesMax || len(all) > 0 && all[0] != (AgentInstance{Agent: "a", ID: "0"}) {
			t.Fatalf("%d, %v, %v", len(all), more, err)
		}
		return more && len(all) == instancesMax
	})
	many := make([]string, instancesMax+1)
	for i := range many {
		many[i] = "b" + strconv.Itoa(i)
	}
	if all, more, err := c.Instances(within(t), many); err != nil || !more || len(all) > 0 {
		t.Errorf("too many names: %+v, %v, %v", all, more, err)
	}
}

// TestAway: each node that is asked counts once; who is not among them does not, and who is silent is told as more.
func TestAway(t *testing.T) {
	c := ready(t)
	if all, more, err := c.Away(within(t), []string{"n1"}); err != nil || len(all) != 0 || !more {
		t.Errorf("no one serves it: %+v, %v, %v", all, more, err)
	}
	for _, node := range []string{"n1", "n2", "n2", "stranger"} {
		sub, err := c.ServeAway(func() wire.AwayReport {
			return wire.AwayReport{Node: node, Agents: []wire.AwayAgent{{Agent: "pay", Tasks: 2}}}
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(sub.Stop)
	}
	for _, x := range []struct {
		nodes []string
		want  []string
		more  bool
	}{{nil, nil, false}, {[]string{"n1", "n2"}, []string{"n1", "n2"}, false}, {[]string{"n1", "n2", "n3"}, []string{"n1", "n2"}, true}} {
		eventually(t, fmt.Sprintf("of %v: %v, more %v", x.nodes, x.want, x.more), func() bool { // each has a moment to answer
			all, more, err := c.Away(within(t), x.nodes)
			var got []string
			for _, r := range all {
				got = append(got, r.Node)
				if len(r.Agents) != 1 || r.Agents[0].Tasks != 2 {
					t.Errorf("%+v", r)
				}
			}
			slices.Sort(got)
			if err != nil || len(got) > len(x.want) {
				t.Fatalf("of %v: %v, more %v, %v", x.nodes, got, more, err)
			}
			return more == x.more && slices.Equal(got, x.want)
		})
	}
}
