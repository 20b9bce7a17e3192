package ingest

import (
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// stream is the door's side of one task stream. Each has its own limit of packs on their way and its own
// room, so that a stream without a leader, which answers nothing, holds up only submissions of its own
// partitions.
type stream struct {
	number int // among the door's
	name   string
	budget budget
	// full refuses requests by class. They are made once: under overload they are the answer that the door
	// gives most.
	full [core.Classes]*Refusal
	// shelves has the open pack of each of its partitions, or nil.
	shelves []*pack
	// open counts the open packs, flying those on their way.
	open   int
	flying int // packs that the stream has not answered
}

// home is where a partition's open pack is: its stream and the shelf there.
type home struct {
	stream *stream
	shelf  int
}

// streamsOf makes the streams of a door, each with an equal share of its room. Ids spread evenly, so a stream
// needs no more; and what other streams leave unanswered never takes it away. Error: the room is too small to
// be divided.
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

// oldest is the open pack that has waited longest. There must be one.
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
