package storetest

import (
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// labelled is the write of a new task with labels.
func labelled(w core.TaskWrite, labels ...core.Label) core.TaskWrite {
	w.Task.Labels = labels
	return w
}

// labelRows is how many rows find tasks by a label; -1: the database is not to be had.
func (r *rig) labelRows() int {
	r.Helper()
	if r.db == nil {
		return -1
	}
	var n int
	r.must(r.db.QueryRow(`SELECT count(*) FROM labels`).Scan(&n))
	return n
}

func (r *rig) hasLabelRows(what string, want int) {
	r.Helper()
	if got := r.labelRows(); got >= 0 && got != want {
		r.Fatalf("%s: %d rows of labels, want %d", what, got, want)
	}
}

// ids are those of a list by label, in its order.
func (r *rig) labelledIDs(f core.Filter) (ids []string) {
	r.Helper()
	for {
		page := get(r.s.List(r.ctx, f))(r)
		for i := range page.Tasks {
			ids = append(ids, page.Tasks[i].ID)
		}
		if page.Next == "" {
			return ids
		}
		f.After = page.Next
	}
}

// testLabels: labels come back with the task, in their order, and find it, whatever way the commit took.
func testLabels(r *rig) {
	acme, other := core.Label{Key: "tenant", Value: "acme"}, core.Label{Key: "tenant", Value: "a=c me"}
	gold := core.Label{Key: "tier", Value: "gold"}
	r.write(labelled(birth(1, 1, "a"), gold, acme), birth(1, 2, "b"), labelled(birth(2, 1, "c"), acme), labelled(birth(1, 3, "d"), other))
	r.hasLabelRows("after three births with labels", 4)
	r.equal("in their order", get(r.s.Get(r.ctx, 1, "a"))(r).Labels, []core.Label{gold, acme})
	r.equal("without", get(r.s.Get(r.ctx, 1, "b"))(r).Labels, []core.Label(nil))
	r.equal("replayed by its owner", r.load(1, 1).Row.Labels, []core.Label{gold, acme})
	// c and a are of one second: the higher partition comes first.
	for f, want := range map[core.Filter][]string{
		{Label: "tenant=acme", Limit: 10}:                                {"c", "a"},
		{Label: "tenant=acme", Limit: 1}:                                 {"c", "a"},
		{Label: "tenant=a=c me", Limit: 10}:                              {"d"},
		{Label: "tier=gold", Limit: 10, State: core.StateProcessing}:     {"a"},
		{Label: "tier=gold", Limit: 10, State: core.StateError}:          nil,
		{Label: "tier=gold", Limit: 10, Type: "other"}:                   nil,
		{Label: "tier=silver", Limit: 10}:                                nil,
		{Label: "tier=gold", Limit: 10, Fingerprint: "0000000000000030"}: nil,
		{Label: "acme=tenant", Limit: 10}:                                nil,
		{Label: "tenant=acme", Limit: 10, Type: "order", State: "error"}: nil,
	} {
		r.equal(fmt.Sprintf("%+v", f), r.labelledIDs(f), want)
	}
	for i, c := range []struct {
		f    core.Filter
		want int64
	}{
		{core.Filter{Label: "tenant=acme"}, 2}, {core.Filter{Label: "tier=gold", State: core.StateProcessing}, 1}, {core.Filter{Label: "tier=gold", State: core.StateError}, 0},
		{core.Filter{Label: "tier=gold", Type: "other"}, 0}, {core.Filter{Label: "acme=tenant"}, 0},
	} {
		r.equal(fmt.Sprintf("members of %+v", c.f), get(r.s.Freeze(r.ctx, preview(fmt.Sprint("labelled", i)), operate.Selection{Filter: &c.f}))(r), c.want)
	}
	if _, err := r.s.List(r.ctx, core.Filter{Label: "tenant", Limit: 1}); err == nil {
		r.Error("a label without a value was taken")
	}
	page := get(r.s.List(r.ctx, core.Filter{Limit: 10, Label: "tier=gold"}))(r)
	r.equal("in a list", page.Tasks[0].Labels, []core.Label{gold, acme})

	// A commit that leaves births out writes the labels of the others; one that is sent again writes nothing twice.
	again := r.batch(labelled(birth(1, 4, "a"), gold), labelled(birth(1, 5, "e"), gold))
	want := core.CommitResult{Duplicates: []core.Duplicate{{Partition: 1, Number: 4, Existing: existing(birth(1, 1, "a"))}}}
	r.result(again, want)
	r.result(again, want)
	r.hasLabelRows("after a duplicate and another birth, twice", 5)
	r.equal("after a duplicate", r.labelledIDs(core.Filter{Label: "tier=gold", Limit: 10}), []string{"e", "a"})
	twice := r.batch(labelled(birth(1, 6, "f"), gold), birth(1, 7, "g"))
	r.taken(twice)
	r.taken(twice)
	r.hasLabelRows("after a batch that was sent twice", 6)
	get(r.s.TakeOver(r.ctx, 2, core.Claim{Owner: "successor"}))(r)
	r.result(r.batch(labelled(birth(2, 2, "h"), gold), labelled(birth(1, 8, "i"), gold)), core.CommitResult{Fenced: []int{2}})
	r.equal("of a fenced partition", r.labelledIDs(core.Filter{Label: "tier=gold", Limit: 10}), []string{"i", "f", "e", "a"})

	// A row that changes keeps them.
	first := birth(1, 1, "a").Task
	first.Labels = []core.Label{gold, acme}
	r.write(ended(first, core.StateProcessed, 1))
	r.equal("after its end", get(r.s.Get(r.ctx, 1, "a"))(r).Labels, []core.Label{gold, acme})
}

// testLabelsList: a list by label has no holes and shows no task twice, whatever the clocks said.
func testLabelsList(r *rig) {
	mark := core.Label{Key: "k", Value: "v"}
	want := 0
	for p := range partitions {
		var writes []core.TaskWrite
		for n := range int64(24) {
			w := birth(p, n+1, fmt.Sprintf("t%d-%d", p, n+1))
			if n%2 == 0 {
				w.Task.Labels = []core.Label{mark, {Key: "n", Value: fmt.Sprint(n)}}
				want++
			}
			switch n % 5 { // clocks that go back, also between two with the label
			case 1:
				w.Task.CreatedAt = w.Task.CreatedAt.Add(-10 * time.Second)
			case 3:
				w.Task.CreatedAt = w.Task.CreatedAt.Add(7 * time.Second)
			}
			writes = append(writes, w)
		}
		r.write(writes...)
	}
	for _, limit := range []int{1, 2, 3, 7, 1000} {
		r.equal(fmt.Sprintf("in pages of %d", limit), r.listed(core.Filter{Limit: limit, Label: "k=v"}), want)
	}
	r.equal("of one", r.listed(core.Filter{Limit: 1, Label: "n=4"}), partitions)
	// So many that they are not read at once, and few of them of the type that is asked for.
	many := make([]core.TaskWrite, 500)
	for i := range many {
		many[i] = labelled(birth(1, int64(100+i), fmt.Sprintf("m%d", i)), core.Label{Key: "many", Value: "v"})
		if i == 3 || i == 250 {
			many[i].Task.Type = "rare"
		}
	}
	r.write(many...)
	r.equal("many", r.listed(core.Filter{Limit: 120, Label: "many=v"}), len(many))
	r.equal("of a rare type", r.listed(core.Filter{Limit: 1, Label: "many=v", Type: "rare"}), 2)
}

// testLabelsForgotten: labels go with the row, not with its details: until then its tombstone is found by them.
func testLabelsForgotten(r *rig) {
	mark := core.Label{Key: "k", Value: "v"}
	all := []core.TaskWrite{labelled(birth(1, 1, "a"), mark), labelled(birth(1, 2, "b"), mark), birth(1, 3, "c"), labelled(birth(1, 4, "d"), mark)}
	r.write(all...)
	r.own[1].Told = 3
	var ends []core.TaskWrite
	for i := range 3 {
		ends = append(ends, ended(all[i].Task, core.StateProcessed, int64(i+1)))
	}
	r.write(ends...)
	never, late := core.Instant(0), start.Add(time.Hour)
	r.purged(never, late, 100, 3)
	r.equal("without details", r.labelledIDs(core.Filter{Label: "k=v", Limit: 10}), []string{"d", "b", "a"})
	r.equal("of a tombstone", get(r.s.Get(r.ctx, 1, "a"))(r).Labels, []core.Label{mark})
	r.purged(late, never, 2, 2) // a and b
	r.equal("without rows", r.labelledIDs(core.Filter{Label: "k=v", Limit: 10}), []string{"d"})
	r.hasLabelRows("without rows", 1)
	r.purged(late, never, 100, 1) // c, which has none
	r.hasLabelRows("at the end", 1)
}

// testFreezeRelated: an operation over the tasks of a label, or over the children of a task, has no others.
func testFreezeRelated(r *rig) {
	acme := core.Label{Key: "tenant", Value: "acme"}
	all := births(1, 3)
	root := all[0].Task
	all[1].Task.Labels = []core.Label{acme}
	kid := labelled(childOf(root, 11, 1, 1, 0), acme)
	r.write(append(all, childOf(root, 10, 1, 0, 0), kid)...)
	r.write(labelled(birth(2, 1, "elsewhere"), acme), birth(2, 2, "other"))
	for i, c := range []struct {
		f    core.Filter
		want []string
	}{
		{core.Filter{Label: "tenant=acme"}, []string{all[1].Task.ID, kid.Task.ID, "elsewhere"}},
		{core.Filter{Label: "tenant=other"}, nil},
		{core.Filter{Parent: root.ID}, []string{core.ChildID(root.ID, "s1", 0, 0, true), kid.Task.ID}},
		{core.Filter{Parent: "other"}, nil},
		{core.Filter{Parent: root.ID, Label: "tenant=acme"}, []string{kid.Task.ID}},
		{core.Filter{Label: "tenant=acme", State: core.StateError}, nil},
	} {
		id := fmt.Sprint("op", i)
		r.equal(fmt.Sprintf("%+v", c.f), get(r.s.Freeze(r.ctx, preview(id), operate.Selection{Filter: &c.f}))(r), int64(len(c.want)))
		var ids []string
		for _, m := range r.members(id, "", 100) {
			ids = append(ids, m.ID)
		}
		slices.Sort(ids)
		slices.Sort(c.want)
		r.equal(fmt.Sprintf("members of %+v", c.f), ids, c.want)
	}
}
