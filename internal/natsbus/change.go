package natsbus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// Change changes the number of task streams, from BeginChange to Finish. It works from the streams as they
// are, so a change that was cut off anywhere can be begun again, to the same number or another. While it is
// under way no scheduler takes a partition over, and a partition that moves takes no submission: submitters
// are told to come again.
//
// At every moment, whatever of a partition is unread is in one of two places: after its cursor in the stream
// that its row in the database names, or in the stream of the stream endpoint.
type Change struct {
	conn           *Conn
	installation   string
	to, partitions int
	// lanes are the task streams and the control streams.
	lanes [2]lane
	// in is the stream of the stream endpoint; nil: there is none.
	in jetstream.Stream
}

// lane is all task streams, or all control streams.
type lane struct {
	// bytes bounds all of them together; 0 or less: no bound.
	bytes   int64
	streams [wire.TaskStreamsMax]jetstream.Stream
	name    func(number int) string
	// all is the subject of all partitions, used when there is one stream.
	all string
	// open returns the subjects of one partition, used when there are several streams.
	open func(p int) []string
	// filter returns the subject that selects one partition's messages.
	filter func(p int) string
	// moved returns the subject under which a partition's messages are copied from another stream.
	moved func(p int) string
	// subjects returns what stream n of so many listens to when the change is finished.
	subjects func(n, of int) []string
}

// retiredBytes is how much larger than its content a stream is left that takes nothing any more.
const retiredBytes = mebibyte

// BeginChange finds the streams and marks the first one: from then on no node, whatever number of task
// streams it is configured for, starts or takes a partition over. Errors: ErrNoStream, ErrInstallation,
// errSettings if the streams are of another number of partitions.
func (c *Conn) BeginChange(ctx context.Context, installation string, to, partitions int) (*Change, error) {
	if to < 1 || to > wire.TaskStreamsMax || to > partitions {
		return nil, fmt.Errorf("task streams: %d, want 1 to %d, and at most partitions (%d)", to, wire.TaskStreamsMax, partitions)
	}
	ch := &Change{conn: c, installation: installation, to: to, partitions: partitions}
	ch.lanes = [2]lane{{
		name: c.names.StreamTasksAt, all: c.names.PatternPack(), open: c.names.TasksSubjects, filter: c.names.TasksPattern, moved: c.names.MovedTasks,
		subjects: func(n, of int) []string { return tasksSubjects(c.names, n, of, partitions) },
	}, {
		name: c.names.StreamControlAt, all: c.names.PatternControl(), open: func(p int) []string { return []string{c.names.ControlSubject(p)} },
		filter: c.names.ControlSubject, moved: c.names.MovedControl,
		subjects: func(n, of int) []string { return controlSubjects(c.names, n, of, partitions) },
	}}
	if err := ch.find(ctx); err != nil {
		return nil, err
	}
	return ch, ch.mark(ctx)
}

// find looks up every stream that there can be.
func (ch *Change) find(ctx context.Context) error {
	look := func(name string) (jetstream.Stream, error) {
		stream, err := ch.conn.js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", name, err)
		}
		return stream, (&StreamConfig{Installation: ch.installation}).checkInstallation(stream.CachedInfo())
	}
	var err error
	for i := range ch.lanes {
		l := &ch.lanes[i]
		for n := range l.streams {
			if l.streams[n], err = look(l.name(n)); err != nil {
				return err
			}
		}
		if l.streams[0] == nil {
			return fmt.Errorf("%w: %s, which a node with the role scheduler makes", ErrNoStream, l.name(0))
		}
	}
	has := ch.lanes[0].streams[0].CachedInfo().Config.Metadata[metaPartitions]
	if has != strconv.Itoa(ch.partitions) {
		return fmt.Errorf("%w: %s is of %s partitions, the database has %d", errSettings, ch.lanes[0].name(0), orNone(has), ch.partitions)
	}
	ch.in, err = look(ch.conn.names.StreamIn())
	return err
}

