package natsbus

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/wire"
)

// The flags of the settings that errors about streams name.
const (
	FlagTasksBytes   = "stream-max-bytes"
	FlagControlBytes = "stream-control-max-bytes"
	FlagEventsBytes  = "stream-events-max-bytes"
	FlagDeadBytes    = "stream-dead-max-bytes"
	FlagTaskStreams  = "task-streams"

	flagPartitions = "partitions"
	flagReplicas   = "stream-replicas"
	flagLease      = "lease"
	flagNamespace  = "namespace"
)

// Flags returns them all.
func Flags() []string {
	return []string{FlagTasksBytes, FlagControlBytes, FlagEventsBytes, FlagDeadBytes, FlagTaskStreams, flagPartitions, flagReplicas, flagLease, flagNamespace}
}

// newStreamID draws the identity of a stream, so that one which was deleted and made again can be told from
// the one before.
func newStreamID() string { return rand.Text() }

// consumersSpare is how many consumers a stream must allow beside two for each partition: the one that reads and the one that it
// replaces.
const consumersSpare = 8

// consumersUsual is how many consumers nats-server 2.15 allows a stream by default (default_max_consumers).
const consumersUsual = 1000

// mostConsumers returns the limit of consumers for a stream that is read by partition; -1 is the server's
// default. It asks for more only if the default is not enough, because an account may allow fewer than that.
func mostConsumers(partitions int) int {
	if n := 2*partitions + consumersSpare; n > consumersUsual {
		return n
	}
	return -1
}

// unusable lists the settings with which an existing stream cannot be used, and which are not changed in
// place, because NATS cannot or because a person has set them on purpose.
func (r *resource) unusable(have *jetstream.StreamConfig) []string {
	want := &r.want
	d := diffs{name: want.Name}
	if wrong := r.wrongNumber(have); wrong != "" {
		return []string{want.Name + ": " + wrong} // what else differs comes from that
	}
	d.check("retention", have.Retention, want.Retention, "")
	d.check("storage", have.Storage, want.Storage, "")
	d.check("discard", have.Discard, want.Discard, "")
	d.check("discard new per subject", have.DiscardNewPerSubject, want.DiscardNewPerSubject, "")
	if !slices.Equal(slices.Sorted(slices.Values(have.Subjects)), slices.Sorted(slices.Values(want.Subjects))) {
		d.add("subjects", have.Subjects, want.Subjects, "")
	}
	d.check("persist mode", have.PersistMode, want.PersistMode, "") // async confirms before it writes
	// Without acknowledgements nobody knows what is stored; a sealed stream takes nothing; without purge there is no way
	// to make room.
	d.check("no ack", have.NoAck, want.NoAck, "")
	d.check("sealed", have.Sealed, want.Sealed, "")
	d.check("deny purge", have.DenyPurge, want.DenyPurge, "")
	d.check("allow rollup", have.AllowRollup, want.AllowRollup, "") // a publisher could remove what others have stored
	// With these a publisher decides how long its message stays, or what NATS makes of it.
	d.check("allow message TTL", have.AllowMsgTTL, want.AllowMsgTTL, "")
	d.check("allow message counter", have.AllowMsgCounter, want.AllowMsgCounter, "")
	d.check("allow message schedules", have.AllowMsgSchedules, want.AllowMsgSchedules, "")
	// Limits other than of bytes would refuse, or drop, messages while there is room.
	d.check("max messages", unlimited(have.MaxMsgs), unlimited(want.MaxMsgs), "")
	d.check("max messages per subject", unlimited(have.MaxMsgsPerSubject), unlimited(want.MaxMsgsPerSubject), "")
	d.check("max message size", unlimited(int64(have.MaxMsgSize)), unlimited(int64(want.MaxMsgSize)), "")
	// A stream that copies from others holds messages that nobody published to it.
	d.check("mirror of", source(have.Mirror), source(want.Mirror), "")
	d.check("sources", len(have.Sources), len(want.Sources), "")
	if r.bucket != "" {
		if want.SubjectDeleteMarkerTTL != 0 && have.SubjectDeleteMarkerTTL == 0 {
			d.add("limit marker", "none", want.SubjectDeleteMarkerTTL, "")
		}
		if want.MaxAge != 0 && have.MaxAge == 0 && !r.age {
			d.add("lease", "none", want.MaxAge, flagLease)
		}
		if want.MaxAge == 0 && have.MaxAge != 0 {
			d.add("max age", have.MaxAge, "none", "")
		}
		return d.list
	}
	d.check("wire version", orNone(have.Metadata[metaWire]), fmt.Sprint(wire.Version), "")
	if want.SubjectTransform == nil {
		d.check("subject transform", transform(have), transform(want), "")
		return d.list
	}
	switch {
	case r.partitions:
		d.check("partitions", orNone(have.Metadata[metaPartitions]), r.meta[metaPartitions], flagPartitions)
		d.check("subject transform", transform(have), transform(want), flagPartitions)
	case have.Metadata[metaPartitions] == "":
		d.add("partitions", "none", "a number", flagPartitions)
	}
	// A partition has two consumers while one replaces the other.
	var p int
	if _, err := fmt.Sscan(r.meta[metaPartitions], &p); err == nil && have.MaxConsumers > 0 && have.MaxConsumers < 2*p+consumersSpare {
		d.add("max consumers", have.MaxConsumers, fmt.Sprintf("no limit, or %d", 2*p+consumersSpare), "")
	}
	return d.list
}

