package natsbus

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/wire"
)

// Defaults of StreamConfig.
const (
	defaultPartitions = 16
	defaultEventsAge  = 7 * 24 * time.Hour
	defaultDuplicates = 20 * time.Second
	defaultLease      = 6 * time.Second
)

// PartitionsMax bounds P. What so many cost is in docs/scaling.md.
const PartitionsMax = 4096

// markerTTL is how long the server's delete markers of expired leases stay, so that
// watchers see them.
const markerTTL = time.Minute

// Keys of a stream's metadata.
const (
	metaPartitions   = "duly_partitions"
	metaWire         = "duly_wire"
	metaInstallation = "duly_installation" // the installation that it belongs to
	metaStream       = "duly_stream"       // its identity, which differs after it was deleted and made again
)

// syncUnknown and syncAlways are what Setup says of the server's writing to disk.
const (
	syncUnknown = "unknown" // a server that the caller did not start does not say
	syncAlways  = "always"  // every write is synced before it is confirmed
)

// Errors of Setup, and of what looks at the streams later.
var (
	// errSettings is wrapped by the error about streams that exist with settings that
	// cannot be changed in place.
	errSettings = errors.New("streams exist with other settings")
	// ErrInstallation is wrapped by the error about a stream of another installation.
	ErrInstallation = errors.New("stream belongs to another installation")
	// ErrNoStream is wrapped by the error about a stream that is missing.
	ErrNoStream = errors.New("stream is missing")
	// errStorage is wrapped by the error about a stream that NATS has no room for.
	errStorage = errors.New("NATS has not enough storage")
)

// StreamConfig is how the streams should be. A zero field has its default when a stream is made, and a stream that
// exists keeps what it has; but 0 TaskStreams is 1, and is refused where there are more.
type StreamConfig struct {
	// Installation is the id of the installation, which is in SQL, too; empty: none is written or compared.
	Installation string
	// Partitions is fixed for the life of the data; default defaultPartitions.
	Partitions int
	// TaskStreams is how many task streams share the partitions; default 1.
	TaskStreams int
	Replicas    int // default 1
	// MaxBytes bounds the submissions in all task streams together; a full one makes ingest refuse with a
	// time to come again. 0: as much as NATS has room for.
	MaxBytes int64
	// ControlBytes bounds the control messages in the same way.
	ControlBytes int64
	// EventsAge is how long events and dead letters are kept.
	EventsAge time.Duration
	// EventsBytes bounds the events, of which the oldest go; DeadBytes does so for dead letters. 0: as much
	// as NATS has room for.
	EventsBytes int64
	DeadBytes   int64
	// DuplicateWindow is that of Nats-Msg-Id. A short one will do, because the unique id in SQL decides what
	// is a duplicate.
	DuplicateWindow time.Duration
	// Lease is how long a node's lease lives without renewal.
	Lease time.Duration
	// Guest marks a node that uses what others make: it changes no stream and has no key of replies.
	Guest bool
	// SyncAlways says that the caller knows that the server syncs each write.
	SyncAlways bool
	// Dir is where a server in this process keeps its streams: then the disk bounds them, and errors name it
	// instead of a flag. Empty: the server is another process.
	Dir string
}

// Ready is what Setup found or made.
type Ready struct {
	Identity string // see Conn.Identity
	Sync     string // syncAlways or syncUnknown
}

// Setup makes the streams and buckets or, if they exist, checks them and changes what can be changed in
// place: sizes, ages, replicas, the window of duplicates, the lease. Any node may run it, at any time. From
// then on the connection signs its commands and checks the tokens of replies. A guest changes nothing. Errors
// wrap errSettings, with each difference; ErrInstallation; errStorage; for a guest, ErrNoStream;
// nats.ErrPermissionViolation.
func (c *Conn) Setup(ctx context.Context, config StreamConfig) (Ready, error) {
	if config.Partitions < 0 || config.Partitions > PartitionsMax {
		return Ready{}, fmt.Errorf("partitions %d, want 1 to %d", config.Partitions, PartitionsMax)
	}
	if n := config.taskStreams(); n > wire.TaskStreamsMax || n > cmp.Or(config.Partitions, defaultPartitions) {
		return Ready{}, fmt.Errorf("task streams %d, want 1 to %d, and no more than partitions", n, wire.TaskStreamsMax)
	}
	c.setting.Lock()
	defer c.setting.Unlock()
	ctx, end := c.UntilDenied(ctx, "$JS.API.STREAM.", "$KV."+c.names.BucketKeys(), "$JS.API.DIRECT.GET."+wire.BucketStream(c.names.BucketKeys()))
	infos, err := c.findStreams(ctx, config)
	if err == nil && config.Guest {
		err = config.complete(c.names, infos)
	} else if err == nil {
		err = c.makeAll(ctx, config, infos)
	}
	if err = end(err); err != nil {
		return Ready{}, err
	}
	c.watched.noteFound(infos)
	c.config.Store(&config)
	ready := Ready{Identity: identity(infos[c.names.StreamTasks()], infos[c.names.StreamControl()]), Sync: syncUnknown}
	if config.SyncAlways {
		ready.Sync = syncAlways
	}
	return ready, nil
}