// mark notes in the first task stream's metadata that the change is under way, and what the streams' sizes
// were before it.
func (ch *Change) mark(ctx context.Context) error {
	first := ch.lanes[0].streams[0].CachedInfo().Config
	meta := maps.Clone(first.Metadata)
	from, _, on := strings.Cut(orOne(meta[metaTaskStreams]), changing)
	if !on || meta[metaTaskBytes] == "" {
		n, _ := strconv.Atoi(from) // what is no number counts as none: then only the first stream's size does
		for i := range ch.lanes {
			ch.lanes[i].bytes = ch.lanes[i].size(max(1, n))
		}
		meta[metaTaskBytes] = fmt.Sprint(ch.lanes[0].bytes, " ", ch.lanes[1].bytes)
	} else if _, err := fmt.Sscan(meta[metaTaskBytes], &ch.lanes[0].bytes, &ch.lanes[1].bytes); err != nil {
		return fmt.Errorf("stream %s: metadata %s is %q, want two sizes: %w", first.Name, metaTaskBytes, meta[metaTaskBytes], err)
	}
	meta[metaTaskStreams] = from + changing + strconv.Itoa(ch.to)
	first.Metadata = meta
	return ch.update(ctx, 0, 0, first)
}

// orOne returns the number of task streams by a stream's metadata: one, where nothing is written.
func orOne(s string) string {
	if s == "" {
		return "1"
	}
	return s
}

// size returns the bound of the first streams together; 0: one of them has none.
func (l *lane) size(streams int) (total int64) {
	for n := range min(streams, len(l.streams)) {
		if l.streams[n] == nil {
			continue
		}
		bytes := l.streams[n].CachedInfo().Config.MaxBytes
		if bytes <= 0 {
			return 0
		}
		total += bytes
	}
	return total
}

// update changes a stream's configuration.
func (ch *Change) update(ctx context.Context, lane, n int, to jetstream.StreamConfig) error {
	stream, err := ch.conn.js.UpdateStream(ctx, to)
	if err != nil {
		return fmt.Errorf("stream %s: %w", to.Name, err)
	}
	ch.lanes[lane].streams[n] = stream
	return nil
}

// Prepare stops the partitions that move where they were, and lets their new streams take what is copied to
// them.
func (ch *Change) Prepare(ctx context.Context) error {
	var open [2][wire.TaskStreamsMax][]int
	for i := range ch.lanes { // all are closed first: no subject may be of two streams
		l := &ch.lanes[i]
		for n := len(l.streams) - 1; n >= 0; n-- { // those that are not used any more become small first
			if l.streams[n] == nil {
				continue
			}
			open[i][n] = ch.stays(l, n, l.streams[n].CachedInfo().Config.Subjects)
			if err := ch.close(ctx, i, n, open[i][n]); err != nil {
				return err
			}
		}
	}
	for i := range ch.lanes {
		for n := range ch.to {
			if err := ch.admit(ctx, i, n, open[i][n]); err != nil {
				return err
			}
		}
	}
	return ch.openIn(ctx)
}

// stays returns the partitions that stream n has and keeps.
func (ch *Change) stays(l *lane, n int, subjects []string) []int {
	if n >= ch.to {
		return nil
	}
	var all []int
	for p := n; p < ch.partitions; p += ch.to {
		if slices.Contains(subjects, l.all) || slices.Contains(subjects, l.open(p)[0]) {
			all = append(all, p)
		}
	}
	return all
}

// of returns the subjects of partitions.
func (l *lane) of(partitions []int) (all []string) {
	for _, p := range partitions {
		all = append(all, l.open(p)...)
	}
	return all
}

// close leaves a stream listening only to the partitions that it keeps.
func (ch *Change) close(ctx context.Context, lane, n int, open []int) error {
	l := &ch.lanes[lane]
	info := l.streams[n].CachedInfo()
	to := info.Config
	to.Subjects, to.SubjectTransform = l.of(open), nil
	if len(open) == 0 {
		to.Subjects = []string{ch.conn.names.RetiredSubject(to.Name)}
	}
	if holds := 2 * int64(info.State.Bytes); n >= ch.to && to.MaxBytes > holds+retiredBytes {
		to.MaxBytes = holds + retiredBytes
	} else if n < ch.to && l.bytes > 0 {
		to.MaxBytes = max(l.bytes/int64(ch.to), holds)
	}
	err := ch.update(ctx, lane, n, to)
	if was := info.Config.MaxBytes; noStorage(err) && to.MaxBytes > was { // it grows when others are empty
		to.MaxBytes = was
		err = ch.update(ctx, lane, n, to)
	}
	return err
}

