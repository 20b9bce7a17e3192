package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// row is one measure. text is measured on the text of the tree, typed on the program; a row has one of the two.
type row struct {
	name       string
	text       func(*measured) string
	typed      func(*program, tree) string
	aim, later string
	definition string
	why        string // it is not reached; empty: it is
}

// notMeasured is said of a row for which something is missing here.
const notMeasured = "not measured here"

func (r *row) now(m *measured) string {
	switch {
	case r.text != nil:
		return r.text(m)
	case m.prog == nil:
		return notMeasured
	}
	return r.typed(m.prog, m.text)
}

// rows are in the order in which they are printed.
var rows = []row{
	{
		"product code", code, nil, "≤ 88500, without what overload brings", "≤ 78000; kernel ≤ 37000",
		"lines of Go without blanks, comments, tests, laboratory, examples, tools and test helpers; of which the kernel: core, scheduler, ingest, supervisor, agents, schema, wire, expr, natsbus, streams, ground, all of node",
		"what the mends of accepted work, money, security and operators need came to as much as the redesign removed: each has a test that fails without it, and no large piece stands twice",
	}, {
		"make test", testMinutes, nil, "≤ 15 min", "≤ 12 min",
		"minutes on 2 quiet cores, warm cache: the seconds of bin/test-times.txt, the part total or else the sum of all parts",
		"",
	}, {
		"cycle", nil, inScheduler(fileCycle), "≤ 15; ≤ 20", "",
		"largest set of files of scheduler that reach each other by uses of functions, methods, types and constants; pairs of files that use each other",
		"",
	}, {
		"Shard", nil, inScheduler(shardSize), "≤ 115; ≤ 24; ≤ 28", "",
		"methods of Shard, functions that take one and methods of structs that wrap one (not of Committer, which runs it); fields of Shard; of partition",
		"",
	}, {
		"writers of a field", nil, inScheduler(fieldWriters), "0 of each", "",
		"fields of Shard, partition and entry that several files write (assign to, take the address of, delete from, clear); functions of scheduler that touch theirs, of how many",
		"",
	}, {
		"step state", nil, stepState, "≤ 28", "",
		"leaf fields of core.StepState: a struct of core that a field holds or points to counts by its own fields",
		"",
	}, {
		"claims", nil, func(p *program, _ tree) string { return fmt.Sprint(p.claims()) }, "1", "",
		"places outside core that fill a field, as Kind, with EventClaim",
		"",
	}, {
		"askers", nil, askers, "1", "",
		"functions of scheduler that ask whether a do may leave: they call one of the questions in calls.go (the gate, its stages and what these ask) and are none themselves; who asks about order or memory alone is not counted",
		"",
	}, {
		"wakers", nil, wakeRow, "1", "",
		"assignments to lookAt, keysAt, ready, looking in scheduler, taking the address included, clearing and lengthening not; files",
		"",
	}, {
		"audit", nil, audit, "1", "",
		"functions that append to the audit trail: they call a method Append that takes an AuditEntry; files",
		"",
	}, {
		"a new column of a task", columnEdits, nil, "3", "",
		"lines that name start_at or StartAt, outside comments, in core/task.go, chain and schema; files. A place in a list that has no name, as a ?, is an edit more",
		"a field, its column, and init.sql of both dialects, which nothing generates; the fifth is a question that asks by it",
	}, {
		"a new operator verb", nil, func(p *program, _ tree) string { return fmt.Sprintf("%d files", p.verbFiles()) }, "7", "≤ 3",
		"files that name one constant of operate.Action, the median of all",
		"CLI, API, console, operations on many and the checks before each name it: one table of verbs is for later",
	}, {
		"journal formats; migrations", nil, formats, "1; 1 a dialect", "",
		"schema.journalFormat; files of schema/migrations",
		"",
	}, {
		"settings", nil, settings, "", "≤ 30",
		"fields of internal/config that name an environment variable",
		"",
	}, {
		"dependencies", func(m *measured) string { return fmt.Sprint(m.text.dependencies()) }, nil, "", "≤ 28",
		"direct requirements of the root module",
		"",
	}, {
		"exported", nil, exportedRow, "≤ 2700; 0", "≤ 2200",
		"exported identifiers of the product and dulytest, methods included, fields not; those of internal and role packages that no other package uses: none names them, not in a test either, and nothing exported consists of them, takes or returns them",
		"inputs of the API are read by reflection and stand inside others; defaults are for who reads Config; the rest are ports",
	}, {
		"comments", comments, nil, "≥ 15 %", "≥ 18 %",
		"lines of nothing but comment, share of these and of lines of code, in core, scheduler, schema, natsbus",
		"",
	}, {
		"words of docs", func(m *measured) string { return fmt.Sprint(m.text.words()) }, nil, "", "≤ 40000",
		"words of README, ARCHITECTURE and docs, decisions included, without pages that a test or a tool writes",
		"",
	},
}

