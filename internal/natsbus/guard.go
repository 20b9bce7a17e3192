package natsbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// Conditions of a stream that Trouble reports, besides ErrNoStream, ErrInstallation,
// errSettings, errOtherStream and ErrRewound.
var (
	// errFull: the stream refuses what is published until there is room.
	errFull = errors.New("stream is full")
	// ErrWrite: the stream met a write error and takes nothing until its server is
	// restarted.
	ErrWrite = errors.New("stream met a write error, its server must be restarted")
	// errSilent: the server does not answer for the stream.
	errSilent = errors.New("no answer about the stream")
)

// TroubleConnection is the name of a trouble of the connection.
const TroubleConnection = "connection"

// Trouble is a stream, a bucket or the connection that is not as it has to be.
type Trouble struct {
	Name  string // of the stream or the bucket, or TroubleConnection
	Since time.Time
	Err   error
	Fatal bool // only a restart helps: of the stream's server, or of this process for the connection
}

// How often Guard looks at the streams, and how long an answer may take.
const (
	guardEvery  = 2 * time.Second
	guardAnswer = 2 * time.Second
	guardSetup  = 15 * time.Second // for making what is missing
	refusalKept = 5 * time.Second  // how long a refusal counts although the stream has room
)

// fullPart: a stream that discards nothing counts as full when less than its bound divided by this is left.
const fullPart = 1000

// watched is what Guard found when it last looked.
type watched struct {
	mu       sync.Mutex
	troubles map[string]Trouble
	// ids are the streams' identities, ends their last sequences, begins when their first messages were
	// stored.
	ids    map[string]string
	ends   map[string]uint64
	begins map[string]core.Instant
	// removed is the record of what Duly has removed from each stream, as last read or written.
	removed map[string]removed
}

// set records a stream's trouble; nil: it has none. since is when it began, if that is known.
func (w *watched) set(name string, since time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		delete(w.troubles, name)
		return
	}
	if had, ok := w.troubles[name]; ok {
		since = had.Since
	}
	if since.IsZero() {
		since = time.Now()
	}
	if w.troubles == nil {
		w.troubles = map[string]Trouble{}
	}
	w.troubles[name] = Trouble{Name: name, Since: since, Err: err, Fatal: errors.Is(err, ErrWrite)}
}

// noteFound notes the streams that Setup found, if they are not known yet.
func (w *watched) noteFound(infos map[string]*jetstream.StreamInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ids == nil {
		w.ids, w.ends = map[string]string{}, map[string]uint64{}
	}
	for name, info := range infos {
		if w.ids[name] == "" {
			w.ids[name], w.ends[name] = streamID(info), info.State.LastSeq
		}
	}
}

