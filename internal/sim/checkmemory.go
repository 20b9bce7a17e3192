package sim

// checkMemory: between two steps of its loop an owner holds exactly the tasks that have a
// command out or wait for their next attempt; those that rest it may hold. Load counts endings that are not published
// besides; of these the store knows the most there can be, unless an end number
// was spent since on a row that the database refused. Tasks that have children in flight are held with them; at the end
// nothing is: see lagging.
func (n *node) checkMemory(l *loop) {
	w := n.w
	for p := range w.cfg.Partitions {
		st := w.Store.partition(p)
		epoch, owns := n.shardOf(p).Owns(p)
		if n.loopOf(p) != l || !owns || epoch != st.Epoch || n.shardOf(p).LastCommit(p) != st.LastCommit { // with another commit it is about to lose it
			continue
		}
		active := 0
		for _, r := range w.Store.byNumber[p] {
			if r.task.Active() && !w.rests(r) {
				active++
			}
		}
		unpublished := int(st.NextEnd - 1 - st.Told)
		if load := n.shardOf(p).Load(p); load < active || load > active+unpublished && !n.shardOf(p).Unsaved() && !w.cfg.Graph {
			w.wrong(p, "", "node %s holds %d tasks and unpublished endings of partition %d; %d are active, and at most %d endings unpublished",
				n.name, load, p, active, unpublished)
		}
	}
}

// rests reports whether the owner of a task may have put it away though it is active.
func (w *World) rests(r *row) bool {
	if !w.cfg.Graph {
		return false
	}
	plan, t, err := w.Store.replay(r)
	return err == nil && t.Rests(plan)
}