// kernel are the folders of what a task's life needs.
var kernel = []string{
	"internal/core", "scheduler", "ingest", "supervisor", "agents", "schema", "internal/wire", "internal/expr", "internal/natsbus",
	"internal/streams", "internal/ground", "internal/node",
}

func code(m *measured) string {
	all, _ := m.text.lines()
	of, _ := m.text.lines(kernel...)
	return fmt.Sprintf("%d; kernel %d", all, of)
}

func comments(m *measured) string {
	var shares []string
	for _, folder := range []string{"internal/core", "scheduler", "schema", "internal/natsbus"} {
		code, comments := m.text.lines(folder)
		shares = append(shares, fmt.Sprintf("%.1f", 100*float64(comments)/float64(max(1, code+comments))))
	}
	return strings.Join(shares, ", ") + " %"
}

var startAt = regexp.MustCompile(`\b(start_at|StartAt)\b`)

func columnEdits(m *measured) string {
	edits, files := m.text.naming(startAt, "internal/core/task.go", "internal/chain", "schema")
	return fmt.Sprintf("%d in %d files", edits, files)
}

// testMinutes reads what the last run of the tests left.
func testMinutes(m *measured) string {
	text, err := os.ReadFile(filepath.Join(m.root, "bin", "test-times.txt"))
	if err != nil {
		return notMeasured
	}
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		said, part, _ := strings.Cut(strings.TrimSpace(line), "\t")
		seconds, err := strconv.ParseFloat(said, 64)
		switch {
		case err != nil:
		case part == "total":
			return fmt.Sprintf("%.1f min", seconds/60)
		default:
			sum += seconds
		}
	}
	return fmt.Sprintf("%.1f min", sum/60)
}

// inScheduler measures the scheduler, where there is one.
func inScheduler(measure func(*program, *unit) string) func(*program, tree) string {
	return func(p *program, _ tree) string {
		u := p.byName["scheduler"]
		if u == nil {
			return notMeasured
		}
		return measure(p, u)
	}
}

func fileCycle(p *program, u *unit) string {
	largest, files, pairs := cycle(p.uses(u))
	return fmt.Sprintf("%d of %d; %d", largest, files, pairs)
}

func shardSize(p *program, u *unit) string {
	return fmt.Sprintf("%d; %d; %d", p.methodsOf(u, "Shard"), len(fieldsOf(u.structOf("Shard"))), len(fieldsOf(u.structOf("partition"))))
}

func fieldWriters(p *program, u *unit) string {
	var functions, shared []string
	for _, name := range []string{"Shard", "partition", "entry"} {
		touch, several := p.touched(u, name)
		functions, shared = append(functions, fmt.Sprint(touch)), append(shared, fmt.Sprint(several))
	}
	return fmt.Sprintf("%s; %s of %d", strings.Join(shared, ", "), strings.Join(functions, ", "), len(u.functions()))
}

func stepState(p *program, _ tree) string {
	u := p.byName["internal/core"]
	s := u.structOf("StepState")
	if s == nil {
		return notMeasured
	}
	return fmt.Sprint(leaves(s, u.types))
}

func askers(p *program, _ tree) string {
	return places(p.callers(p.below("scheduler"), isQuestion))
}

func audit(p *program, _ tree) string {
	return places(p.callers(p.packages, isAppend))
}

func places(names, files map[string]bool) string {
	return fmt.Sprintf("%d in %d files", len(names), len(files))
}

func wakeRow(p *program, _ tree) string {
	n, files := p.wakes()
	return fmt.Sprintf("%d in %d files", n, files)
}

func formats(p *program, t tree) string {
	return fmt.Sprintf("%d; %d", p.constant("schema", "journalFormat"), t.migrations())
}

func settings(p *program, _ tree) string {
	return fmt.Sprint(p.byName["internal/config"].tagged(`env:"`))
}

func exportedRow(p *program, t tree) string {
	all, unused := p.exported(t)
	defaults := 0
	for _, name := range unused {
		if strings.Contains(name, ".Default") {
			defaults++
		}
	}
	return fmt.Sprintf("%d; %d, of which %d Default…", all, len(unused), defaults)
}
