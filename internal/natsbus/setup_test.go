package natsbus

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/wire"
)

func TestSetupTwice(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	config := StreamConfig{Partitions: 8, MaxBytes: 1 << 30, EventsAge: 2 * time.Hour, DuplicateWindow: 5 * time.Second, Lease: 3 * time.Second, SyncAlways: true}
	first := setUp(t, c, config)
	if first.Sync != syncAlways || strings.Count(first.Identity, "/") != 1 {
		t.Errorf("%+v", first)
	}
	if again := setUp(t, c, config); again != first {
		t.Errorf("%+v, first %+v", again, first)
	}
	if easy := setUp(t, c, StreamConfig{}); easy.Identity != first.Identity || easy.Sync != syncUnknown {
		t.Errorf("%+v", easy)
	}
	if id, err := c.Identity(within(t)); err != nil || id != first.Identity {
		t.Errorf("%s, %v", id, err)
	}
	stream, err := c.js.Stream(within(t), names.StreamTasks())
	if err != nil {
		t.Fatal(err)
	}
	s := stream.CachedInfo().Config
	if s.Retention != jetstream.LimitsPolicy || s.Storage != jetstream.FileStorage || s.Discard != jetstream.DiscardNew || s.MaxAge != 0 || s.MaxBytes != 1<<30 ||
		s.Duplicates != 5*time.Second || s.SubjectTransform.Destination != "duly.tasks.{{partition(8,2)}}.{{wildcard(1)}}.{{wildcard(2)}}" {
		t.Errorf("%+v", s)
	}
	if err := c.js.DeleteStream(within(t), names.StreamTasks()); err != nil {
		t.Fatal(err)
	}
	if again := setUp(t, c, config); again.Identity == first.Identity {
		t.Error("a stream made again has the identity of the one before")
	}
}

// TestSetupChangesInPlace: sizes, ages, replicas, windows and leases follow the flags, in
// both directions, and what is not configured stays.
func TestSetupChangesInPlace(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	setUp(t, c, StreamConfig{Partitions: 8, MaxBytes: 1 << 30, Lease: 3 * time.Second})
	config := func(name string) jetstream.StreamConfig {
		stream, err := c.js.Stream(within(t), name)
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().Config
	}
	eventsBefore := config(names.StreamEvents())
	id := config(names.StreamTasks()).Metadata[metaStream]
	for _, bytes := range []int64{2 << 30, 64 << 20} {
		setUp(t, c, StreamConfig{Partitions: 8, MaxBytes: bytes, ControlBytes: bytes / 2, EventsBytes: bytes / 4, DeadBytes: bytes / 8,
			EventsAge: 3 * time.Hour, DuplicateWindow: time.Second, Lease: 6 * time.Second})
		tasks, control, events, dead, nodes := config(names.StreamTasks()), config(names.StreamControl()), config(names.StreamEvents()), config(names.StreamDead()), config("KV_DULY_NODES")
		if tasks.MaxBytes != bytes || tasks.Duplicates != time.Second || control.MaxBytes != bytes/2 ||
			events.MaxBytes != bytes/4 || events.MaxAge != 3*time.Hour || dead.MaxBytes != bytes/8 || nodes.MaxAge != 6*time.Second || tasks.Metadata[metaStream] != id {
			t.Errorf("%+v\n%+v\n%+v\n%+v\n%+v", tasks, control, events, dead, nodes)
		}
	}
	if eventsBefore.MaxAge != defaultEventsAge {
		t.Errorf("%+v", eventsBefore)
	}
	before := config(names.StreamTasks())
	setUp(t, c, StreamConfig{})
	if after := config(names.StreamTasks()); after.MaxBytes != before.MaxBytes || after.Duplicates != before.Duplicates {
		t.Errorf("changed without a setting: %+v", after)
	}
}

