package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
)

// The defaults of Config.
const (
	DefaultPackItems    = 512
	defaultPackBytes    = 512 << 10
	defaultPayloadMax   = 1 << 20               // the server's own default
	defaultWindowMax    = 20 * time.Millisecond // for 8 partitions or more; each has its own pack to fill
	defaultWindowLeast  = 10 * time.Millisecond // the same for 4 or fewer
	defaultQuietItems   = 4
	defaultWindowPerAsk = 625 * time.Microsecond
	defaultFlightsMax   = 4
	DefaultItemsMax     = 32 << 10
	DefaultBytesMax     = 64 << 20
	defaultPublishMax   = 4 * time.Second
	defaultUnknownMax   = 1024
	defaultReloadPause  = 250 * time.Millisecond
	defaultReloadMax    = 3 * time.Second
	defaultRecentBytes  = 2 << 20 // 87,000 ids
	defaultRecentFor    = time.Minute
	defaultLooksMax     = 64
	DefaultLookMax      = 2 * time.Second
	defaultLookSpare    = 500 * time.Millisecond
	DefaultLookRest     = 5 * time.Second
	defaultLookItems    = 16
	defaultLookRate     = 200
	requestBytesBesides = 256 // memory of a request less its input and headers, roughly
)

// Config is how a door works. Zero fields take their defaults, except those
// that say otherwise.
type Config struct {
	// StreamOf is the name of the task stream that has a partition, told in answers; required. A door asks once
	// for each partition, so it must stay the same.
	StreamOf func(partition int) string
	// Partitions is how many there are; required.
	Partitions int
	// PartitionOf is the partition of an id among so many; required.
	PartitionOf func(id string, partitions int) int
	// SizeOf is how many bytes a submission takes in a pack; nil: an estimate
	// that is never too small for fields within their limits.
	SizeOf func(*core.Submission) int
	// CheckReplyTo refuses a private status subject; nil: every one is refused.
	CheckReplyTo func(subject string) error

	// PackItems is how many submissions a pack holds at most.
	PackItems int
	// PackBytes is how large a pack gets, unless one submission alone is larger.
	PackBytes int
	// PayloadMax is the max_payload of the NATS server, in bytes.
	PayloadMax int

	// WindowMax is how long the oldest item of a pack waits for company under
	// load; the default is 2.5 ms for each partition, within 10 and 20. The
	// window is WindowMax × (unanswered − QuietItems) / BusyItems, within 0 and
	// WindowMax: by Little's law the unanswered items of a stream measure its
	// rate and its slowness at once.
	WindowMax  time.Duration
	QuietItems int
	BusyItems  int

	// FlightsMax is how many packs of one stream may be unanswered before a pack that is not full waits. A
	// stream syncs one pack after the other: sending more of them sooner makes no answer come earlier, while
	// submissions that come meanwhile fill the pack.
	FlightsMax int
	// ItemsMax is how many requests may be unanswered; more are refused at once. Each stream has an equal
	// share of it and of BytesMax, and classShare divides that by priority.
	ItemsMax int
	// BytesMax is how many bytes those may have.
	BytesMax int64
	// PublishMax is how long the stream may take to store a pack. After that its submissions are answered as
	// unknown.
	PublishMax time.Duration

	// CheckInput says whether an input fits the input schema of a plan that has one; nil: it is not looked at.
	CheckInput func(plan *core.Plan, input []byte) error

	// Admit says why a submission of a plan, with so much time left, has less than tasks of the plan take; empty: it has
	// enough, or it is not known. It reads memory. nil: no one is asked.
	Admit func(now core.Instant, plan *core.Plan, left time.Duration) string
	// Needs is how long tasks of a plan take; 0: that is not known, or one is to be let in to learn it. It reads memory. nil: it
	// is not known of any.
	Needs func(plan *core.Plan) time.Duration

	// TenantLabel is the key of the label that names a submission's tenant; empty: all are of one. It is the scheduler's.
	TenantLabel string
	// Weights are what tenants share by while a queue is long; one that is not named has 1.
	Weights map[string]int

	// UnknownMax is how many requests of unknown types may wait for the plans to be read again.
	UnknownMax int
	// ReloadPause is the least time between two readings of the plans for unknown types.
	ReloadPause time.Duration
	// ReloadMax is how long a reading may take.
	ReloadMax time.Duration

	// Taken looks up whether an id is a task already, so that another input under it is refused at once. nil:
	// only the partition's owner finds out, after the submission was accepted.
	Taken Taken
	// RecentBytes is the memory for what was accepted here last, 24 bytes for each id; at most 96 MiB are
	// used.
	RecentBytes int64
	// RecentFor is for how long an accepted id counts as recent.
	RecentFor time.Duration
	// LooksMax is how many submissions may wait for a lookup.
	LooksMax int
	// LookMax is how long a submission waits for a lookup that has to be: one that differs from what was
	// accepted under its id.
	LookMax time.Duration
	// LookSpare is how long any other waits. Its lookup can be spared: it goes on without the answer.
	LookSpare time.Duration
	// LookRest is how long such lookups stop after the store did not answer one in time.
	LookRest time.Duration
	// LookItems is the number of unanswered requests above which there are no such lookups.
	LookItems int
	// LookRate is how many such lookups there may be in a second.
	LookRate int
}

