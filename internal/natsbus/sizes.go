package natsbus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/wire"
)

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30
)

// share is a stream's part of the storage that NATS offers, if its size is not configured.
type share struct {
	percent int64
	// most bounds it, however much there is.
	most int64
	// least is the size below which a node does not start.
	least int64
}

// The shares leave about a tenth free, for whatever else the account has.
var (
	shareTasks   = share{percent: 60, most: 10 * gibibyte, least: 32 * mebibyte}
	shareEvents  = share{percent: 20, most: 4 * gibibyte, least: 16 * mebibyte}
	shareControl = share{percent: 5, most: gibibyte, least: 4 * mebibyte}
	shareIn      = share{percent: 2, most: gibibyte, least: 4 * mebibyte}
	shareDead    = share{percent: 5, most: gibibyte, least: 4 * mebibyte}
)

// The most bytes that the buckets and the stream of alerts may have. A bucket needs a few hundred for each node or partition;
// the stream has room for some ten thousand alerts.
const (
	alertsBytes     = 16 * mebibyte
	nodesBytes      = 16 * mebibyte
	keysBytes       = mebibyte
	partitionsBytes = 16 * mebibyte
)

// Error codes of JetStream.
const (
	codeNoPeers        = 10005 // "no suitable peers for placement": of a cluster, for one of many reasons
	codeStreams        = 10027 // maximum number of streams reached
	codeMemory         = 10028 // insufficient memory resources available
	codeStorage        = 10047 // insufficient storage resources available
	codeStoreFailed    = 10077 // the message was not stored: full, mostly
	codeInsufficient   = 10023 // insufficient resources: the server's storage is used up
	codeReplicas       = 10074 // replicas > 1 without a cluster
	codeMaxStreamBytes = 10122 // of one stream, by the account
)

// offer is the storage that NATS has for streams.
type offer struct {
	// free is how many bytes streams may still reserve, of each replica; -1: the account has no limit.
	free int64
	// mostStream bounds one stream; -1: no limit.
	mostStream int64
	// streams is how many the account may have, has how many it has; -1: no limit.
	streams int
	has     int
}

// accountInfo is the answer of $JS.API.INFO, with what the library leaves out.
type accountInfo struct {
	accountTier
	Tiers map[string]accountTier `json:"tiers"`
	Error *wire.APIError         `json:"error"`
}

// accountTier is the use and the limits of an account, or of its streams with a certain number of replicas. A
// limit that is not above 0 is none, but for MaxStorage, of which -1 is.
type accountTier struct {
	Storage  int64 `json:"storage"`
	Reserved int64 `json:"reserved_storage"`
	Streams  int   `json:"streams"`
	Limits   struct {
		MaxStorage int64 `json:"max_storage"`
		MaxStreams int   `json:"max_streams"`
		MostStream int64 `json:"storage_max_stream_bytes"`
	} `json:"limits"`
}

// offers asks what NATS has. A server does not tell its clients its total: if the account has no limit, only
// trying shows how much there is.
func (c *Conn) offers(ctx context.Context, replicas int) (offer, error) {
	msg, err := c.nc.RequestWithContext(ctx, "$JS.API.INFO", nil)
	if err != nil {
		return offer{}, fmt.Errorf("account: %w", err)
	}
	var info accountInfo
	if err := json.Unmarshal(msg.Data, &info); err != nil {
		return offer{}, fmt.Errorf("account: %w", err)
	}
	if info.Error != nil {
		return offer{}, fmt.Errorf("account: %w", info.Error)
	}
	tier, copies := info.accountTier, int64(max(1, replicas))
	if t, ok := info.Tiers[fmt.Sprintf("R%d", replicas)]; ok {
		tier, copies = t, 1 // the limits of a tier are before replication
	}
	o := offer{free: -1, mostStream: -1, streams: -1, has: tier.Streams}
	if tier.Limits.MaxStorage >= 0 {
		o.free = max(0, tier.Limits.MaxStorage-max(tier.Reserved, tier.Storage)) / copies
	}
	if tier.Limits.MostStream > 0 {
		o.mostStream = tier.Limits.MostStream
	}
	if tier.Limits.MaxStreams > 0 {
		o.streams = tier.Limits.MaxStreams
	}
	return o, nil
}

// size returns how large a stream should be, after NATS has refused halved times. ours is what our streams
// have already.
func (r *resource) size(o offer, ours int64, halved int) int64 {
	if r.bytes > 0 {
		return r.bytes
	}
	n := r.share.most
	if r.share.percent > 0 && o.free >= 0 {
		n = min(n, (o.free+ours)*r.share.percent/100)
	}
	if o.mostStream > 0 {
		n = min(n, o.mostStream)
	}
	if r.share.percent == 0 {
		return n
	}
	return max(n>>min(halved, 62), r.share.least)
}

