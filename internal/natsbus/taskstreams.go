package natsbus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/wire"
)

// Keys in the metadata of the first task stream, if there are or were several.
const (
	metaTaskStreams = "duly_task_streams" // how many; missing: 1; "1>3": they are being changed
	metaTaskIDs     = "duly_task_ids"     // identities of all that are or were task streams, by comma
	metaTaskBytes   = "duly_task_bytes"   // size of all together, while they are being changed
)

// changing separates two numbers of task streams in metaTaskStreams.
const changing = ">"

// taskKind and controlKind return the kinds of the streams with a number. Each has outcomes of its own: that one of them does not
// accept messages says nothing about the others.
func taskKind(number int) int {
	if number == 0 {
		return kindTasks
	}
	return kinds + 2*(number-1)
}

// controlKind is taskKind of control streams.
func controlKind(number int) int {
	if number == 0 {
		return kindControl
	}
	return kinds + 2*(number-1) + 1
}

// allKinds counts the kinds, including those of further task streams.
const allKinds = kinds + 2*(wire.TaskStreamsMax-1)

// taskStreams returns how many there are, as Setup was told; 1 before Setup.
func (c *Conn) taskStreams() int {
	if config := c.config.Load(); config != nil {
		return config.taskStreams()
	}
	return 1
}

// taskStreams is how many task streams there are to be; 0 means 1.
func (config *StreamConfig) taskStreams() int { return max(1, config.TaskStreams) }

// streamOf returns the number of the task stream that has a partition.
func (c *Conn) streamOf(partition int) int { return wire.TaskStreamOf(partition, c.taskStreams()) }

// StreamTasks returns the name of the task stream that has a partition.
func (c *Conn) StreamTasks(partition int) string {
	return c.names.StreamTasksAt(c.streamOf(partition))
}

// StreamControl returns the name of the control stream that has a partition.
func (c *Conn) StreamControl(partition int) string {
	return c.names.StreamControlAt(c.streamOf(partition))
}

// errLate is why a task stream is no longer waited for.
var errLate = errors.New("no answer, and others have answered")

// eachTaskStream calls ask with every task stream at once, and with a function that tells which partitions
// are the stream's. It returns what the streams said of partitions; streams that failed are left out, and
// named in the error. With spare above 0, once one stream has answered the others have only that much longer.
func eachTaskStream[T any](ctx context.Context, c *Conn, spare time.Duration, ask func(ctx context.Context, stream jetstream.Stream, has func(partition int) bool) (map[int]T, error)) (map[int]T, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var late *time.Timer
	begin := sync.OnceFunc(func() { late = time.AfterFunc(spare, func() { cancel(errLate) }) })
	streams := c.taskStreams() // wire.TaskStreamsMax at most
	errs := make([]error, streams)
	said := make([]map[int]T, streams)
	var wg sync.WaitGroup
	for number := range streams {
		wg.Go(func() {
			name := c.names.StreamTasksAt(number)
			stream, err := c.js.Stream(ctx, name)
			if err == nil {
				said[number], err = ask(ctx, stream, func(p int) bool { return wire.TaskStreamOf(p, streams) == number })
			}
			if err != nil {
				if ctx.Err() != nil {
					err = context.Cause(ctx)
				}
				said[number], errs[number] = nil, fmt.Errorf("stream %s: %w", name, err)
			} else if spare > 0 {
				begin()
			}
		})
	}
	wg.Wait()
	if late != nil {
		late.Stop()
	}
	all := map[int]T{}
	for _, some := range said {
		maps.Copy(all, some)
	}
	return all, errors.Join(errs...)
}

// Home is the task stream and the control stream of a partition as they are now. Cursors of another Identity start from
// the beginning.
type Home struct {
	// Identity names them as partitions' rows do: tasks/control.
	Identity string
	// Others are the identities of the installation's other task streams, past ones included.
	Others []string
}