// WithDefaults returns a copy in which every zero field has its default.
func (c Config) WithDefaults() Config {
	c.PackItems = cmp.Or(c.PackItems, DefaultPackItems)
	c.PackBytes = cmp.Or(c.PackBytes, defaultPackBytes)
	c.PayloadMax = cmp.Or(c.PayloadMax, defaultPayloadMax)
	c.WindowMax = cmp.Or(c.WindowMax, min(max(defaultWindowMax*time.Duration(c.Partitions)/8, defaultWindowLeast), defaultWindowMax))
	c.QuietItems = cmp.Or(c.QuietItems, defaultQuietItems)
	c.BusyItems = cmp.Or(c.BusyItems, max(1, int(c.WindowMax/defaultWindowPerAsk)))
	c.FlightsMax = cmp.Or(c.FlightsMax, defaultFlightsMax)
	c.ItemsMax = cmp.Or(c.ItemsMax, DefaultItemsMax)
	c.BytesMax = cmp.Or(c.BytesMax, DefaultBytesMax)
	c.PublishMax = cmp.Or(c.PublishMax, defaultPublishMax)
	c.UnknownMax = cmp.Or(c.UnknownMax, defaultUnknownMax)
	c.ReloadPause = cmp.Or(c.ReloadPause, defaultReloadPause)
	c.ReloadMax = cmp.Or(c.ReloadMax, defaultReloadMax)
	c.RecentBytes = cmp.Or(c.RecentBytes, defaultRecentBytes)
	c.RecentFor = cmp.Or(c.RecentFor, defaultRecentFor)
	c.LooksMax = cmp.Or(c.LooksMax, defaultLooksMax)
	c.LookMax = cmp.Or(c.LookMax, DefaultLookMax)
	c.LookSpare = cmp.Or(c.LookSpare, defaultLookSpare)
	c.LookRest = cmp.Or(c.LookRest, DefaultLookRest)
	c.LookItems = cmp.Or(c.LookItems, defaultLookItems)
	c.LookRate = cmp.Or(c.LookRate, defaultLookRate)
	if c.SizeOf == nil {
		c.SizeOf = estimate
	}
	if c.CheckReplyTo == nil {
		c.CheckReplyTo = func(string) error { return errNoReplyTo }
	}
	return c
}

var errNoReplyTo = errors.New("private status subjects are not configured here")

// Validate refuses a configuration that cannot work, naming the field.
func (c *Config) Validate() error {
	if c.StreamOf == nil {
		return errors.New("ingest: StreamOf is missing")
	}
	if c.PartitionOf == nil {
		return errors.New("ingest: PartitionOf is missing")
	}
	for _, n := range []struct {
		name string
		is   int64
	}{
		{"Partitions", int64(c.Partitions)}, {"PackItems", int64(c.PackItems)}, {"PackBytes", int64(c.PackBytes)},
		{"PayloadMax", int64(c.PayloadMax)}, {"WindowMax", int64(c.WindowMax)}, {"QuietItems", int64(c.QuietItems)},
		{"BusyItems", int64(c.BusyItems)}, {"FlightsMax", int64(c.FlightsMax)}, {"ItemsMax", int64(c.ItemsMax)}, {"BytesMax", c.BytesMax},
		{"PublishMax", int64(c.PublishMax)}, {"UnknownMax", int64(c.UnknownMax)},
		{"ReloadPause", int64(c.ReloadPause)}, {"ReloadMax", int64(c.ReloadMax)}, {"RecentBytes", c.RecentBytes}, {"RecentFor", int64(c.RecentFor)},
		{"LooksMax", int64(c.LooksMax)}, {"LookMax", int64(c.LookMax)}, {"LookSpare", int64(c.LookSpare)}, {"LookRest", int64(c.LookRest)},
		{"LookItems", int64(c.LookItems)}, {"LookRate", int64(c.LookRate)},
	} {
		if n.is < 1 {
			return fmt.Errorf("ingest: %s is %d, want 1 or more", n.name, n.is)
		}
	}
	return nil
}

// packBytes is how many bytes of submissions make a pack full.
func (c *Config) packBytes() int { return min(c.PackBytes, c.PayloadMax) - packHeadBytes }

// packHeadBytes is what a pack holds besides its items: the version byte.
const packHeadBytes = 1

// estimate is never less than the packed size of a submission: it counts ten bytes for each length and
// number.
func estimate(s *core.Submission) int {
	n := len(s.Type) + len(s.ID) + len(s.Input) + len(s.ReplyTo) + len(s.Trace) + 9*10
	for _, l := range s.Labels { // each with two lengths of a byte, and the first with how many there are
		n += len(l.Key) + len(l.Value) + 3
	}
	return n
}
