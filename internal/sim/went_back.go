package sim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// forgot is what SQL had committed and does not have any more.
type forgot struct {
	commits map[int64]bool
	ids     map[string]bool
	ends    map[forgotEnd]bool
	times   []lostTime
	former  map[int]bool    // partitions in which a former owner went on
	asks    map[string]bool // ids whose requests are lost
	undone  map[string]bool // keys whose undo was on its way when SQL went back, and came after their do of now
	streams []core.Instant  // when streams were lost, or went back, and with them what SQL would read again
}

type forgotEnd struct {
	id  string
	end ended
}

// lostTime is what one going back has lost.
type lostTime struct {
	from, to core.Instant
	keys     map[string]bool // whose do or undo was sent in it last
	both     *bothLost       // nil: the streams stayed
}

func newForgot() forgot {
	return forgot{commits: map[int64]bool{}, ids: map[string]bool{}, ends: map[forgotEnd]bool{}, former: map[int]bool{}, asks: map[string]bool{}, undone: map[string]bool{}}
}

// wentBackLater lets SQL fail over to a standby that is a little behind, while the
// nodes, the network and all that is under way live on.
//
// What is promised: an owner's next commit, or its look, finds that the row is not as it
// left it, and the partition is taken over again. What was accepted is read again. What
// ran in the lost time has the same keys, and where the new run does not come to it
// again it is undone by key.
func (w *World) wentBackLater() {
	if !w.fault(SQLWentBack) {
		return
	}
	at := w.upTo(w.cfg.Storm)
	w.after(at, func() {
		b, backs := w.backup(), w.backs
		w.after(1+w.upTo(min(2*time.Second, w.cfg.Storm-at+1)), func() {
			if w.backs != backs {
				return // the standby followed a database that is no more
			}
			w.tell("", -1, "SQL fails over to a standby as of %s", w.stamp(b.at))
			w.replaceStore(b)
			w.countLost()
		})
	})
}

// abandoned reports whether a time is one that a failover has lost: a backup from then
// is not of this database, and holds ends of tasks that have run again since.
func (w *World) abandoned(at core.Instant) bool {
	return slices.ContainsFunc(w.forgot.times, func(t lostTime) bool { return at > t.from && at <= t.to })
}

// loseAsks notes whose requests a control stream takes with it from some position on, while
// SQL does not have them: it may lose them yet when an owner has them in flight.
func (w *World) loseAsks(from int) {
	for i, m := range w.controls {
		if i < from {
			continue
		}
		if st := w.Store.partition(m.partition); w.readsControl(st.Stream) && uint64(i+1) <= st.ControlCursor {
			continue
		}
		for _, id := range append(m.ids, m.control.ID) {
			w.forgot.asks[id] = true
		}
	}
}

// endedIn reports whether the task of a key ended between two times.
func (w *World) endedIn(p int, key string, from, to core.Instant) bool {
	id, _, _ := strings.Cut(key, "/")
	r := w.Store.ids[idKey{p, id}]
	return r != nil && r.task.State.Ended() && slices.ContainsFunc(w.endedAt[id], func(at core.Instant) bool { return at > from && at < to })
}

// noticedAfter is when an owner of a partition last noticed that SQL went back, after some
// time and as SQL still knows; 0: none has, or SQL has forgotten that as well.
func (w *World) noticedAfter(p int, after core.Instant) core.Instant {
	for _, at := range slices.Backward(w.noticed[p]) {
		if at > after && !w.abandoned(at) {
			return at
		}
	}
	return 0
}

func (w *World) backup() backup {
	b := backup{at: w.now, store: w.Store.copy(), pauses: w.pauses, astray: maps.Clone(w.astray), published: published{maps.Clone(w.published.last), maps.Clone(w.published.ends)}}
	if w.second != nil {
		b.writes = len(w.second.done)
	}
	return b
}

// replaceStore puts an older copy in SQL's place.
func (w *World) replaceStore(b backup) {
	w.backs++
	lost := lostTime{from: b.at, to: w.now, keys: map[string]bool{}}
	for _, sent := range []map[string]core.Instant{w.doSent, w.undoSent} {
		for key, at := range sent {
			lost.keys[key] = lost.keys[key] || at >= b.at // at the same instant it may have been behind the copy
		}
	}
	w.forgot.times = append(w.forgot.times, lost)
	for key, is := range w.Store.rows {
		was := b.store.rows[key]
		var commits []int64
		var ends []ended
		if was == nil || was.task.ID != is.task.ID {
			w.forgot.ids[is.task.ID] = true
		} else {
			commits, ends = slices.Concat(was.commits, was.past), was.ends
		}
		for _, c := range is.past { // a former owner that has stood still may yet send by them
			if !slices.Contains(commits, c) {
				w.forgot.commits[c] = true
			}
		}
		for i, c := range is.commits {
			if slices.Contains(commits, c) {
				continue
			}
			w.forgot.commits[c] = true
			if j := &is.journal[i]; j.Kind == core.KindAccepted {
				w.takeBack(&is.task, j)
			}
		}
		for _, e := range is.ends {
			if !slices.Contains(ends, e) {
				w.forgot.ends[forgotEnd{is.task.ID, e}] = true
			}
		}
	}
	if slices.ContainsFunc(w.forgot.streams, func(at core.Instant) bool { return at > b.at }) {
		for p := range w.cfg.Partitions { // an owner of that time may go on, which has not seen yet that its stream went back
			w.astray[p] = true
		}
	}
	// Nor has one that had not seen it then. Its cursor is stored with the time of the message there, so the next reader finds
	// another message and begins again.
	maps.Copy(w.astray, b.astray)
	w.Store.restore(b.store)
	if w.second != nil {
		w.second.goBack(b.writes)
	}
	if !slices.Equal(w.pauses, b.pauses) {
		w.setPauses(b.pauses)
	}
	w.published.last = w.publishedOf(b)
}

// publishedOf is the newest word about each task of a copy that is in SQL's place now. The
// event stream keeps what it has.
func (w *World) publishedOf(b backup) map[string]core.Ending {
	last := maps.Clone(b.published.last)
	for id, e := range w.published.last {
		if r := w.Store.ids[idKey{e.Partition, id}]; r != nil && r.task.EndNumber == e.EndNumber && slices.Contains(r.ends, ended{e.Seq, e.State}) {
			last[id] = e
		}
	}
	return last
}

// forgotten reports whether a key's do or undo was last sent in time that SQL has lost
// without a partition's owner noticing: the last commits were not recorded outside, and
// the owner that knew them died with the database, or stood still since before them, or
// the streams that would show it again were lost before an owner noticed, too. What a person
// has settled by hand is no more the services' to know.
func (w *World) forgotten(p int, key string) bool {
	id, _, _ := strings.Cut(key, "/")
	root, _, _ := strings.Cut(id, "~") // a child's, whose submission brings it forth
	if w.asks.settled[key] || (w.forgot.asks[id] || w.forgot.asks[root]) && w.backs > 0 {
		return true
	}
	for _, lost := range w.forgot.times {
		noticed := w.noticedAfter(p, lost.to)
		if lost.both != nil && lost.keys[key] && lost.both.unknown(p, root) {
			return true
		}
		in := func(at core.Instant) bool {
			return at > lost.from && at <= noticed && (lost.both == nil || at != lost.to)
		}
		if lost.keys[key] && (noticed == 0 || w.forgot.former[p] || slices.ContainsFunc(w.forgot.streams, in) || in(w.trimmed[root]) || w.endedIn(p, key, lost.to, noticed)) {
			return true
		}
	}
	return false
}
