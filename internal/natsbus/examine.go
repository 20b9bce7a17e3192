package natsbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Examined is a stream or a bucket as [Conn.Examine] found it.
type Examined struct {
	Name string
	// Flag is the setting for its size; empty: there is none.
	Flag    string
	Missing bool
	// Foreign is ErrInstallation if it belongs to another installation.
	Foreign error
	// Differs lists settings with which it cannot be used.
	Differs []string
	Bytes   int64 // that it has
	// MaxBytes is its bound; 0 or less: none. WantMax is the configured one; 0: as much as NATS has room for.
	MaxBytes int64
	WantMax  int64
	// Copies is how many replicas it should have; Lagging are those that are not up to date.
	Copies  int
	Lagging []Replica
	// Err says why it could not be looked at, Write why it does not accept messages.
	Err   error
	Write error
}

// Replica is a copy of a stream that is not up to date.
type Replica struct {
	Server  string
	Offline bool
	// Lag is how many messages it is behind.
	Lag uint64
	// Active is how long ago it was last heard.
	Active time.Duration
}

// String says what is wrong with the replica.
func (r Replica) String() string {
	if r.Offline {
		return fmt.Sprintf("%s is away, %d messages behind", r.Server, r.Lag)
	}
	return fmt.Sprintf("%s is %d messages behind", r.Server, r.Lag)
}

// A replica may be lagMost messages behind, and silent for quietMost, before it is reported: less is normal for a moment.
const (
	lagMost   = 1000
	quietMost = 10 * time.Second
)

// Examine looks at every stream and bucket of a configuration and changes nothing. It compares them as Setup does. Error:
// NATS does not answer.
func (c *Conn) Examine(ctx context.Context, config StreamConfig) ([]Examined, error) {
	var all []Examined
	for _, r := range config.resources(c.names) {
		e := Examined{Name: r.name(), Flag: r.flag, WantMax: r.bytes, Copies: cmp.Or(config.Replicas, 1)}
		asking, end := c.UntilDenied(ctx, "$JS.API.STREAM.INFO."+r.want.Name)
		stream, err := c.js.Stream(asking, r.want.Name)
		err = end(err)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			e.Missing = true
		case err != nil && ctx.Err() != nil:
			return all, fmt.Errorf("stream %s: %w", r.want.Name, err)
		case err != nil:
			e.Err = err
		default:
			info := stream.CachedInfo()
			e.Foreign, e.Differs = config.checkInstallation(info), r.unusable(&info.Config)
			e.Bytes, e.MaxBytes, e.Copies = int64(info.State.Bytes), info.Config.MaxBytes, max(1, info.Config.Replicas)
			e.Lagging = lagging(info.Cluster)
			if !r.guest && r.kind != kindNone && !info.Config.Sealed && !info.Config.DenyPurge && info.Config.Mirror == nil {
				e.Write = probeWrite(ctx, stream)
			}
		}
		all = append(all, e)
	}
	return all, nil
}

// probeWrite asks for a purge that removes nothing. A server without room, or a stream that met a write
// error, refuses it.
func probeWrite(ctx context.Context, stream jetstream.Stream) error {
	if err := stream.Purge(ctx, jetstream.WithPurgeSubject(probeSubject)); apiCode(err) != 0 {
		return fmt.Errorf("%w: %w", ErrWrite, err)
	}
	return nil
}

// lagging returns the replicas that are not up to date.
func lagging(cluster *jetstream.ClusterInfo) []Replica {
	if cluster == nil {
		return nil
	}
	var all []Replica
	for _, p := range cluster.Replicas {
		if p.Offline || p.Lag > lagMost || !p.Current && p.Active > quietMost {
			all = append(all, Replica{Server: p.Name, Offline: p.Offline, Lag: p.Lag, Active: p.Active})
		}
	}
	return all
}

// Offered returns how many bytes the account may still reserve for streams, of each replica; below 0: it has
// no limit.
func (c *Conn) Offered(ctx context.Context, replicas int) (int64, error) {
	o, err := c.offers(ctx, cmp.Or(replicas, 1))
	return o.free, err
}

// NewEnough reports whether Duly works with a server of a version.
func NewEnough(version string) bool { return newEnough(version) }

// ServerVersion is the version of the server that the connection is to.
func (c *Conn) ServerVersion() string { return c.nc.ConnectedServerVersion() }
