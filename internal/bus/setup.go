package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Defaults of StreamConfig.
const (
	DefaultPartitions = 16
	DefaultMaxAge     = 24 * time.Hour
	DefaultEventsAge  = 7 * 24 * time.Hour
	DefaultDuplicates = 20 * time.Second
	DefaultLease      = 6 * time.Second
)

// PartitionsMax bounds P.
const PartitionsMax = 1024

// markerTTL is how long the marks of expired leases stay for watchers to see.
const markerTTL = time.Minute

// Keys of a stream's metadata.
const (
	metaPartitions = "duly_partitions"
	metaWire       = "duly_wire"
)

// SyncUnknown and SyncAlways are what Setup says of the server's writing to disk.
const (
	SyncUnknown = "unknown" // a server somebody else configured does not say
	SyncAlways  = "always"  // every write is synced before it is confirmed
)

// ErrSettings is wrapped by the error about streams that exist with other
// settings. They are never changed here.
var ErrSettings = errors.New("streams exist with other settings")

// StreamConfig is how the streams are to be. A zero field has its default where
// a stream is made, and is not compared where it exists.
type StreamConfig struct {
	Partitions      int           // P, fixed for the life of the data; default DefaultPartitions
	Replicas        int           // default 1
	MaxAge          time.Duration // of submissions and control messages; at least the interval of SQL backups
	MaxBytes        int64         // of submissions; full means "retry after"; default: no limit but the disk's
	EventsAge       time.Duration // of events and dead letters
	EventsBytes     int64         // of each of them; default: no limit but the disk's
	DuplicateWindow time.Duration // of Nats-Msg-Id; the SQL key is the authority, so a short one will do
	Lease           time.Duration // how long a node's lease lives without renewal
	SyncAlways      bool          // the caller knows that the server syncs always
}

// Ready is what Setup found or made.
type Ready struct {
	Identity string // of DULY_TASKS: another one after the stream was deleted and made again
	Sync     string // SyncAlways or SyncUnknown
}

// Setup makes the streams and the buckets, or checks them where they exist. It may
// run anywhere and often. From then on the connection marks its commands and takes
// no reply without its mark. Errors wrap ErrSettings, with each difference.
func (c *Conn) Setup(ctx context.Context, config StreamConfig) (Ready, error) {
	if config.Partitions < 0 || config.Partitions > PartitionsMax {
		return Ready{}, fmt.Errorf("partitions %d, want 1 to %d", config.Partitions, PartitionsMax)
	}
	var ready Ready
	var diffs []string
	for _, want := range config.streams(c.names) {
		info, err := c.ensure(ctx, want)
		if err != nil {
			return Ready{}, fmt.Errorf("stream %s: %w", want.Name, err)
		}
		diffs = append(diffs, config.differences(c.names, want, info.Config)...)
		if want.Name == c.names.StreamTasks() {
			ready.Identity = identity(info)
		}
	}
	more, err := c.ensureNodes(ctx, config)
	if err != nil {
		return Ready{}, fmt.Errorf("bucket %s: %w", c.names.BucketNodes(), err)
	}
	if diffs = append(diffs, more...); len(diffs) > 0 {
		return Ready{}, fmt.Errorf("%w: %s", ErrSettings, strings.Join(diffs, "; "))
	}
	if err := c.ensurePartitions(ctx, config); err != nil {
		return Ready{}, fmt.Errorf("bucket %s: %w", c.names.BucketPartitions(), err)
	}
	if err := c.useKey(ctx, config); err != nil {
		return Ready{}, fmt.Errorf("bucket %s: %w", c.names.BucketKeys(), err)
	}
	ready.Sync = SyncUnknown
	if config.SyncAlways {
		ready.Sync = SyncAlways
	}
	c.log.Info("streams are ready", "identity", ready.Identity, "sync", ready.Sync)
	return ready, nil
}

// Identity is that of the task stream as it is now.
func (c *Conn) Identity(ctx context.Context) (string, error) {
	stream, err := c.js.Stream(ctx, c.names.StreamTasks())
	if err != nil {
		return "", fmt.Errorf("stream %s: %w", c.names.StreamTasks(), err)
	}
	return identity(stream.CachedInfo()), nil
}

func identity(info *jetstream.StreamInfo) string {
	return info.Config.Name + "@" + info.Created.UTC().Format(time.RFC3339Nano)
}

