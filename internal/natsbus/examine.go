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
	Name     string
	Flag     string // of the setting for its size; empty: it has none
	Missing  bool
	Foreign  error    // ErrInstallation: it is of another installation
	Differs  []string // settings that it cannot be used with
	Bytes    int64    // that it has
	MaxBytes int64    // that it may have; 0 or less: no bound
	WantMax  int64    // as configured; 0: as NATS has room
	Copies   int      // replicas that it should have
	Lagging  []Replica
	Err      error // it could not be looked at
	Write    error // it takes nothing
}

// Replica is a copy of a stream that is not up to date.
type Replica struct {
	Server  string
	Offline bool
	Lag     uint64        // messages behind
	Active  time.Duration // since it was last heard
}

// String says what is wrong with the copy.
func (r Replica) String() string {
	if r.Offline {
		return fmt.Sprintf("%s is away, %d messages behind", r.Server, r.Lag)
	}
	return fmt.Sprintf("%s is %d messages behind", r.Server, r.Lag)
}

// lagMost is how many messages a copy may be behind, and quietMost how long it may not have been heard: more is no
// matter of the moment.
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
			e.Foreign, e.Differs = config.checkInstallation(info), r.refusals(&info.Config)
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

// probeWrite makes a request that would change the store of a stream, and removes nothing. A server without room, or a
// stream that met a write error, refuses it.
func probeWrite(ctx context.Context, stream jetstream.Stream) error {
	if err := stream.Purge(ctx, jetstream.WithPurgeSubject(probeSubject)); apiCode(err) != 0 {
		return fmt.Errorf("%w: %w", ErrWrite, err)
	}
	return nil
}

// lagging are the copies that are not up to date.
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

// Offered is what the account may still reserve for streams, in bytes of each copy; less than 0: it has no limit.
func (c *Conn) Offered(ctx context.Context, replicas int) (int64, error) {
	o, err := c.offers(ctx, cmp.Or(replicas, 1))
	return o.free, err
}

// NewEnough reports whether Duly works with a server of a version.
func NewEnough(version string) bool { return newEnough(version) }

// ServerVersion is the version of the server that the connection is to.
func (c *Conn) ServerVersion() string { return c.nc.ConnectedServerVersion() }