// change returns a stream's configuration with what is changed in place, and what that is; none: it is as it
// should be.
func (r *resource) change(config *StreamConfig, info *jetstream.StreamInfo, bytes int64, resize bool) (jetstream.StreamConfig, []string) {
	// It starts from the stream as it is: what an operator has set, and Duly does not care about, stays.
	to := info.Config
	to.Metadata = maps.Clone(info.Config.Metadata)
	if to.Metadata == nil {
		to.Metadata = map[string]string{}
	}
	var what []string
	set := func(differs bool, name, flag string, have, want any) bool {
		if differs {
			if flag != "" {
				name += " (--" + flag + ")"
			}
			what = append(what, fmt.Sprintf("%s from %v to %v", name, have, want))
		}
		return differs
	}
	if set(resize && to.MaxBytes != bytes, "max bytes", r.flag, to.MaxBytes, bytes) {
		to.MaxBytes = bytes
	}
	if set(r.want.MaxConsumers > 0 && to.MaxConsumers <= 0, "max consumers", "", "the server's usual", r.want.MaxConsumers) {
		to.MaxConsumers = r.want.MaxConsumers
	}
	ageFlag := ""
	if r.bucket != "" {
		ageFlag = flagLease
	}
	if set(r.age && to.MaxAge != r.want.MaxAge, "max age", ageFlag, to.MaxAge, r.want.MaxAge) {
		to.MaxAge = r.want.MaxAge
	}
	if set(r.replicas && to.Replicas != r.want.Replicas, "replicas", flagReplicas, to.Replicas, r.want.Replicas) {
		to.Replicas = r.want.Replicas
	}
	if window := min(r.want.Duplicates, atLeast(to.MaxAge)); set(r.window && to.Duplicates != window, "duplicate window", "", to.Duplicates, window) {
		to.Duplicates = window
	}
	to.Duplicates = min(to.Duplicates, atLeast(to.MaxAge)) // the server demands it
	for _, m := range [...]struct{ key, want string }{{metaInstallation, config.Installation}, {metaStream, streamID(info)}} {
		if set(m.want != "" && to.Metadata[m.key] != m.want, m.key, "", orNone(to.Metadata[m.key]), orNone(m.want)) {
			to.Metadata[m.key] = m.want
		}
	}
	return to, what
}

// orNone shows an empty value as "none".
func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// atLeast returns an age for comparisons, in which 0 means for ever.
func atLeast(age time.Duration) time.Duration {
	if age <= 0 {
		return 1<<63 - 1
	}
	return age
}

// unlimited formats a limit, for which NATS uses both 0 and -1 as none.
func unlimited(n int64) string {
	if n <= 0 {
		return "unlimited"
	}
	return fmt.Sprint(n)
}

// source names what a stream mirrors or copies, for a difference.
func source(s *jetstream.StreamSource) string {
	if s == nil {
		return "none"
	}
	return s.Name
}

// transform returns as text how a stream's setting changes subjects, for the list of settings that are not as wanted.
func transform(s *jetstream.StreamConfig) string {
	if s.SubjectTransform == nil {
		return "none"
	}
	return s.SubjectTransform.Source + " to " + s.SubjectTransform.Destination
}

// diffs collects the differences of one stream.
type diffs struct {
	// name is the stream's.
	name string
	list []string
}

// check notes a difference if there is one. flag is the command-line flag that sets the value, or "".
func (d *diffs) check(what string, have, want any, flag string) {
	if have != want {
		d.add(what, have, want, flag)
	}
}

// add notes a difference.
func (d *diffs) add(what string, have, want any, flag string) {
	text := fmt.Sprintf("%s: %s is %v, want %v", d.name, what, have, want)
	if flag != "" {
		text += " (--" + flag + ")"
	}
	d.list = append(d.list, strings.TrimSpace(text))
}