// resize reports whether an existing stream should have another size, and which: the configured one; that of
// its share, if it has no bound; or less, if NATS has no room for the others, but never less than twice what
// it holds.
func (r *resource) resize(info *jetstream.StreamInfo, size int64, halved int) (int64, bool) {
	have, holds := info.Config.MaxBytes, 2*int64(info.State.Bytes)
	switch {
	case r.bytes > 0:
		return r.bytes, have != r.bytes
	case have <= 0:
		return max(size, holds), true
	case halved > 0 && r.share.percent > 0 && max(size, holds) < have:
		return max(size, holds), true
	}
	return have, false
}

// fit makes or changes all streams, with sizes for which NATS has room. infos holds those that exist, and
// afterwards all of them.
func (c *Conn) fit(ctx context.Context, config StreamConfig, infos map[string]*jetstream.StreamInfo) error {
	list := config.resources(c.names)
	o, err := c.offers(ctx, cmp.Or(config.Replicas, 1))
	if err != nil {
		return err
	}
	if missing := len(list) - len(infos); o.streams >= 0 && o.has+missing > o.streams {
		return fmt.Errorf("%d streams are to be made, buckets included, and the account may have %d and has %d: raise its max_streams to %d or more",
			missing, o.streams, o.has, o.has+missing)
	}
	var ours int64
	for _, info := range infos {
		ours += max(0, info.Config.MaxBytes)
	}
	for halved := 0; ; halved++ {
		r, err := c.tryFit(ctx, &config, list, infos, o, ours, halved)
		if err == nil {
			if halved > 0 {
				c.log.Warn("NATS has less storage than the streams would have by default; they are smaller", "sizes", sizes(list, infos))
			}
			return nil
		}
		if !noStorage(err) {
			return err
		}
		if !c.canShrink(list, infos, o, ours, halved) {
			return r.noRoomError(list, infos, r.size(o, ours, halved), o, err)
		}
	}
}

// tryFit makes or changes all streams with one set of sizes. On an error it returns the stream that failed.
func (c *Conn) tryFit(ctx context.Context, config *StreamConfig, list []*resource, infos map[string]*jetstream.StreamInfo, o offer, ours int64, halved int) (*resource, error) {
	// What exists goes first: it may become smaller and make room.
	for _, exists := range []bool{true, false} {
		for _, r := range list {
			have := infos[r.want.Name]
			if (have != nil) != exists {
				continue
			}
			bytes, resize := r.size(o, ours, halved), false
			if have != nil {
				bytes, resize = r.resize(have, bytes, halved)
			}
			info, err := c.ensure(ctx, config, r, bytes, resize)
			if err != nil {
				return r, err
			}
			infos[r.want.Name] = info
		}
	}
	return nil, nil
}

// canShrink reports whether halving once more changes any size.
func (c *Conn) canShrink(list []*resource, infos map[string]*jetstream.StreamInfo, o offer, ours int64, halved int) bool {
	for _, r := range list {
		now, next := r.size(o, ours, halved), r.size(o, ours, halved+1)
		info := infos[r.want.Name]
		if info == nil {
			if next < now {
				return true
			}
			continue
		}
		if to, resize := r.resize(info, next, halved+1); resize && to < info.Config.MaxBytes {
			return true
		}
	}
	return false
}

// noStorage reports whether NATS has no room for a stream of that size.
func noStorage(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode {
	case codeStorage, codeMaxStreamBytes:
		return true
	case codeNoPeers:
		return strings.Contains(api.Description, "storage")
	}
	return false
}

// noRoomError says which stream wanted how much, what there is, and what helps.
func (r *resource) noRoomError(list []*resource, infos map[string]*jetstream.StreamInfo, wants int64, o offer, cause error) error {
	flags := "--" + r.flag
	if r.flag == "" || r.bytes == 0 {
		var all []string
		for _, other := range list {
			if other.flag != "" {
				all = append(all, "--"+other.flag)
			}
		}
		flags = strings.Join(all, ", ")
	}
	help := "Give NATS more (max_file_store of the server, max_file of the account) or a stream less (" + flags + ")"
	if r.dir != "" {
		help = "Make room on the disk of " + r.dir + ""
	}
	offered := "less than that, without saying how much"
	switch {
	case o.mostStream > 0 && o.mostStream < wants:
		offered = fmt.Sprintf("at most %s a stream", Bytes(o.mostStream))
	case o.free >= 0:
		offered = Bytes(o.free)
	}
	return fmt.Errorf("stream %s: %w: it wants %s, NATS offers %s; the streams have: %s. %s: %w",
		r.want.Name, errStorage, Bytes(wants), offered, sizes(list, infos), help, cause)
}

// sizes lists the existing streams with their sizes.
func sizes(list []*resource, infos map[string]*jetstream.StreamInfo) string {
	var all []string
	for _, r := range list {
		if info := infos[r.want.Name]; info != nil {
			all = append(all, r.want.Name+" "+Bytes(info.Config.MaxBytes))
		}
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// Bytes formats a size for people.
func Bytes(n int64) string {
	switch {
	case n < 0:
		return "no bound"
	case n >= gibibyte:
		return fmt.Sprintf("%.1f GiB", float64(n)/gibibyte)
	case n >= mebibyte:
		return fmt.Sprintf("%.1f MiB", float64(n)/mebibyte)
	}
	return fmt.Sprintf("%d bytes", n)
}
