package chain

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"duly.dev/duly/internal/core"
)

// The first line of an export names its form.
const (
	exportName    = "duly journal"
	exportVersion = 1
)

// line is one of an export: the first, or that of one element.
type line struct {
	Form         string       `json:"form,omitempty"`
	Version      int          `json:"version,omitempty"`
	Installation string       `json:"installation,omitempty"`
	At           core.Instant `json:"at,omitempty"`
	Partitions   []int        `json:"partitions,omitempty"`
	LeftOut      []int        `json:"left_out,omitempty"`

	Link *Link           `json:"link,omitempty"`
	Row  json.RawMessage `json:"row,omitempty"`
	Task json.RawMessage `json:"task,omitempty"`
	End  bool            `json:"end,omitempty"` // the last line
}

// Export writes a source as lines of JSON, of one partition or, with -1, of all: of each its
// links, rows of tasks and journal rows. It has all that is stored of them, inputs and
// results too.
func Export(ctx context.Context, s Source, partition int, w io.Writer) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	partitions, leftOut := s.Partitions(), s.LeftOut()
	if partition >= 0 {
		leftOut = append(slices.DeleteFunc(slices.Clone(partitions), func(p int) bool { return p == partition }), leftOut...)
		partitions = []int{partition}
	}
	if err := enc.Encode(line{Form: exportName, Version: exportVersion, Installation: s.Installation(), At: s.At(), Partitions: partitions, LeftOut: leftOut}); err != nil {
		return err
	}
	for _, p := range partitions {
		if err := exportOne(ctx, s, p, enc); err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
	}
	if err := enc.Encode(line{End: true}); err != nil {
		return err
	}
	return out.Flush()
}

func exportOne(ctx context.Context, s Source, partition int, enc *json.Encoder) error {
	view, err := s.View(ctx, partition)
	if err != nil {
		return err
	}
	err = view.Links(ctx, 0, func(l *Link) error { return enc.Encode(line{Link: l}) })
	if err == nil {
		err = view.Tasks(ctx, 0, maxNumber, func(t *Row) error { return enc.Encode(map[string]*Row{"task": t}) })
	}
	if err == nil {
		err = view.Rows(ctx, 0, maxNumber, func(r *Row) error { return enc.Encode(map[string]*Row{"row": r}) })
	}
	return errors.Join(err, view.Close())
}

// maxNumber is above every number of a task.
const maxNumber = 1<<63 - 1

// exportLineMax bounds a line of an export, in bytes: a row with an input and a result, or
// the link of a large commit.
const exportLineMax = 64 << 20

// File is a Source of an export.
type File struct {
	from   io.ReadSeeker
	tables Tables
	head   line
}

// OpenFile reads the beginning of an export of tables and whether its end is there.
func OpenFile(ctx context.Context, from io.ReadSeeker, tables Tables) (*File, error) {
	f := &File{from: from, tables: tables}
	ended, first := false, true
	err := f.each(ctx, func(n int, l *line) error {
		if first {
			f.head, first = *l, false
			if l.Form != exportName {
				return errors.New("line 1: this is no export of a journal: `duly verify --export FILE` makes one")
			}
			if l.Version != exportVersion {
				return fmt.Errorf("line 1: the export has version %d, this binary knows %d", l.Version, exportVersion)
			}
			return nil
		}
		if ended {
			return fmt.Errorf("line %d: there is more after the end", n)
		}
		ended = l.End
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !ended {
		return nil, errors.New("the export is cut off: its last line is missing")
	}
	return f, nil
}

func (f *File) each(ctx context.Context, yield func(n int, l *line) error) error {
	if _, err := f.from.Seek(0, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewScanner(f.from)
	lines.Buffer(make([]byte, 0, 64<<10), exportLineMax)
	for n := 1; lines.Scan(); n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if err := yield(n, &l); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Installation implements Source.
func (f *File) Installation() string { return f.head.Installation }

// At implements Source.
func (f *File) At() core.Instant { return f.head.At }

// Partitions implements Source.
func (f *File) Partitions() []int { return f.head.Partitions }

// LeftOut implements Source.
func (f *File) LeftOut() []int { return f.head.LeftOut }

// View implements Source.
func (f *File) View(_ context.Context, partition int) (View, error) {
	return fileView{f, partition}, nil
}

type fileView struct {
	f         *File
	partition int
}

// Links implements View.
func (v fileView) Links(ctx context.Context, from int64, yield func(*Link) error) error {
	return v.f.each(ctx, func(_ int, l *line) error {
		if l.Link == nil || l.Link.Partition != v.partition || l.Link.Height < from {
			return nil
		}
		return yield(l.Link)
	})
}

// Rows implements View.
func (v fileView) Rows(ctx context.Context, low, high int64, yield func(*Row) error) error {
	return v.rows(ctx, v.f.tables.Journal, func(l *line) json.RawMessage { return l.Row }, low, high, yield)
}

// Tasks implements View.
func (v fileView) Tasks(ctx context.Context, low, high int64, yield func(*Row) error) error {
	return v.rows(ctx, v.f.tables.Tasks, func(l *line) json.RawMessage { return l.Task }, low, high, yield)
}

func (v fileView) rows(ctx context.Context, table *Table, of func(*line) json.RawMessage, low, high int64, yield func(*Row) error) error {
	return v.f.each(ctx, func(n int, l *line) error {
		text := of(l)
		if text == nil {
			return nil
		}
		r, err := table.row(text)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if number := r.Int("number"); r.Int("partition") != int64(v.partition) || number < low || number >= high {
			return nil
		}
		return yield(r)
	})
}

// Close implements View.
func (fileView) Close() error { return nil }