// streams are the settings in full; differences compares the ones that matter.
func (config StreamConfig) streams(names Names) []jetstream.StreamConfig {
	partitions := orDefault(config.Partitions, DefaultPartitions)
	age := orDefault(config.MaxAge, DefaultMaxAge)
	eventsAge := orDefault(config.EventsAge, DefaultEventsAge)
	base := jetstream.StreamConfig{
		Retention:  jetstream.LimitsPolicy,
		Storage:    jetstream.FileStorage,
		Replicas:   orDefault(config.Replicas, 1),
		MaxBytes:   -1,
		Duplicates: orDefault(config.DuplicateWindow, DefaultDuplicates),
		Metadata:   map[string]string{metaWire: strconv.Itoa(Version)},
	}
	stream := func(name, about string, age time.Duration, bytes int64, discard jetstream.DiscardPolicy, subjects ...string) jetstream.StreamConfig {
		s := base
		s.Name, s.Description, s.Subjects, s.MaxAge, s.Discard = name, about, subjects, age, discard
		s.Duplicates = min(s.Duplicates, age)
		if bytes > 0 {
			s.MaxBytes = bytes
		}
		return s
	}
	tasks := stream(names.StreamTasks(), "Duly: submissions, by partition", age, config.MaxBytes, jetstream.DiscardNew, names.patternIn(), names.patternPack())
	tasks.SubjectTransform = &jetstream.SubjectTransformConfig{
		Source:      names.patternIn(),
		Destination: names.tasksTransform(partitions),
	}
	tasks.Metadata = map[string]string{metaWire: strconv.Itoa(Version), metaPartitions: strconv.Itoa(partitions)}
	return []jetstream.StreamConfig{
		tasks,
		stream(names.StreamControl(), "Duly: requests about tasks, by partition", age, 0, jetstream.DiscardNew, names.patternControl()),
		stream(names.StreamEvents(), "Duly: how tasks ended", eventsAge, config.EventsBytes, jetstream.DiscardOld, names.patternEvents()),
		stream(names.StreamDead(), "Duly: what could not be decoded", eventsAge, config.EventsBytes, jetstream.DiscardOld, names.patternDead()),
	}
}

// ensure makes a stream if it is not there. Others may do so at the same time.
func (c *Conn) ensure(ctx context.Context, want jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	stream, err := c.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = c.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // made meanwhile, otherwise
			stream, err = c.js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return nil, err
	}
	return stream.CachedInfo(), nil
}

// differences lists what of an existing stream does not fit.
func (config StreamConfig) differences(names Names, want, have jetstream.StreamConfig) []string {
	var d diffs
	d.name = want.Name
	d.check("retention", have.Retention, want.Retention)
	d.check("storage", have.Storage, want.Storage)
	d.check("discard", have.Discard, want.Discard)
	d.check("wire version", have.Metadata[metaWire], want.Metadata[metaWire])
	if !slices.Equal(slices.Sorted(slices.Values(have.Subjects)), slices.Sorted(slices.Values(want.Subjects))) {
		d.add("subjects", have.Subjects, want.Subjects)
	}
	if config.Replicas != 0 {
		d.check("replicas", have.Replicas, want.Replicas)
	}
	if config.DuplicateWindow != 0 {
		d.check("duplicate window", have.Duplicates, want.Duplicates)
	}
	age, bytes := config.MaxAge, config.MaxBytes
	switch want.Name {
	case names.StreamEvents(), names.StreamDead():
		age, bytes = config.EventsAge, config.EventsBytes
	case names.StreamControl():
		bytes = 0
	}
	if age != 0 {
		d.check("max age", have.MaxAge, want.MaxAge)
	}
	if bytes != 0 {
		d.check("max bytes", have.MaxBytes, want.MaxBytes)
	}
	if want.Name == names.StreamTasks() {
		if config.Partitions != 0 {
			d.check("partitions", have.Metadata[metaPartitions], want.Metadata[metaPartitions])
			d.check("subject transform", transform(have), transform(want))
		} else if have.Metadata[metaPartitions] == "" {
			d.add("partitions", "none", "a number")
		}
	}
	return d.list
}

func transform(s jetstream.StreamConfig) string {
	if s.SubjectTransform == nil {
		return "none"
	}
	return s.SubjectTransform.Source + " to " + s.SubjectTransform.Destination
}

// ensureNodes makes the bucket of leases. The bucket has the time to live: that
// of a key is dropped by the first update.
func (c *Conn) ensureNodes(ctx context.Context, config StreamConfig) ([]string, error) {
	want := jetstream.KeyValueConfig{Bucket: c.names.BucketNodes(), Description: "Duly: leases", History: 1, Storage: jetstream.FileStorage,
		TTL: orDefault(config.Lease, DefaultLease), LimitMarkerTTL: markerTTL, Replicas: orDefault(config.Replicas, 1)}
	kv, err := c.js.KeyValue(ctx, c.names.BucketNodes())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = c.js.CreateKeyValue(ctx, want)
		if errors.Is(err, jetstream.ErrBucketExists) { // made meanwhile, otherwise
			kv, err = c.js.KeyValue(ctx, c.names.BucketNodes())
		}
	}
	if err != nil {
		return nil, err
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, err
	}
	d := diffs{name: c.names.BucketNodes()}
	if config.Lease != 0 {
		d.check("lease", status.TTL(), want.TTL)
	} else if status.TTL() == 0 {
		d.add("lease", "none", want.TTL)
	}
	if status.LimitMarkerTTL() == 0 {
		d.add("limit marker", "none", want.LimitMarkerTTL)
	}
	return d.list, nil
}

// diffs gathers differences of one stream.
type diffs struct {
	name string
	list []string
}

func (d *diffs) check(what string, have, want any) {
	if have != want {
		d.add(what, have, want)
	}
}

func (d *diffs) add(what string, have, want any) {
	d.list = append(d.list, fmt.Sprintf("%s: %s is %v, want %v", d.name, what, have, want))
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