// makeAll makes and changes the streams and buckets, and the key of replies.
func (c *Conn) makeAll(ctx context.Context, config StreamConfig, infos map[string]*jetstream.StreamInfo) error {
	aged := config.aged(c.names, infos)
	if err := c.fit(ctx, config, infos); err != nil {
		return err
	}
	if err := c.useKey(ctx); err != nil {
		return fmt.Errorf("bucket %s: %w", c.names.BucketKeys(), err)
	}
	return c.forgetAges(ctx, aged)
}

// aged returns the task and control streams that have a maximal age, which Setup takes away: what is accepted
// is read, however late.
func (config StreamConfig) aged(names wire.Names, infos map[string]*jetstream.StreamInfo) (all []string) {
	for _, r := range config.resources(names) {
		if info := infos[r.want.Name]; r.kept && info != nil && info.Config.MaxAge != 0 {
			all = append(all, r.want.Name)
		}
	}
	return all
}

// forgetAges records, for streams that had a maximal age, that what they lack now was removed by it and is
// not lost.
func (c *Conn) forgetAges(ctx context.Context, aged []string) error {
	for _, name := range aged {
		stream, err := c.stream(ctx, name)
		if err != nil {
			return err
		}
		state := stream.CachedInfo().State
		err = c.changeRemoved(ctx, name, streamID(stream.CachedInfo()), func(r removed) removed {
			r.To, r.Gaps = max(r.To, firstOf(&state)-1), uint64(max(0, state.NumDeleted))
			return r
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// complete refuses streams that are missing, for a guest, which makes none.
func (config StreamConfig) complete(names wire.Names, infos map[string]*jetstream.StreamInfo) error {
	for _, r := range config.resources(names) {
		if infos[r.want.Name] == nil {
			return fmt.Errorf("%w: %s, which a node with the role scheduler makes", ErrNoStream, r.name())
		}
	}
	return nil
}

// findStreams finds the streams that exist, and refuses those that cannot be used before anything is changed.
// Missing ones are not in the map.
func (c *Conn) findStreams(ctx context.Context, config StreamConfig) (map[string]*jetstream.StreamInfo, error) {
	infos := map[string]*jetstream.StreamInfo{}
	var diffs []string
	for _, r := range config.resources(c.names) {
		stream, err := c.js.Stream(ctx, r.want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", r.want.Name, err)
		}
		info := stream.CachedInfo()
		if err := config.checkInstallation(info); err != nil {
			return nil, err
		}
		if wrong := r.wrongNumber(&info.Config); wrong != "" {
			return nil, fmt.Errorf("%w: %s: %s", errSettings, r.want.Name, wrong)
		}
		diffs = append(diffs, r.unusable(&info.Config)...)
		infos[r.want.Name] = info
	}
	if len(diffs) > 0 {
		return nil, fmt.Errorf("%w: %s", errSettings, strings.Join(diffs, "; "))
	}
	return infos, nil
}

// Foreign refuses streams with the id of another installation, before anything else is looked at. What cannot
// be asked now is left to Setup. Error: ErrInstallation.
func (c *Conn) Foreign(ctx context.Context, config StreamConfig) error {
	if _, err := c.findStreams(ctx, config); errors.Is(err, ErrInstallation) {
		return err
	}
	return nil
}

// checkInstallation refuses a stream with the id of another installation.
func (config *StreamConfig) checkInstallation(info *jetstream.StreamInfo) error {
	if has := info.Config.Metadata[metaInstallation]; config.Installation != "" && has != "" && has != config.Installation {
		return fmt.Errorf("stream %s: %w: it is of %s, this one is %s (installations that share a NATS need different namespaces: --%s)",
			info.Config.Name, ErrInstallation, has, config.Installation, flagNamespace)
	}
	return nil
}

// ensure makes a stream of that size if it is missing, and otherwise changes in place what can be changed;
// the size only with resize. Other nodes may do the same at the same time.
func (c *Conn) ensure(ctx context.Context, config *StreamConfig, r *resource, bytes int64, resize bool) (*jetstream.StreamInfo, error) {
	for {
		stream, err := c.js.Stream(ctx, r.want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			want := r.want
			want.MaxBytes = bytes
			want.Metadata = r.metadata(config.Installation, newStreamID())
			stream, err = c.js.CreateStream(ctx, want)
			if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
				continue // another node was faster, with an identity of its own
			}
			if err == nil {
				c.log.Info("stream is made", "stream", r.want.Name, "bytes", bytes, "identity", streamID(stream.CachedInfo()))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", r.want.Name, withFlag(err))
		}
		info := stream.CachedInfo()
		if err := config.checkInstallation(info); err != nil {
			return nil, err
		}
		if diffs := r.unusable(&info.Config); len(diffs) > 0 {
			return nil, fmt.Errorf("%w: %s", errSettings, strings.Join(diffs, "; "))
		}
		changed, what := r.change(config, info, bytes, resize)
		if len(what) == 0 {
			return info, nil
		}
		if stream, err = c.js.UpdateStream(ctx, changed); err != nil {
			return nil, fmt.Errorf("stream %s: cannot change %s: %w", r.want.Name, strings.Join(what, ", "), withFlag(err))
		}
		c.log.Info("stream is changed", "stream", r.want.Name, "changes", strings.Join(what, ", "))
		return stream.CachedInfo(), nil
	}
}

// withFlag names the flag that asks for what NATS does not do.
func withFlag(err error) error {
	if code := apiCode(err); code == codeReplicas || code == codeNoPeers && !noStorage(err) {
		return fmt.Errorf("--%s: %w", flagReplicas, err)
	}
	return err
}

// identity returns the identity of a pair of task and control stream, as partitions' rows have it.
func identity(tasks, control *jetstream.StreamInfo) string {
	return streamID(tasks) + "/" + streamID(control)
}

// stream finds a stream and checks that it is of this installation. Errors: ErrNoStream, ErrInstallation.
func (c *Conn) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := c.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: %s", ErrNoStream, name)
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	if config := c.config.Load(); config != nil {
		if err := config.checkInstallation(stream.CachedInfo()); err != nil {
			return nil, err
		}
	}
	return stream, nil
}

// streamIDBytes is the length of an id that is derived.
const streamIDBytes = 16

// streamID returns the identity of a stream, which the node that made it drew. For a stream that a person
// made every node derives the same one.
func streamID(info *jetstream.StreamInfo) string {
	if id := info.Config.Metadata[metaStream]; id != "" {
		return id
	}
	sum := sha256.Sum256([]byte(info.Config.Name + "@" + info.Created.UTC().Format(time.RFC3339Nano)))
	return hex.EncodeToString(sum[:streamIDBytes])
}

// resource is one stream that Setup makes, or the stream of a bucket.
type resource struct {
	// want is its configuration; MaxBytes and Metadata are filled in when it is made.
	want jetstream.StreamConfig
	// bucket is its name as a bucket; empty: it is a stream.
	bucket string
	// kind is that of its outcomes.
	kind int
	// bytes is its size as configured; 0: share decides.
	bytes int64
	// flag is that of the size; empty: there is none.
	flag  string
	dir   string // as StreamConfig.Dir
	share share
	meta  map[string]string
	// guest is whether only other nodes may change it.
	guest bool
	// kept is whether nothing but Duly removes what it holds.
	kept bool
	// How many task streams there are to be; 0: it is not the one that says so.
	streams int
	// What is compared only where it was configured.
	replicas, age, window, partitions bool
}

// name returns the name of the stream, or of the bucket.
func (r *resource) name() string {
	if r.bucket != "" {
		return r.bucket
	}
	return r.want.Name
}

// metadata returns the metadata of a new stream.
func (r *resource) metadata(installation, id string) map[string]string {
	m := map[string]string{metaWire: strconv.Itoa(wire.Version), metaStream: id}
	maps.Copy(m, r.meta)
	if r.streams > 1 {
		m[metaTaskStreams] = strconv.Itoa(r.streams)
	}
	if installation != "" {
		m[metaInstallation] = installation
	}
	return m
}

// resources lists all streams and buckets. A guest does without the bucket of keys.
func (config StreamConfig) resources(names wire.Names) []*resource {
	partitions := cmp.Or(config.Partitions, defaultPartitions)
	eventsAge := cmp.Or(config.EventsAge, defaultEventsAge)
	window := cmp.Or(config.DuplicateWindow, defaultDuplicates)
	stream := func(kind int, name, about string, age time.Duration, discard jetstream.DiscardPolicy, flag string, bytes int64, share share, subjects ...string) *resource {
		return &resource{
			want: jetstream.StreamConfig{
				Name: name, Description: about, Subjects: subjects, Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage,
				Discard: discard, MaxAge: age, Duplicates: min(window, atLeast(age)), Replicas: cmp.Or(config.Replicas, 1),
				MaxMsgs: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1, MaxConsumers: -1,
			},
			kind: kind, bytes: bytes, flag: flag, share: share,
			replicas: config.Replicas != 0, window: config.DuplicateWindow != 0,
		}
	}
	queue := config.taskResources(names, partitions, func(kind int, name, about, flag string, bytes int64, share share, subjects ...string) *resource {
		r := stream(kind, name, about, 0, jetstream.DiscardNew, flag, bytes, share, subjects...)
		r.want.MaxConsumers = mostConsumers(partitions)
		r.age = true // none: what is accepted is read, however late
		return r
	})
	events := stream(kindEvents, names.StreamEvents(), "Duly: how tasks ended", eventsAge, jetstream.DiscardOld, FlagEventsBytes, config.EventsBytes, shareEvents, names.PatternEvents())
	dead := stream(kindDead, names.StreamDead(), "Duly: what could not be decoded", eventsAge, jetstream.DiscardOld, FlagDeadBytes, config.DeadBytes, shareDead, names.PatternDead())
	alerts := stream(kindAlerts, names.StreamAlerts(), "Duly: what operators must know", eventsAge, jetstream.DiscardOld, "", 0, share{least: alertsBytes, most: alertsBytes}, names.PatternAlerts())
	alerts.age = config.EventsAge != 0
	events.age, dead.age = config.EventsAge != 0, config.EventsAge != 0

	// The bucket has the time to live: that of a key is dropped by the first update.
	nodes := config.bucket(names.BucketNodes(), "Duly: leases", nodesBytes)
	nodes.kind = kindNodes
	nodes.want.MaxAge, nodes.age = cmp.Or(config.Lease, defaultLease), config.Lease != 0
	nodes.want.Duplicates = min(nodes.want.Duplicates, nodes.want.MaxAge)
	nodes.want.AllowMsgTTL, nodes.want.SubjectDeleteMarkerTTL = true, markerTTL
	keys := config.bucket(names.BucketKeys(), "Duly: keys of the schedulers, not for agents", keysBytes)
	states := config.bucket(names.BucketPartitions(), "Duly: how far each partition has come", partitionsBytes)
	all := append(queue, events, dead, alerts, nodes)
	if !config.Guest {
		all = append(all, keys)
	}
	all = append(all, states)
	for _, r := range all {
		r.guest = config.Guest
		if config.Dir != "" {
			r.flag, r.dir = "", config.Dir
		}
	}
	return all
}

// bucketWindow is the duplicate window that the library gives a bucket.
const bucketWindow = 2 * time.Minute

// bucket returns the stream of a bucket, configured as the library does it.
func (config *StreamConfig) bucket(name, about string, bytes int64) *resource {
	return &resource{
		want: jetstream.StreamConfig{
			Name: wire.BucketStream(name), Description: about, Subjects: []string{wire.BucketPattern(name)}, Retention: jetstream.LimitsPolicy,
			Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, Replicas: cmp.Or(config.Replicas, 1), Duplicates: bucketWindow,
			MaxMsgs: -1, MaxMsgsPerSubject: 1, MaxMsgSize: -1, MaxConsumers: -1, AllowRollup: true, DenyDelete: true, AllowDirect: true,
		},
		bucket: name, kind: kindNone, share: share{least: bytes, most: bytes}, replicas: config.Replicas != 0,
	}
}