// admit makes a stream if it is missing, and lets it take what is copied to it.
func (ch *Change) admit(ctx context.Context, lane, n int, open []int) error {
	l := &ch.lanes[lane]
	subjects := l.of(open)
	for p := n; p < ch.partitions; p += ch.to {
		subjects = append(subjects, l.moved(p))
	}
	source, destination := ch.conn.names.MovedTransform()
	transform := &jetstream.SubjectTransformConfig{Source: source, Destination: destination}
	if l.streams[n] != nil {
		to := l.streams[n].CachedInfo().Config
		to.Subjects, to.SubjectTransform = subjects, transform
		return ch.update(ctx, lane, n, to)
	}
	to := ch.like(l.streams[0].CachedInfo().Config, l.name(n))
	to.Subjects, to.SubjectTransform = subjects, transform
	if l.bytes > 0 {
		to.MaxBytes = l.bytes / int64(ch.to)
	}
	return ch.create(ctx, to, func(s jetstream.Stream) { l.streams[n] = s })
}

// like returns the configuration of a new stream that resembles an existing one.
func (ch *Change) like(one jetstream.StreamConfig, name string) jetstream.StreamConfig {
	one.Name = name
	meta := map[string]string{metaWire: one.Metadata[metaWire], metaStream: newStreamID()}
	for _, key := range []string{metaInstallation, metaPartitions} {
		if v := one.Metadata[key]; v != "" {
			meta[key] = v
		}
	}
	one.Metadata = meta
	return one
}

// create makes a stream.
func (ch *Change) create(ctx context.Context, config jetstream.StreamConfig, made func(jetstream.Stream)) error {
	stream, err := ch.conn.js.CreateStream(ctx, config)
	if err != nil {
		return fmt.Errorf("stream %s of %s: %w", config.Name, Bytes(config.MaxBytes), err)
	}
	made(stream)
	return nil
}

// openIn opens the stream of the stream endpoint if there will be several task streams, and closes it if
// there will be one.
func (ch *Change) openIn(ctx context.Context) error {
	names := ch.conn.names
	subjects := []string{names.PatternIn()}
	if ch.to == 1 {
		subjects = []string{names.RetiredSubject(names.StreamIn())}
	}
	switch {
	case ch.in == nil && ch.to == 1:
		return nil
	case ch.in == nil:
		to := ch.like(ch.lanes[0].streams[0].CachedInfo().Config, names.StreamIn())
		to.Description, to.Subjects, to.Retention = aboutIn, subjects, jetstream.WorkQueuePolicy
		to.SubjectTransform = &jetstream.SubjectTransformConfig{Source: names.PatternIn(), Destination: names.TasksTransform(ch.partitions)}
		if to.MaxBytes > 0 {
			to.MaxBytes = max(shareIn.least, to.MaxBytes/inPart)
		}
		return ch.create(ctx, to, func(s jetstream.Stream) { ch.in = s })
	}
	to := ch.in.CachedInfo().Config
	to.Subjects = subjects
	stream, err := ch.conn.js.UpdateStream(ctx, to)
	if err != nil {
		return fmt.Errorf("stream %s: %w", to.Name, err)
	}
	ch.in = stream
	return nil
}

// inPart: the stream of the stream endpoint is a task stream's size divided by this.
const inPart = 10

// Finish opens every partition in its stream, removes the streams that are no longer used and whose messages
// are older than keep, and ends the change. left names unused streams that are kept: a restored database
// would read them.
func (ch *Change) Finish(ctx context.Context, keep time.Duration) (left []string, err error) {
	if ch.to == 1 && ch.in != nil {
		if err := ch.emptyIn(ctx); err != nil {
			return nil, err
		}
	}
	var ids []string
	for i := range ch.lanes {
		l := &ch.lanes[len(ch.lanes)-1-i] // the first task stream is the last: it holds the mark
		for n := len(l.streams) - 1; n >= 0; n-- {
			if l.streams[n] == nil {
				continue
			}
			is, err := ch.finish(ctx, len(ch.lanes)-1-i, n, ids, keep)
			if err != nil {
				return nil, err
			}
			if is != nil && l == &ch.lanes[0] {
				ids = append(ids, streamID(is))
			}
			if is != nil && n >= ch.to {
				left = append(left, is.Config.Name)
			}
		}
	}
	slices.Sort(left)
	return left, nil
}

