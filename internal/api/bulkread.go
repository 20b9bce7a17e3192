package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/submit"
)

// bulkBuffer is how much of a body is read ahead.
const bulkBuffer = 64 << 10

// readLines reads lines until the body ends, or the client is gone. next is the line to go on from where bad says why the
// body was not read to its end.
func (b *bulk) readLines(body io.Reader) (next int64, bad *ingest.Refusal) {
	lines := bufio.NewReaderSize(&bulkBody{b, body}, bulkBuffer)
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reading = false
		_ = b.rc.SetReadDeadline(time.Time{})
	}()
	for number := int64(1); ; number++ {
		line, long, err := readLine(lines, b.cfg.BulkLineBytes)
		// What a body that breaks off ends with is no line.
		if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0 && !long) {
			return number, b.unread(err)
		}
		if number-b.from >= b.cfg.BulkLines {
			return number, b.unread(errBulkLines)
		}
		if number >= b.from && !b.take(b.parse(number, line, long)) {
			return number, nil // the client is gone
		}
		if err != nil {
			return number + 1, b.unread(err)
		}
	}
}

// take passes a line on when there is room for one; false: the client is gone.
func (b *bulk) take(l *bulkLine) bool {
	if b.room.Acquire(b.ctx, 1) != nil || b.bytes.Acquire(b.ctx, l.size) != nil {
		return false
	}
	select {
	case b.parsed <- l:
		return true
	case <-b.ctx.Done():
		return false
	}
}

// handLines hands in what was read. While ids are looked for more lines come, which are the next batch.
func (b *bulk) handLines() {
	defer close(b.lines)
	var batch []*bulkLine
	for l := range b.parsed {
		batch = append(batch[:0], l)
		for more := true; more && len(batch) < bulkLook; {
			select {
			case l, more = <-b.parsed:
				if more {
					batch = append(batch, l)
				}
			default:
				more = false
			}
		}
		b.look(batch)
		for _, l := range batch {
			if !b.handIn(l) {
				return
			}
		}
	}
}

// unread says why a body was not read to its end; nil: it was.
func (b *bulk) unread(err error) *ingest.Refusal {
	switch {
	case errors.Is(err, io.EOF):
		b.ended = true
		return nil
	case b.stopped.Load():
		return closing()
	case errors.Is(err, errBulkBytes):
		return ingest.Refuse(413, ingest.CauseBody, "%s", say.Of("refuse.bulk-size", "limit", b.cfg.BulkBytes))
	case errors.Is(err, errBulkLines):
		return ingest.Refuse(413, ingest.CauseBody, "%s", say.Of("refuse.bulk-lines", "limit", b.cfg.BulkLines))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ingest.Refuse(408, ingest.CauseBody, "%s", say.Of("refuse.bulk-idle", "time", b.bulkIdle))
	}
	return ingest.Refuse(400, ingest.CauseBody, "%s", say.Of("refuse.bulk-unread", "error", err))
}

var errBulkLines = errors.New("the body has too many lines")

// readLine reads a line without its end; of one that is too long nothing is kept.
func readLine(body *bufio.Reader, most int) (line []byte, long bool, err error) {
	for {
		part, err := body.ReadSlice('\n')
		if !long {
			if line = append(line, part...); len(bytes.TrimRight(line, "\r\n")) > most {
				line, long = nil, true
			}
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSpace(line), long, err
		}
	}
}

// parse is a line as it is handed in, or answered at once.
func (b *bulk) parse(number int64, line []byte, long bool) *bulkLine {
	l := &bulkLine{number: number, size: min(int64(len(line)), b.bytesMax), became: make(chan ingest.Answer, 1), done: make(chan struct{})}
	var said lineJSON
	switch {
	case long:
		return l.refused(&said, ingest.Refuse(413, ingest.CauseInputSize, "%s", say.Of("refuse.line-size", "line", number, "limit", b.cfg.BulkLineBytes)))
	case len(line) == 0:
		return l.refused(&said, ingest.Refuse(400, ingest.CauseBody, "line %d is empty, want a JSON object", number))
	}
	err := said.read(line)
	if err != nil {
		return l.refused(&said, ingest.Refuse(400, ingest.CauseBody, "%s", say.Of("refuse.line-form", "line", number, "error", err)))
	}
	if bad := said.label(); bad != nil {
		return l.refused(&said, bad)
	}
	if bad := bind(b.ctx, &said.Form); bad != nil {
		return l.refused(&said, bad)
	}
	if said.ID == "" {
		said.ID = scopeOf(b.ctx).ids + b.cfg.NewID()
	}
	l.req = ingest.Request{Form: said.Form, Answer: func(became ingest.Answer) { l.became <- became }}
	return l
}

