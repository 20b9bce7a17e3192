package console

import "strings"

// diffMax is how many lines of each side are compared one by one; beyond, what is between the equal beginning and end
// counts as changed as a whole.
const diffMax = 2000

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
func diffLines(before, after string) []diffRow {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var rows []diffRow
	for i := range head {
		rows = append(rows, diffRow{i + 1, i + 1, a[i], b[i], "same", 0})
	}
	rows = append(rows, between(a[head:len(a)-tail], b[head:len(b)-tail], head)...)
	for i := tail; i > 0; i-- {
		rows = append(rows, diffRow{len(a) - i + 1, len(b) - i + 1, a[len(a)-i], b[len(b)-i], "same", 0})
	}
	return shorten(rows)
}

// between compares what is left by the longest common subsequence.
func between(a, b []string, offset int) []diffRow {
	var removed, added []int
	var rows []diffRow
	flush := func() {
		for i := range max(len(removed), len(added)) {
			row := diffRow{}
			if i < len(removed) {
				row.OldNo, row.Old, row.Kind = offset+removed[i]+1, a[removed[i]], "removed"
			}
			if i < len(added) {
				row.NewNo, row.New = offset+added[i]+1, b[added[i]]
				if row.Kind = "added"; i < len(removed) {
					row.Kind = "changed"
				}
			}
			rows = append(rows, row)
		}
		removed, added = nil, nil
	}
	i, j := 0, 0
	if len(a) <= diffMax && len(b) <= diffMax {
		common := make([][]uint16, len(a)+1) // common[i][j]: of a[i:] and b[j:]
		for i := range common {
			common[i] = make([]uint16, len(b)+1)
		}
		for i := len(a) - 1; i >= 0; i-- {
			for j := len(b) - 1; j >= 0; j-- {
				if a[i] == b[j] {
					common[i][j] = common[i+1][j+1] + 1
				} else {
					common[i][j] = max(common[i+1][j], common[i][j+1])
				}
			}
		}
		for i < len(a) && j < len(b) {
			switch {
			case a[i] == b[j]:
				flush()
				rows = append(rows, diffRow{offset + i + 1, offset + j + 1, a[i], b[j], "same", 0})
				i, j = i+1, j+1
			case common[i+1][j] >= common[i][j+1]:
				removed, i = append(removed, i), i+1
			default:
				added, j = append(added, j), j+1
			}
		}
	}
	for ; i < len(a); i++ {
		removed = append(removed, i)
	}
	for ; j < len(b); j++ {
		added = append(added, j)
	}
	flush()
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
	for i := range rows {
		if rows[i].Kind != "same" && rows[i].Kind != "skip" {
			return true
		}
	}
	return false
}
