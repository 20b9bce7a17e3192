package schema

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
)

// positions is where a list goes on: for each partition the number below which its next tasks are; 0: it has
// no more. Newer tasks have higher numbers, so that tasks born while someone pages do not move the pages.
type positions []int64

// positionsVersion is the first byte of a cursor.
const positionsVersion = 1

// String is the cursor of a page; empty where there are no more tasks.
func (p positions) String() string {
	if !slices.ContainsFunc(p, func(n int64) bool { return n > 0 }) {
		return ""
	}
	b := []byte{positionsVersion}
	for _, n := range p {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parsePositions reads what String wrote for that many partitions. It refuses everything else with
// core.ErrCursor, also another spelling of the same positions.
func parsePositions(s string, partitions int) (positions, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) == 0 || b[0] != positionsVersion {
		return nil, fmt.Errorf("%w: %s is none of a list", core.ErrCursor, core.QuoteShort(s))
	}
	var p positions
	for b = b[1:]; len(b) > 0; {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > 1<<62 || len(p) == partitions {
			return nil, fmt.Errorf("%w: %s is none of a list of %d partitions", core.ErrCursor, core.QuoteShort(s), partitions)
		}
		p, b = append(p, int64(n)), b[size:]
	}
	if len(p) != partitions || p.String() != s {
		return nil, fmt.Errorf("%w: %s is none of a list of %d partitions", core.ErrCursor, core.QuoteShort(s), partitions)
	}
	return p, nil
}
