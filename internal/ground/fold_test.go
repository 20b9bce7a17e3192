package ground

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestFolding: a message is written once a second at most; what came in between is counted, and the last of it is seen.
//
// covers: B12
func TestFolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		f := NewFolding(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		}}))
		log := slog.New(f).With("node", "n")
		for i := range 25 {
			log.Warn("a", "i", i)
			if i == 3 {
				log.Info("b")
			}
			<-time.After(110 * time.Millisecond)
		}
		synctest.Wait()
		log.Debug("a")
		log.Debug("a")
		log.Warn("a", "i", "last")
		f.Close()
		want := `msg=a node=n i=0
msg=b node=n
msg=a node=n i=9 times=9
msg=a node=n i=18 times=9
msg=a node=n
msg=a node=n
msg=a node=n i=last times=7
`
		if buf.String() != want {
			t.Errorf("got\n%s\nwant\n%s", buf.String(), want)
		}
	})
}

// TestFoldingIsBounded: a log with more messages than are told apart loses none.
func TestFoldingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		f := NewFolding(slog.NewTextHandler(&buf, nil))
		log := slog.New(f)
		for i := range 3 * foldsMax {
			log.Info(fmt.Sprint("message ", i))
		}
		if n := bytes.Count(buf.Bytes(), []byte("\n")); n != 3*foldsMax || len(f.state.seen) != foldsMax {
			t.Errorf("%d lines, %d messages kept", n, len(f.state.seen))
		}
		<-time.After(lineGap)
		log.Info("new")
		if len(f.state.seen) != 1 {
			t.Errorf("%d old messages kept", len(f.state.seen))
		}
		f.Close()
	})
}