// TestSetupRefuses: what NATS cannot change, or what voids the promise, is told in full and
// left alone.
func TestSetupRefuses(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	setUp(t, c, StreamConfig{Partitions: 8})
	_, err := c.Setup(within(t), StreamConfig{Partitions: 16, MaxBytes: 1 << 30})
	if !errors.Is(err, errSettings) {
		t.Fatal(err)
	}
	for _, want := range []string{"DULY_TASKS: partitions is 8, want 16 (--partitions)", "DULY_TASKS: subject transform is duly.in.*.* to duly.tasks.{{partition(8,2)}}"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	setUp(t, c, StreamConfig{Partitions: 8})
	stream, err := c.js.Stream(within(t), names.StreamTasks())
	if err != nil {
		t.Fatal(err)
	}
	good := stream.CachedInfo().Config
	for want, spoil := range map[string]func(*jetstream.StreamConfig){
		"no ack is true, want false":                    func(s *jetstream.StreamConfig) { s.NoAck = true },
		"max messages is 5, want unlimited":             func(s *jetstream.StreamConfig) { s.MaxMsgs = 5 },
		"max messages per subject is 1, want unlimited": func(s *jetstream.StreamConfig) { s.MaxMsgsPerSubject = 1 },
		"max message size is 100, want unlimited":       func(s *jetstream.StreamConfig) { s.MaxMsgSize = 100 },
		"persist mode is Async, want Default":           func(s *jetstream.StreamConfig) { s.PersistMode = jetstream.AsyncPersistMode },
		"allow rollup is true, want false":              func(s *jetstream.StreamConfig) { s.AllowRollup = true },
		"allow message TTL is true, want false":         func(s *jetstream.StreamConfig) { s.AllowMsgTTL = true },
		"deny purge is true, want false":                func(s *jetstream.StreamConfig) { s.DenyPurge = true },
		"discard is DiscardOld, want DiscardNew":        func(s *jetstream.StreamConfig) { s.Discard = jetstream.DiscardOld },
		"max consumers is 10, want no limit, or 24":     func(s *jetstream.StreamConfig) { s.MaxConsumers = 10 },
		"sources is 1, want 0":                          func(s *jetstream.StreamConfig) { s.Sources = []*jetstream.StreamSource{{Name: names.StreamDead()}} },
		"storage is Memory, want File":                  func(s *jetstream.StreamConfig) { s.Storage = jetstream.MemoryStorage },
		"retention is WorkQueue, want Limits":           func(s *jetstream.StreamConfig) { s.Retention = jetstream.WorkQueuePolicy },
		"mirror of is DULY_DEAD, want none": func(s *jetstream.StreamConfig) {
			s.Mirror, s.Subjects, s.SubjectTransform = &jetstream.StreamSource{Name: names.StreamDead()}, nil, nil
		},
		"partitions is none, want 8 (":                      func(s *jetstream.StreamConfig) { delete(s.Metadata, metaPartitions) },
		"wire version is none, want 1":                      func(s *jetstream.StreamConfig) { delete(s.Metadata, metaWire) },
		"subjects is [duly.in.*.*], want [duly.in.*.* duly": func(s *jetstream.StreamConfig) { s.Subjects = []string{"duly.in.*.*"} },
	} {
		if err := c.js.DeleteStream(within(t), names.StreamTasks()); err != nil {
			t.Fatal(err)
		}
		bad := good
		bad.Metadata = maps.Clone(good.Metadata)
		spoil(&bad)
		if _, err := c.js.CreateStream(within(t), bad); err != nil {
			t.Errorf("%s: %v", want, err)
			setUp(t, c, StreamConfig{Partitions: 8})
			continue
		}
		if _, err := c.Setup(within(t), StreamConfig{Partitions: 8}); !errors.Is(err, errSettings) || !strings.Contains(err.Error(), "DULY_TASKS: "+want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	if err := c.js.DeleteStream(within(t), names.StreamTasks()); err != nil {
		t.Fatal(err)
	}
	sealed, err := c.js.CreateStream(within(t), good)
	if err != nil {
		t.Fatal(err)
	}
	seal := sealed.CachedInfo().Config
	seal.Sealed = true
	if _, err := c.js.UpdateStream(within(t), seal); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Setup(within(t), StreamConfig{Partitions: 8}); !errors.Is(err, errSettings) || !strings.Contains(err.Error(), "sealed is true, want false") {
		t.Errorf("%v", err)
	}
}

// TestSetupRefusesBuckets: the buckets are compared, too.
func TestSetupRefusesBuckets(t *testing.T) {
	for want, config := range map[string]jetstream.KeyValueConfig{
		"KV_DULY_NODES: limit marker is none":                  {Bucket: names.BucketNodes(), TTL: time.Second},
		"KV_DULY_NODES: lease is none, want 6s (--lease)":      {Bucket: names.BucketNodes(), LimitMarkerTTL: time.Minute},
		"KV_DULY_KEYS: storage is Memory, want File":           {Bucket: names.BucketKeys(), Storage: jetstream.MemoryStorage},
		"KV_DULY_PARTITIONS: max age is 1m0s, want none":       {Bucket: names.BucketPartitions(), TTL: time.Minute},
		"KV_DULY_PARTITIONS: max messages per subject is 5, w": {Bucket: names.BucketPartitions(), History: 5},
	} {
		c := dial(t, serve(t, natsserver.Options{}).ClientURL())
		if _, err := c.js.CreateKeyValue(within(t), config); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Setup(within(t), StreamConfig{}); !errors.Is(err, errSettings) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// TestSetupForeignStream: a stream of our name that was made by hand.
func TestSetupForeignStream(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	_, err := c.js.CreateStream(within(t), jetstream.StreamConfig{Name: names.StreamTasks(), Subjects: []string{"duly.in.>"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Setup(within(t), StreamConfig{})
	if !errors.Is(err, errSettings) {
		t.Fatal(err)
	}
	for _, want := range []string{"retention is WorkQueue, want Limits", "storage is Memory, want File", "discard is DiscardOld, want DiscardNew",
		"subjects is [duly.in.>], want [duly.in.*.* duly.tasks.*.pack]", "partitions is none", "wire version is none, want 1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	if _, err := c.Setup(within(t), StreamConfig{Partitions: PartitionsMax + 1}); err == nil || errors.Is(err, errSettings) {
		t.Errorf("too many partitions: %v", err)
	}
}

// Streams that are read by many partitions allow the consumers of all, twice: one that changes hands has two. A server
// allows 1,000 of a stream that says nothing. One that was made before they said it is changed.
func TestConsumersOfManyPartitions(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	const partitions = 600
	setUp(t, c, StreamConfig{Partitions: partitions})
	for _, name := range []string{c.names.StreamTasks(), c.names.StreamControl()} {
		stream, err := c.js.Stream(within(t), name)
		if err != nil {
			t.Fatal(err)
		}
		was := stream.CachedInfo().Config
		was.MaxConsumers = -1
		if _, err := c.js.UpdateStream(within(t), was); err != nil {
			t.Fatal(err)
		}
		setUp(t, c, StreamConfig{Partitions: partitions})
		for i := range 2 * partitions {
			config := jetstream.ConsumerConfig{Durable: wire.ConsumerName(i%partitions, 1+int64(i/partitions), 1), AckPolicy: jetstream.AckExplicitPolicy, MemoryStorage: true}
			if _, err := stream.CreateConsumer(within(t), config); err != nil {
				t.Fatalf("stream %s, consumer %d of %d: %v", name, i+1, 2*partitions, err)
			}
		}
	}
	few := StreamConfig{Partitions: 16}.resources(c.names)[0].want.MaxConsumers
	if few != -1 {
		t.Errorf("of 16 partitions %d consumers are asked for, want what the account allows", few)
	}
}