// finish finishes one stream. It returns nil if the stream is removed. ids are those of the other task
// streams.
func (ch *Change) finish(ctx context.Context, lane, n int, ids []string, keep time.Duration) (*jetstream.StreamInfo, error) {
	l := &ch.lanes[lane]
	if n >= ch.to {
		info, err := l.streams[n].Info(ctx)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", l.name(n), err)
		}
		if info.State.Msgs > 0 && time.Since(info.State.LastTime) < keep {
			return info, nil
		}
		if err := ch.conn.js.DeleteStream(ctx, l.name(n)); err != nil {
			return nil, fmt.Errorf("stream %s: %w", l.name(n), err)
		}
		return nil, nil
	}
	names := ch.conn.names
	to := l.streams[n].CachedInfo().Config
	to.Subjects, to.SubjectTransform = l.subjects(n, ch.to), nil
	if lane == 0 && n == 0 {
		to.Metadata = maps.Clone(to.Metadata)
		delete(to.Metadata, metaTaskBytes)
		delete(to.Metadata, metaTaskStreams)
		to.Metadata[metaTaskIDs] = strings.Join(append(ids, streamID(l.streams[n].CachedInfo())), ",")
		if ch.to > 1 {
			to.Metadata[metaTaskStreams] = strconv.Itoa(ch.to)
		} else {
			to.SubjectTransform = &jetstream.SubjectTransformConfig{Source: names.PatternIn(), Destination: names.TasksTransform(ch.partitions)}
		}
	}
	if err := ch.update(ctx, lane, n, to); err != nil {
		return nil, err
	}
	return l.streams[n].CachedInfo(), nil
}

// MovedPartition is what Move did for one partition.
type MovedPartition struct {
	// Claim is whether the partition's row has to be taken over, because its cursors belong to other streams
	// now.
	Claim bool
	// Stream identifies the partition's streams now, for core.Claim.
	Stream string
	// Begin and ControlBegin are where the cursors begin there.
	Begin        uint64
	ControlBegin uint64
	// Messages counts what was copied.
	Messages int
}

// Move copies what is unread of a partition into its new streams. st is the partition's row in the database;
// if it names none of the streams, everything in them counts as unread.
func (ch *Change) Move(ctx context.Context, st *core.PartitionState) (MovedPartition, error) {
	home := wire.TaskStreamOf(st.Partition, ch.to)
	done := MovedPartition{Stream: identity(ch.lanes[0].streams[home].CachedInfo(), ch.lanes[1].streams[home].CachedInfo())}
	begins := [2]*uint64{&done.Begin, &done.ControlBegin}
	for i, cursor := range [2]uint64{st.Cursor, st.ControlCursor} {
		l := &ch.lanes[i]
		at := l.numberOf(laneID(st.Stream, i))
		if at == home {
			continue
		}
		end, err := l.streams[home].Info(ctx)
		if err != nil {
			return done, fmt.Errorf("stream %s: %w", l.name(home), err)
		}
		if at >= 0 {
			done.Claim, *begins[i] = true, end.State.LastSeq
		}
		for n, stream := range l.streams {
			if stream == nil || n == home || at >= 0 && n != at {
				continue
			}
			after := cursor
			if at < 0 {
				after = 0
			}
			moved, err := ch.copy(ctx, i, stream, st.Partition, after)
			done.Messages += moved
			if err != nil {
				return done, fmt.Errorf("partition %d from %s to %s: %w", st.Partition, l.name(n), l.name(home), err)
			}
		}
	}
	return done, nil
}

// laneID returns the part of a row's stream identity that is of the task stream (lane 0) or of the control
// stream.
func laneID(row string, lane int) string {
	tasks, control, _ := strings.Cut(row, "/")
	if lane == 0 {
		return tasks
	}
	return control
}

// numberOf returns which stream has an identity; -1: none.
func (l *lane) numberOf(id string) int {
	return slices.IndexFunc(l.streams[:], func(s jetstream.Stream) bool { return s != nil && id != "" && streamID(s.CachedInfo()) == id })
}
