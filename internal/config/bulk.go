package config

import (
	"fmt"
	"time"
)

// Bulk bounds bulk submissions over HTTP.
type Bulk struct {
	BulkRequests  int           `name:"bulk-requests" env:"DULY_BULK_REQUESTS" default:"16" help:"Bulk submissions that a node reads at a time. 0: the default."`
	BulkLines     int64         `name:"bulk-lines" env:"DULY_BULK_LINES" default:"1000000" help:"Lines of one bulk submission. 0: the default."`
	BulkBytes     int64         `name:"bulk-bytes" env:"DULY_BULK_BYTES" default:"1073741824" help:"Bytes of one bulk submission. 0: the default, 1 GiB."`
	BulkLineBytes int           `name:"bulk-line-bytes" env:"DULY_BULK_LINE_BYTES" default:"270336" help:"Bytes of one of its lines. 0: the default: the largest input and 8 KiB."`
	BulkInFlight  int           `name:"bulk-in-flight" env:"DULY_BULK_IN_FLIGHT" default:"1024" help:"Lines of one bulk submission that are not answered yet: no more are read before. 0: the default."`
	BulkHeldBytes int64         `name:"bulk-held-bytes" env:"DULY_BULK_HELD_BYTES" default:"33554432" help:"Answers of all bulk submissions of a node that their clients have not taken yet, in bytes. 0: the default, 32 MiB: some 200,000 lines."`
	BulkWait      time.Duration `name:"bulk-wait" env:"DULY_BULK_WAIT" default:"30s" help:"How long a line waits while there is no room for it; then it failed. 0: the default."`
}

// Limits of bulk submissions.
const (
	bulkRequestsMax = 1024
	bulkLinesMax    = 1_000_000_000
	bulkBytesMax    = 1 << 40
	bulkLineMin     = 1 << 10
	bulkLineMax     = 2 << 20
	bulkInFlightMax = 32 << 10
	bulkHeldMin     = 64 << 10
	bulkHeldMax     = 4 << 30
	bulkWaitMin     = 10 * time.Millisecond
	bulkWaitMax     = time.Hour
)

// validate refuses what cannot work, by name, value and limit.
func (c *Bulk) validate() error {
	for _, n := range []struct {
		name             string
		is, least, limit int64
	}{
		{"bulk-requests", int64(c.BulkRequests), 1, bulkRequestsMax}, {"bulk-lines", c.BulkLines, 1, bulkLinesMax}, {"bulk-bytes", c.BulkBytes, 1, bulkBytesMax},
		{"bulk-line-bytes", int64(c.BulkLineBytes), bulkLineMin, bulkLineMax}, {"bulk-in-flight", int64(c.BulkInFlight), 1, bulkInFlightMax},
		{"bulk-held-bytes", c.BulkHeldBytes, bulkHeldMin, bulkHeldMax},
	} {
		if n.is != 0 && (n.is < n.least || n.is > n.limit) {
			return fmt.Errorf("%s: %d, want 0 (the default), or %d to %d", n.name, n.is, n.least, n.limit)
		}
	}
	if c.BulkWait != 0 && (c.BulkWait < bulkWaitMin || c.BulkWait > bulkWaitMax) {
		return fmt.Errorf("bulk-wait: %v, want 0 (the default), or %v to %v", c.BulkWait, bulkWaitMin, bulkWaitMax)
	}
	return nil
}