// Trouble returns what is wrong, by name: the streams as Guard last found them, and the connection as it is
// now.
func (c *Conn) Trouble() []Trouble {
	c.watched.mu.Lock()
	all := make([]Trouble, 0, len(c.watched.troubles)+1)
	for _, t := range c.watched.troubles {
		all = append(all, t)
	}
	c.watched.mu.Unlock()
	if t, bad := c.connectionTrouble(); bad {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Trouble) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Guard looks at every stream and bucket of Setup, with one request each, until ctx ends. It makes again what
// is missing, and reports in Trouble what is wrong. It does nothing before there was a Setup, and logs
// nothing for each look.
func (c *Conn) Guard(ctx context.Context) {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for {
		c.guardOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// guardOnce looks at all streams once.
func (c *Conn) guardOnce(ctx context.Context) {
	config := c.config.Load()
	if config == nil || !c.Connected() {
		return
	}
	var missing []string
	for _, r := range config.resources(c.names) {
		err := c.inspect(ctx, config, r)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, ErrNoStream) {
			missing = append(missing, r.name())
		}
		if errors.Is(err, errSilent) {
			break // the others would not be answered for, either
		}
	}
	if len(missing) == 0 || config.Guest {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, guardSetup)
	defer cancel()
	if _, err := c.Setup(bounded, *config); err != nil && ctx.Err() == nil {
		for _, name := range missing {
			c.watched.set(name, time.Time{}, fmt.Errorf("%w, and cannot be made again: %w", ErrNoStream, err))
		}
	}
}

// inspect looks at one stream, records its trouble and returns it.
func (c *Conn) inspect(ctx context.Context, config *StreamConfig, r *resource) error {
	bounded, cancel := context.WithTimeout(ctx, guardAnswer)
	defer cancel()
	stream, err := c.js.Stream(bounded, r.want.Name)
	var since time.Time
	var seen *jetstream.StreamInfo
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		err = ErrNoStream
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		err = fmt.Errorf("%w: %w", errSilent, err)
		if !c.Connected() {
			return err // the connection's trouble
		}
	default:
		info := stream.CachedInfo()
		if err = config.checkInstallation(info); err != nil {
			c.recheck(r.want.Name) // its readers end
		} else if diffs := r.unusable(&info.Config); len(diffs) > 0 {
			err = fmt.Errorf("%w: %s", errSettings, diffs[0])
		}
		if moved := c.sinceLastLook(ctx, r, info); err == nil {
			err = moved
		}
		if err == nil {
			seen = info
			if r.kept && !r.guest {
				if cerr := c.noticeLoss(bounded, info); cerr != nil {
					c.log.Debug("cannot tell whether a stream lacks something", "error", cerr) // the next look does
				}
			}
			since, err = c.judgePublishing(bounded, r, stream)
		}
	}
	c.watched.noteBegin(r.want.Name, seen)
	c.watched.set(r.name(), since, err)
	return err
}

// sinceLastLook compares a stream with what the last look found. If it is another stream, or went back, its
// readers check at once whether it is still theirs, and what this node knows is written into buckets that
// were lost.
func (c *Conn) sinceLastLook(ctx context.Context, r *resource, info *jetstream.StreamInfo) error {
	name, id, end := r.want.Name, streamID(info), info.State.LastSeq
	w := &c.watched
	w.mu.Lock()
	hadID, hadEnd := w.ids[name], w.ends[name]
	w.ids[name], w.ends[name] = id, end
	w.mu.Unlock()
	var err error
	switch {
	case hadID != "" && hadID != id:
		err = fmt.Errorf("%w: it is %s, was %s", errOtherStream, id, hadID)
	case end < hadEnd:
		err = fmt.Errorf("%w: it ends at %d, ended at %d", ErrRewound, end, hadEnd)
	default:
		return nil
	}
	c.recheck(name)
	refill := c.useKey
	switch name {
	case wire.BucketStream(c.names.BucketKeys()):
	case wire.BucketStream(c.names.BucketPartitions()):
		refill = c.restoreRemoved
	default:
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, guardAnswer)
	defer cancel()
	if failed := refill(bounded); failed != nil {
		w.mu.Lock()
		w.ids[name] = hadID // the next look tries again
		w.mu.Unlock()
		return errors.Join(err, failed)
	}
	return err
}

// recheck makes the readers of a stream check whether it is still theirs.
func (c *Conn) recheck(stream string) {
	c.mu.Lock()
	readers := keys(c.readers)
	c.mu.Unlock()
	for _, r := range readers {
		if r.stream == stream {
			r.recheck()
		}
	}
}

// probeSubject is a subject that no message has: a purge of it removes nothing.
const probeSubject = "duly-probe"

// judgePublishing says why a stream does not accept messages, from the outcomes of publishing and its size;
// nil: it does. A failure that is older than refusalKept is forgotten if the stream has room.
func (c *Conn) judgePublishing(ctx context.Context, r *resource, stream jetstream.Stream) (since time.Time, err error) {
	info := stream.CachedInfo()
	room := info.Config.MaxBytes - int64(info.State.Bytes)
	full := r.want.Discard == jetstream.DiscardNew && info.Config.MaxBytes > 0 && room <= info.Config.MaxBytes/fullPart
	if r.kind == kindNone {
		if full {
			return since, fmt.Errorf("%w: %s of %s", errFull, Bytes(int64(info.State.Bytes)), Bytes(info.Config.MaxBytes))
		}
		return since, nil
	}
	o := &c.outcomes[r.kind]
	f := o.failed()
	switch code := apiCode(f.err); {
	case full || code == codeStoreFailed:
		if !full && time.Since(f.seen) > refusalKept {
			o.clear()
			return since, nil
		}
		help := ""
		switch {
		case r.flag != "":
			help = " (--" + r.flag + ")"
		case r.dir != "":
			help = ": make room on the disk of " + r.dir
		}
		return f.since, fmt.Errorf("%w: %s of %s%s", errFull, Bytes(int64(info.State.Bytes)), Bytes(info.Config.MaxBytes), help)
	case f.err == nil:
		return since, nil
	case f.unanswered > 0:
		// A stream with a write error does not answer what is published, and nothing
		// shows it but the answer to a request that would change its store. A guest may
		// not make one.
		if !r.guest {
			if perr := stream.Purge(ctx, jetstream.WithPurgeSubject(probeSubject)); apiCode(perr) != 0 {
				return f.since, fmt.Errorf("%w: %w", ErrWrite, perr)
			}
		}
		if time.Since(f.seen) > refusalKept {
			o.clear()
			return since, nil
		}
		return f.since, fmt.Errorf("%w: %w", errSilent, f.err)
	case time.Since(f.seen) > refusalKept:
		o.clear()
		return since, nil
	}
	return f.since, fmt.Errorf("stream takes nothing: %w", f.err)
}

// connectionTrouble reports a lost or closed connection.
func (c *Conn) connectionTrouble() (Trouble, bool) {
	if err := c.Closed(); err != nil {
		return Trouble{Name: TroubleConnection, Since: c.awaySince(), Err: err, Fatal: true}, true
	}
	if c.Connected() {
		return Trouble{}, false
	}
	err := c.nc.LastError()
	if err == nil {
		err = nats.ErrDisconnected
	}
	return Trouble{Name: TroubleConnection, Since: c.awaySince(), Err: err}, true
}

// awaySince returns when the connection was lost.
func (c *Conn) awaySince() time.Time {
	if at := c.away.Load(); at != nil {
		return *at
	}
	return time.Now() // lost this moment
}

// Closed says why the connection has ended for good; nil: it has not. Only a new process helps then. It is an
// error after Close, too.
func (c *Conn) Closed() error {
	if !c.nc.IsClosed() {
		return nil
	}
	if err := c.nc.LastError(); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return ErrClosed
}
