package console

import (
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// diffRow is one line of two texts side by side.
type diffRow struct {
	OldNo, NewNo int // 0: the side has no such line
	Old, New     string
	Kind         string // same, changed, removed, added, skip
	Skipped      int    // equal lines that are not shown
}

// diffContext is how many equal lines are shown around a change.
const diffContext = 3

// diffLines compares two texts line by line.
func diffLines(before, after string) []diffRow { return shorten(sideBySide(before+"\n", after+"\n")) }

// sideBySide are all lines of two texts, each of which ends with a line break.
func sideBySide(before, after string) (rows []diffRow) {
	at, oldNo, newNo := 0, 0, 0
	pair := func(old, now string, same bool) {
		removed, added := slices.Collect(strings.Lines(old)), slices.Collect(strings.Lines(now))
		for i := range max(len(removed), len(added)) {
			row := diffRow{Kind: "changed"}
			if same {
				row.Kind = "same"
			}
			if i < len(removed) {
				oldNo++
				row.OldNo, row.Old = oldNo, strings.TrimSuffix(removed[i], "\n")
			} else {
				row.Kind = "added"
			}
			if i < len(added) {
				newNo++
				row.NewNo, row.New = newNo, strings.TrimSuffix(added[i], "\n")
			} else {
				row.Kind = "removed"
			}
			rows = append(rows, row)
		}
	}
	for _, edit := range udiff.Lines(before, after) {
		pair(before[at:edit.Start], before[at:edit.Start], true)
		pair(before[edit.Start:edit.End], edit.New, false)
		at = edit.End
	}
	pair(before[at:], before[at:], true)
	return rows
}

// shorten leaves out equal lines that are far from every change.
func shorten(rows []diffRow) []diffRow {
	near := make([]bool, len(rows))
	for i := range rows {
		if rows[i].Kind == "same" {
			continue
		}
		for k := max(0, i-diffContext); k < min(len(rows), i+diffContext+1); k++ {
			near[k] = true
		}
	}
	var out []diffRow
	for i := 0; i < len(rows); i++ {
		if near[i] {
			out = append(out, rows[i])
			continue
		}
		n := 0
		for ; i < len(rows) && !near[i]; i++ {
			n++
		}
		i--
		out = append(out, diffRow{Kind: "skip", Skipped: n})
	}
	return out
}

// differs reports whether any line of a diff is not the same.
func differs(rows []diffRow) bool {
	return slices.ContainsFunc(rows, func(r diffRow) bool { return r.Kind != "same" && r.Kind != "skip" })
}
