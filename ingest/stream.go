package ingest

import (
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// stream is what the door keeps of one task stream. Its window of packs on their way and its room are its own, so that
// one without a leader, whose packs stay unanswered, holds up the submissions of its own partitions alone.
type stream struct {
	number  int // among the door's
	name    string
	budget  budget
	full    [core.Classes]*Refusal // made once: under overload it is what the door answers most
	shelves []*pack                // one for each of its partitions: the pack that is open, or nil
	open    int                    // packs that are open
	flying  int                    // packs that the stream has not answered
}

// home is where a partition's packs are.
type home struct {
	stream *stream
	shelf  int
}

// streamsOf makes the streams of a door. Each gets an equal share of the door's room: ids spread evenly, so it is what
// a stream needs anyway, and whatever other streams do not answer, and of whatever class, a stream's share is free for
// its own. Error: the room is too small to be shared.
func streamsOf(cfg *Config) (streams []*stream, homes []home, err error) {
	homes = make([]home, cfg.Partitions)
	named := map[string]*stream{}
	for partition := range homes {
		name := cfg.StreamOf(partition)
		s := named[name]
		if s == nil {
			s = &stream{number: len(streams), name: name}
			named[name] = s
			streams = append(streams, s)
		}
		homes[partition] = home{stream: s, shelf: len(s.shelves)}
		s.shelves = append(s.shelves, nil)
	}
	items, bytes := int64(cfg.ItemsMax/len(streams)), cfg.BytesMax/int64(len(streams))
	if items < 1 || bytes < 1 {
		return nil, nil, fmt.Errorf("ingest: ItemsMax is %d and BytesMax %d, want %d or more: 1 for each task stream", cfg.ItemsMax, cfg.BytesMax, len(streams))
	}
	for _, s := range streams {
		of := ""
		if len(streams) > 1 {
			of = " in stream " + s.name
		}
		s.budget.itemsMax, s.budget.bytesMax = items, bytes
		for i := range s.full {
			class := core.Class(i)
			s.full[i] = Refuse(429, CauseFull, "%s", say.Of("refuse.door-full-class", "class", class, "of", of, "requests", classShare(items, class), "bytes", classShare(bytes, class))).After(RetryFull)
		}
	}
	return streams, homes, nil
}

// streamFor is the stream that a request belongs to. It is safe for concurrent use.
func (d *Door) streamFor(id string) *stream {
	if len(d.streams) == 1 {
		return d.streams[0]
	}
	return d.homes[d.cfg.PartitionOf(id, d.cfg.Partitions)].stream
}

// oldest is the open pack whose first item came first; there is one.
func (s *stream) oldest() *pack {
	var oldest *pack
	for _, p := range s.shelves {
		if p != nil && (oldest == nil || p.since < oldest.since) {
			oldest = p
		}
	}
	return oldest
}

// items is how many requests are unanswered. It is safe for concurrent use.
func (d *Door) items() int64 {
	var n int64
	for _, s := range d.streams {
		n += s.budget.items.Load()
	}
	return n
}