// refused is the line, answered: the door does not get it.
func (l *bulkLine) refused(said *lineJSON, bad *ingest.Refusal) *bulkLine {
	p := problemOf(bad)
	l.answer = &lineAnswerJSON{Line: l.number, Outcome: lineRefused, Type: core.ShortText(said.Type, core.NameBytesMax), ID: core.ShortText(said.ID, core.NameBytesMax), Error: &p}
	if bad.Retryable() {
		l.answer.Outcome = lineFailed
	}
	return l
}

// read takes a line: an object, of known members, each once.
func (l *lineJSON) read(line []byte) error {
	var names []string
	err := submit.Object(line, func(name string, value json.RawMessage) error {
		if slices.ContainsFunc(names, func(is string) bool { return strings.EqualFold(is, name) }) {
			return fmt.Errorf("member %s is given twice, the second time as %s, want once", core.QuoteShort(name), core.QuoteShort(string(value)))
		}
		names = append(names, name)
		if text := string(value); strings.EqualFold(name, "id") && (text == `""` || text == "null") {
			return errors.New("id is empty: leave it out for a new one, so that the line sent again is another task")
		}
		return nil
	})
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	err = d.Decode(l)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s is of the kind %s, want %s", wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:], wrong.Value, wrong.Type)
	}
	return err
}

// listOf are labels as a list, by key.
func listOf(labels map[string]string) []core.Label {
	all := make([]core.Label, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, core.Label{Key: key, Value: labels[key]})
	}
	return all
}

// label has the labels of a line as a header has them.
func (l *lineJSON) label() *ingest.Refusal {
	all := listOf(l.Labels)
	if err := core.CheckLabels(all); err != nil { // as they are, before a comma could make two of one
		return ingest.Refuse(400, ingest.CauseLabels, "%v", err)
	}
	l.Form.Labels = core.FormatLabels(all)
	return nil
}

// handIn hands one line in; false: the client is gone.
func (b *bulk) handIn(l *bulkLine) bool {
	if l.answer == nil {
		if before := b.flying[l.req.ID]; before != nil {
			// What became of it says what this one is: the same task, or a conflict.
			select {
			case <-before.done:
			case <-b.ctx.Done():
				return false
			}
		}
		b.track(l)
		l.until = time.Now().Add(b.cfg.BulkWait)
		b.door.Submit(l.req)
	}
	select {
	case b.lines <- l:
		return true
	case <-b.ctx.Done():
		return false
	}
}

// track keeps which ids are in flight, and forgets those that were answered.
func (b *bulk) track(l *bulkLine) {
	if len(b.flying) >= 2*b.cfg.BulkInFlight+bulkLook {
		maps.DeleteFunc(b.flying, func(_ string, before *bulkLine) bool {
			select {
			case <-before.done:
				return true
			default:
				return false
			}
		})
	}
	b.flying[l.req.ID] = l
}

// look answers those lines whose ids are tasks already, as the state store has them. A store that does not answer holds no
// line up for long: the owner compares the inputs.
func (b *bulk) look(batch []*bulkLine) {
	now := time.Now()
	if now.Before(b.rest) {
		return
	}
	byPartition := map[int][]string{}
	for _, l := range batch {
		if l.answer == nil && ingest.CheckNames(l.req.Type, l.req.ID) == nil {
			p := b.partition(l.req.ID)
			byPartition[p] = append(byPartition[p], l.req.ID)
		}
	}
	if len(byPartition) == 0 {
		return
	}
	tasks, err := b.existing(byPartition)
	if err != nil {
		b.rest = now.Add(ingest.DefaultLookRest)
		if b.ctx.Err() == nil {
			b.log.Warn("a bulk submission goes on without a look at the store", "line", batch[0].number, "error", err)
		}
		return
	}
	for _, l := range batch {
		if l.answer != nil {
			continue
		}
		task, is := tasks[l.req.ID]
		if !is {
			l.req.Looked = true
			continue
		}
		if b.others(b.ctx, l.req.ID) {
			l.refused(&lineJSON{Form: l.req.Form}, taken(l.req.ID))
			continue
		}
		if bad := ingest.Differs(l.req.ID, l.req.Type, task.Type, l.req.Input, task.InputHash); bad != nil {
			l.refused(&lineJSON{Form: l.req.Form}, bad)
			continue
		}
		l.answer = &lineAnswerJSON{Line: l.number, Outcome: lineExisting, ID: l.req.ID, Type: l.req.Type, State: task.State}
	}
}

// existing are those of the ids that are tasks.
func (b *bulk) existing(byPartition map[int][]string) (map[string]core.Existing, error) {
	ctx, cancel := context.WithTimeout(b.ctx, b.cfg.ReadMax)
	defer cancel()
	tasks := map[string]core.Existing{}
	for partition, ids := range byPartition {
		found, err := b.reader.Existing(ctx, partition, ids)
		if err != nil {
			return nil, fmt.Errorf("ids of partition %d: %w", partition, err)
		}
		for i := range found {
			tasks[found[i].ID] = found[i]
		}
	}
	return tasks, nil
}