// Home finds the streams of a partition as they are now. Errors: ErrNoStream, ErrInstallation; errSettings if
// the number of task streams is another one or is being changed.
func (c *Conn) Home(ctx context.Context, partition int) (Home, error) {
	first, err := c.stream(ctx, c.names.StreamTasks())
	if err != nil {
		return Home{}, err
	}
	meta := first.CachedInfo().Config.Metadata
	if differs := streamsDiffer(meta, c.taskStreams()); differs != "" {
		return Home{}, fmt.Errorf("%w: %s: %s", errSettings, c.names.StreamTasks(), differs)
	}
	tasks := first
	if c.streamOf(partition) > 0 {
		if tasks, err = c.stream(ctx, c.StreamTasks(partition)); err != nil {
			return Home{}, err
		}
	}
	control, err := c.stream(ctx, c.StreamControl(partition))
	if err != nil {
		return Home{}, err
	}
	home := Home{Identity: identity(tasks.CachedInfo(), control.CachedInfo())}
	if ids := meta[metaTaskIDs]; ids != "" {
		own := streamID(tasks.CachedInfo())
		home.Others = slices.DeleteFunc(strings.Split(ids, ","), func(id string) bool { return id == own })
	}
	return home, nil
}

// streamsDiffer says how the number of task streams in the metadata differs from the wanted one; empty: it
// does not.
func streamsDiffer(meta map[string]string, want int) string {
	has := meta[metaTaskStreams]
	if has == "" {
		has = "1"
	}
	if has == strconv.Itoa(want) {
		return ""
	}
	if from, to, change := strings.Cut(has, changing); change {
		return fmt.Sprintf("the change from %s to %s task streams is not finished, want %d (--%s): let `duly task-streams %s` finish it", from, to, want, FlagTaskStreams, to)
	}
	return fmt.Sprintf("task streams are %s, want %d (--%s); `duly task-streams %d` changes them while no scheduler runs", has, want, FlagTaskStreams, want)
}

// taskResources lists the task streams and control streams by number and, if there are several, the stream of
// the stream endpoint.
func (config *StreamConfig) taskResources(names wire.Names, partitions int, stream streamMaker) []*resource {
	streams := config.taskStreams()
	meta := map[string]string{metaPartitions: strconv.Itoa(partitions)}
	in := &jetstream.SubjectTransformConfig{Source: names.PatternIn(), Destination: names.TasksTransform(partitions)}
	var all []*resource
	for number := range streams {
		tasks := stream(taskKind(number), names.StreamTasksAt(number), "Duly: submissions, by partition", FlagTasksBytes, config.MaxBytes/int64(streams),
			shareTasks.among(streams), tasksSubjects(names, number, streams, partitions)...)
		tasks.meta, tasks.partitions = meta, config.Partitions != 0
		if streams == 1 {
			tasks.want.SubjectTransform = in
		}
		if number == 0 {
			tasks.streams = streams
		}
		control := stream(controlKind(number), names.StreamControlAt(number), "Duly: requests about tasks, by partition", FlagControlBytes, config.ControlBytes/int64(streams),
			shareControl.among(streams), controlSubjects(names, number, streams, partitions)...)
		tasks.kept, control.kept = true, true
		all = append(all, tasks, control)
	}
	if streams > 1 {
		door := stream(kindNone, names.StreamIn(), aboutIn, "", 0, shareIn, names.PatternIn())
		door.want.Retention, door.want.SubjectTransform = jetstream.WorkQueuePolicy, in
		door.meta, door.partitions = meta, config.Partitions != 0
		all = append(all, door)
	}
	return all
}

// aboutIn is the description of the stream of the stream endpoint.
const aboutIn = "Duly: submissions of the stream endpoint, until they are in the stream of their partition"

// streamMaker makes the resource of a stream that refuses messages when it is full, instead of discarding old
// ones.
type streamMaker func(kind int, name, about, flag string, bytes int64, share share, subjects ...string) *resource

// tasksSubjects returns what task stream number, of so many, listens to.
func tasksSubjects(names wire.Names, number, streams, partitions int) []string {
	if streams == 1 {
		return []string{names.PatternIn(), names.PatternPack()}
	}
	var all []string
	for p := number; p < partitions; p += streams {
		all = append(all, names.TasksSubjects(p)...)
	}
	return all
}

// controlSubjects returns what control stream number, of so many, listens to.
func controlSubjects(names wire.Names, number, streams, partitions int) []string {
	if streams == 1 {
		return []string{names.PatternControl()}
	}
	var all []string
	for p := number; p < partitions; p += streams {
		all = append(all, names.ControlSubject(p))
	}
	return all
}

// among divides the share between so many streams.
func (s share) among(streams int) share {
	return share{percent: s.percent / int64(streams), most: s.most / int64(streams), least: s.least}
}

// wrongNumber says how the number of task streams noted in the first one differs from the configured one;
// empty: it does not.
func (r *resource) wrongNumber(have *jetstream.StreamConfig) string {
	if r.streams == 0 {
		return ""
	}
	return streamsDiffer(have.Metadata, r.streams)
}
