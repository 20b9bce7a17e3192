package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
)

// readingsMax bounds the partitions of one report.
const readingsMax = 4096

// SubjectReading is where every scheduler tells the doors how far it is with its partitions.
func (n Names) SubjectReading() string { return n.get().root + "nodes.reading" }

type readingReport struct {
	V          int       `json:"v"`
	Node       string    `json:"node"`
	Partitions []reading `json:"partitions"`
}

type reading struct {
	Partition int    `json:"p"`
	Epoch     int64  `json:"epoch"`
	Cursor    uint64 `json:"cursor"`
	Read      int64  `json:"read"`
	Begun     int64  `json:"begun"`
	WaitedMS  int64  `json:"waited_ms"`
}

// EncodeReadings makes the JSON of what a node says of its partitions.
func EncodeReadings(node string, all []core.Reading) ([]byte, error) {
	r := readingReport{V: Version, Node: node, Partitions: make([]reading, len(all))}
	for i := range all {
		is := &all[i]
		r.Partitions[i] = reading{is.Partition, is.Epoch, is.Cursor, is.Read, is.Begun, is.Waited.Milliseconds()}
	}
	data, err := json.Marshal(&r)
	if err != nil {
		return nil, fmt.Errorf("readings of node %s: %w", Short(node), err)
	}
	return data, nil
}

// DecodeReadings reads what a node says of its partitions. Errors wrap ErrUndecodable.
func DecodeReadings(data []byte) (node string, all []core.Reading, err error) {
	var r readingReport
	if err := decodeOf("readings", data, &r, &r.V); err != nil {
		return "", nil, err
	}
	if r.Node == "" || len(r.Partitions) > readingsMax {
		return "", nil, fmt.Errorf("%w: readings: %d partitions of node %s, the limit is %d", ErrUndecodable, len(r.Partitions), Short(r.Node), readingsMax)
	}
	all = make([]core.Reading, len(r.Partitions))
	for i := range r.Partitions {
		is := &r.Partitions[i]
		all[i] = core.Reading{Partition: is.Partition, Epoch: is.Epoch, Cursor: is.Cursor, Read: is.Read, Begun: is.Begun, Waited: time.Duration(is.WaitedMS) * time.Millisecond}
	}
	return r.Node, all, nil
}
