package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// TestReadingsGolden pins what a scheduler tells the doors, as nodes of several versions read it, and its bound.
func TestReadingsGolden(t *testing.T) {
	if got := (Names{}).SubjectReading(); got != "duly.nodes.reading" {
		t.Errorf("subject %s", got)
	}
	all := []core.Reading{{Partition: 3, Epoch: 7, Cursor: 1 << 40, Read: 900, Begun: 800, Waited: 1500 * time.Millisecond}}
	data, err := EncodeReadings("n1", all)
	want := `{"v":1,"node":"n1","partitions":[{"p":3,"epoch":7,"cursor":1099511627776,"read":900,"begun":800,"waited_ms":1500}]}`
	if err != nil || string(data) != want {
		t.Errorf("got %s, %v, want %s", data, err, want)
	}
	node, back, err := DecodeReadings(data)
	if err != nil || node != "n1" || !slices.Equal(back, all) {
		t.Errorf("back: %s %+v, %v", node, back, err)
	}
	many := fmt.Sprintf(`{"v":1,"node":"n1","partitions":[%s{}]}`, strings.Repeat("{},", readingsMax))
	for _, bad := range []string{`[`, `{"v":2,"node":"n1"}`, `{"v":1}`, many} {
		if _, all, err := DecodeReadings([]byte(bad)); !errors.Is(err, ErrUndecodable) {
			t.Errorf("%s: %+v, %v", Short(bad), all, err)
		}
	}
}
