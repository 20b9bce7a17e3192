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

// Change is a change of the number of task streams, from BeginChange to Finish. It acts on
// the streams as they are, so one that was cut off anywhere is begun again, to the same number or to
// another one. While it is on no scheduler takes a partition over, and a partition that moves
// takes no submission: its submitters are told to come again.
//
// Everything of a partition that is unread is, at every moment, in the stream that its row in
// the database names after the cursor there, or in that of the stream endpoint.
type Change struct {
	conn           *Conn
	installation   string
	to, partitions int
	lanes          [2]lane // tasks, control
	door           jetstream.Stream
}

// lane is all task streams, or all control streams.
type lane struct {
	bytes    int64 // of all together; 0 or less: no bound
	streams  [wire.TaskStreamsMax]jetstream.Stream
	name     func(number int) string
	all      string                   // the subject of all partitions, where there is one stream
	open     func(p int) []string     // those of one, where there are several
	filter   func(p int) string       // selects what it holds of one
	moved    func(p int) string       // takes what comes of one from another stream
	subjects func(n, of int) []string // in the end
}

// retiredBytes is what a stream that takes nothing any more may have beyond what it holds.
const retiredBytes = mebibyte

// BeginChange finds the streams and marks that their number is being changed: from then on
// no node of either number starts or takes a partition over. Errors: ErrNoStream,
// ErrInstallation, errSettings for another number of partitions.
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

// find looks for every stream that there can be.
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
	ch.door, err = look(ch.conn.names.StreamIn())
	return err
}

// mark notes in the first task stream what is being done, and the sizes before it.
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

func orOne(s string) string {
	if s == "" {
		return "1"
	}
	return s
}

// size is that of so many streams together; 0: one of them has no bound.
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

// update changes a stream in place.
func (ch *Change) update(ctx context.Context, lane, n int, to jetstream.StreamConfig) error {
	stream, err := ch.conn.js.UpdateStream(ctx, to)
	if err != nil {
		return fmt.Errorf("stream %s: %w", to.Name, err)
	}
	ch.lanes[lane].streams[n] = stream
	return nil
}

// Prepare closes the partitions that move where they were, and lets their new streams take
// what is moved there.
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
	return ch.useDoor(ctx)
}

// stays lists the partitions that a stream has and keeps.
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

// of are the subjects of partitions.
func (l *lane) of(partitions []int) (all []string) {
	for _, p := range partitions {
		all = append(all, l.open(p)...)
	}
	return all
}

// close leaves a stream with what it keeps.
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

// admit makes a stream if it is missing, and lets it take what is moved to it.
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

// like is the configuration of a new stream beside one that there is.
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

func (ch *Change) create(ctx context.Context, config jetstream.StreamConfig, made func(jetstream.Stream)) error {
	stream, err := ch.conn.js.CreateStream(ctx, config)
	if err != nil {
		return fmt.Errorf("stream %s of %s: %w", config.Name, Bytes(config.MaxBytes), err)
	}
	made(stream)
	return nil
}

// useDoor opens the stream of the stream endpoint where there will be several task streams,
// and closes it where there will be one.
func (ch *Change) useDoor(ctx context.Context) error {
	names := ch.conn.names
	subjects := []string{names.PatternIn()}
	if ch.to == 1 {
		subjects = []string{names.RetiredSubject(names.StreamIn())}
	}
	switch {
	case ch.door == nil && ch.to == 1:
		return nil
	case ch.door == nil:
		to := ch.like(ch.lanes[0].streams[0].CachedInfo().Config, names.StreamIn())
		to.Description, to.Subjects, to.Retention = aboutIn, subjects, jetstream.WorkQueuePolicy
		to.SubjectTransform = &jetstream.SubjectTransformConfig{Source: names.PatternIn(), Destination: names.TasksTransform(ch.partitions)}
		if to.MaxBytes > 0 {
			to.MaxBytes = max(shareIn.least, to.MaxBytes/doorPart)
		}
		return ch.create(ctx, to, func(s jetstream.Stream) { ch.door = s })
	}
	to := ch.door.CachedInfo().Config
	to.Subjects = subjects
	stream, err := ch.conn.js.UpdateStream(ctx, to)
	if err != nil {
		return fmt.Errorf("stream %s: %w", to.Name, err)
	}
	ch.door = stream
	return nil
}

// doorPart is how many times smaller than a task stream the one of the stream endpoint is.
const doorPart = 10

// Finish opens every partition in its stream, removes the streams that are not used any more and hold nothing that is
// younger than keep, and ends the change. left are those that do: a restore of the database would want it.
func (ch *Change) Finish(ctx context.Context, keep time.Duration) (left []string, err error) {
	if ch.to == 1 && ch.door != nil {
		if err := ch.emptyDoor(ctx); err != nil {
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

// finish does it with one stream; nil: it is gone. ids are those of the other task streams.
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

// MovedPartition is what was done about one partition.
type MovedPartition struct {
	// Claim reports whether its row has to be taken over: its cursors are of other streams.
	Claim        bool
	Stream       string // identity of its streams now, for core.Claim
	Begin        uint64 // where its cursor begins there
	ControlBegin uint64
	Messages     int // that were moved
}

// Move brings what is unread of a partition into its streams. st is its row as it is in the
// database; where it knows nothing of the streams, all that there is counts as unread.
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

// laneID is the identity of a stream in a partition's row: of the task or the control stream.
func laneID(row string, lane int) string {
	tasks, control, _ := strings.Cut(row, "/")
	if lane == 0 {
		return tasks
	}
	return control
}

// numberOf is which stream has an identity; -1: none.
func (l *lane) numberOf(id string) int {
	return slices.IndexFunc(l.streams[:], func(s jetstream.Stream) bool { return s != nil && id != "" && streamID(s.CachedInfo()) == id })
}
