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
	// StreamOf is the name of the task stream that has a partition, told in answers; required. It
	// stays the same: a door asks once for each partition.
	StreamOf   func(partition int) string
	Partitions int // required
	// PartitionOf is the partition of an id among so many; required.
	PartitionOf func(id string, partitions int) int
	// SizeOf is how many bytes a submission takes in a pack; nil: an estimate
	// that is never too small for fields within their limits.
	SizeOf func(*core.Submission) int
	// CheckReplyTo refuses a private status subject; nil: every one is refused.
	CheckReplyTo func(subject string) error

	PackItems  int // submissions of one pack at most
	PackBytes  int // bytes of one pack at most, unless a single item is larger
	PayloadMax int // the server's max_payload in bytes

	// WindowMax is how long the oldest item of a pack waits for company under
	// load; the default is 2.5 ms for each partition, within 10 and 20. The
	// window is WindowMax × (unanswered − QuietItems) / BusyItems, within 0 and
	// WindowMax: by Little's law the unanswered items of a stream measure its
	// rate and its slowness at once.
	WindowMax  time.Duration
	QuietItems int
	BusyItems  int

	// FlightsMax is how many packs may wait for one stream before one that is not
	// full waits too: a stream syncs one after the other, so that sending more of
	// them sooner makes no answer come earlier, and what comes meanwhile fills them.
	FlightsMax int
	// Of the next two high submissions may use all, normal ones seven eighths, low ones half. Each stream has an equal
	// share of ItemsMax and BytesMax.
	ItemsMax   int           // unanswered requests at most; more are refused at once
	BytesMax   int64         // bytes of unanswered requests at most
	PublishMax time.Duration // how long the stream may take; after it the outcome counts as unknown

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

	UnknownMax  int           // requests of unknown types that wait for the plans, at most
	ReloadPause time.Duration // between two readings of the plans for the sake of unknown types
	ReloadMax   time.Duration // how long one reading may take

	// Taken is where to look whether an id is a task already, so that another input under
	// it is refused at once; nil: only the owner says so, after the acceptance.
	Taken       Taken
	RecentBytes int64         // memory for what was accepted here last, 24 bytes an id; at most 96 MiB of it are used
	RecentFor   time.Duration // how long ago that may be to be told from
	LooksMax    int           // submissions that wait for a look at the store, at most
	LookMax     time.Duration // how long one waits that differs from what was accepted under its id
	LookSpare   time.Duration // how long any other waits
	LookRest    time.Duration // how long no others wait after the store did not answer one
	LookItems   int           // with more unanswered requests no others wait
	LookRate    int           // others that wait in a second, at most
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

// packBytes is the size at which a pack is full.
func (c *Config) packBytes() int { return min(c.PackBytes, c.PayloadMax) - packHeadBytes }

// packHeadBytes is what a pack holds besides its items: the version byte.
const packHeadBytes = 1

// estimate bounds the packed size of a submission: eight length prefixes and
// numbers of at most ten bytes each.
func estimate(s *core.Submission) int {
	n := len(s.Type) + len(s.ID) + len(s.Input) + len(s.ReplyTo) + len(s.Trace) + 9*10
	for _, l := range s.Labels { // each with two lengths of a byte, and the first with how many there are
		n += len(l.Key) + len(l.Value) + 3
	}
	return n
}
