package sim

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// ground is what the roles stand on besides SQL, and how it has moved.
type ground struct {
	taskAge, controlAge int                     // identities of the streams
	astray              map[int]bool            // partitions whose owners may not have seen yet that their stream went back
	trimmed             map[string]core.Instant // ids whose messages were removed when all had been read, and when

	refusing span // the database takes no commit
	readOnly bool // and meanwhile it answers questions
	full     span // the streams take nothing
	others   span // the streams are another installation's
}

func newGround() ground {
	return ground{taskAge: 1, controlAge: 1, astray: map[int]bool{}, trimmed: map[string]core.Instant{}}
}

// moveGround draws what moves under the roles, without any of them being started again,
// and when.
//
// What is promised: the role that uses a stream, a bucket or a database that is not as it left
// it finds out, and begins at what is there now. What is lost is what the streams have
// lost.
func (w *World) moveGround() {
	w.dumpLater()
	for _, m := range []struct {
		fault Fault
		do    func()
	}{
		{DatabaseRefuses, func() { w.refuse(false) }}, {DatabaseReadOnly, func() { w.refuse(true) }},
		{StreamsMade, func() { w.makeStreams(true, true) }}, {ControlLost, func() { w.makeStreams(false, true) }},
		{StreamShorter, w.shorten}, {BucketLost, w.loseBucket}, {StreamsFull, func() { w.full = w.while() }},
		{NATSEmpty, func() { w.loseBucket(); w.leasesLost = true; w.makeStreams(true, true) }},
		{SecondInstallation, w.otherInstallation}, {ClockWrong, w.wrongClock},
	} {
		if w.fault(m.fault) {
			w.after(w.upTo(w.cfg.Storm), m.do)
		}
	}
}

// while is a time from now on.
func (w *World) while() span { return span{w.now, w.now.Add(1 + w.upTo(time.Second))} }

// dumpLater lets SQL be restored from a dump of any time before, while most nodes go on.
func (w *World) dumpLater() {
	if !w.fault(DumpRestored) {
		return
	}
	at := w.upTo(w.cfg.Storm)
	w.after(at, func() {
		b := w.backup()
		w.after(1+w.upTo(w.cfg.Storm-at+1), func() {
			w.refuse(false)
			w.nodes[w.rand.IntN(len(w.nodes))].restart()
			w.after(w.refusing.until.Sub(w.now), func() {
				if !w.abandoned(b.at) {
					w.tell("", -1, "SQL is restored from a dump of %s", w.stamp(b.at))
					w.replaceStore(b)
					w.countLost()
				}
			})
		})
	})
}

func (w *World) refuse(readOnly bool) {
	w.refusing, w.readOnly = w.while(), readOnly
	w.tell("", -1, "the database takes no commit until %s", w.stamp(w.refusing.until))
}

// unreachable reports whether the database answers nothing.
func (w *World) unreachable() bool { return w.during(w.refusing) && !w.readOnly }

// loseBucket forgets all evidence.
func (w *World) loseBucket() {
	w.tell("", -1, "the evidence is lost")
	clear(w.evidence)
	clear(w.former)
	for i := range w.forgot.times {
		if both := w.forgot.times[i].both; both != nil {
			clear(both.shown)
		}
	}
	if len(w.wishes) > 0 { // they were in it as well
		w.setWishes()
	}
}

// makeStreams lets streams be lost and made again, empty, while the nodes live.
func (w *World) makeStreams(tasks, control bool) {
	w.tell("", -1, "streams are lost and made again: tasks %v, control %v", tasks, control)
	if control {
		w.loseAsks(0)
		w.controlAge++
		w.controls = nil
	}
	if tasks {
		w.taskAge++
		w.stream = nil
		clear(w.astray)
	}
	w.forgot.streams = append(w.forgot.streams, w.now)
	w.countLost()
	w.readersLook()
}

// shorten lets streams come back as they were a while ago, under their own identities: a
// volume was restored, or what was not synced is gone. They may have grown past a cursor
// before it is looked at, most of all where no scheduler runs meanwhile.
func (w *World) shorten() {
	which := w.rand.IntN(3)
	w.tell("", -1, "streams go back")
	if n := len(w.stream); n > 0 && which != 1 {
		w.stream = w.stream[:n-1-w.rand.IntN(min(n, 8))]
		for p := range w.cfg.Partitions {
			w.astray[p] = true
		}
	}
	if n := len(w.controls); n > 0 && which != 0 {
		keep := n - 1 - w.rand.IntN(min(n, 8))
		w.loseAsks(keep)
		w.controls = w.controls[:keep]
	}
	w.forgot.streams = append(w.forgot.streams, w.now)
	w.countLost()
	if w.rand.IntN(2) == 0 {
		w.loseBucket() // it was on the same volume
	}
	if w.rand.IntN(2) == 0 {
		w.down = max(w.down, w.now.Add(w.upTo(time.Second)))
		for _, n := range w.nodes {
			n.restart()
		}
	}
	w.readersLook()
}

// readersLook lets every reader find out soon that its stream has moved. Until then it
// reads nothing: its consumer is gone.
func (w *World) readersLook() {
	for _, n := range w.nodes {
		for p := range w.cfg.Partitions {
			f := n.feeds[p]
			if f == nil {
				continue
			}
			f.blind = true
			n.after(w.upTo(500*time.Millisecond), func() {
				if n.feeds[p] != f || !f.reads {
					return
				}
				why := w.streamsOf(p, f)
				if f.blind = why != nil; f.blind && f.epoch > 0 {
					n.lose(p, f.epoch, why)
				}
				f.next, f.control = int(f.last.pos), int(f.lastControl.pos) // of messages of others it knows nothing
				n.pump(p)
			})
		}
	}
}

// errOtherStream: the cursor belongs to a stream that is no more.
var errOtherStream = errors.New("another stream")

// streamsOf says why what a feed has read is not what the streams hold, nil if it is.
func (w *World) streamsOf(p int, f *feed) error {
	if f.tasks != w.taskAge || f.controls != w.controlAge {
		return errOtherStream
	}
	var tasks, control error
	if wentBack(w.stream, f.last) {
		tasks = scheduler.ErrRewound
		if uint64(len(w.stream)) >= f.last.pos {
			w.note(StreamGrown)
		}
	}
	if wentBack(w.controls, f.lastControl) {
		control = scheduler.ErrControlRewound
	}
	if tasks == nil && control == nil {
		return nil
	}
	w.tell("", p, "the streams of partition %d went back: tasks %v, control %v", p, tasks != nil, control != nil)
	return errors.Join(tasks, control)
}

// place is a position in a stream, and when the stream took the message there; 0: not known.
type place struct {
	pos uint64
	at  core.Instant
}

// wentBack reports whether a stream ends before a place, or has another message there.
func wentBack(stream []message, at place) bool {
	if uint64(len(stream)) < at.pos {
		return true
	}
	return at.pos > 0 && at.at != 0 && !stream[at.pos-1].gone && stream[at.pos-1].at != at.at
}

// trim removes messages that every cursor has passed.
func (w *World) trim() {
	to := uint64(len(w.stream))
	for p := range w.cfg.Partitions {
		st := w.Store.Partition(p)
		if !w.readsTasks(st.Stream) || wentBack(w.stream, place{st.Cursor, st.CursorStored}) {
			return
		}
		for i := st.Cursor; i < to; i++ {
			if w.stream[i].partition == p {
				to = i
			}
		}
	}
	for i := range w.stream[:to] {
		m := &w.stream[i]
		m.gone = true
		for k := range m.subs {
			if id := m.subs[k].ID; w.trimmed[id] == 0 {
				w.trimmed[id] = w.now
			}
		}
	}
}

// otherInstallation puts another installation's streams in the place of ours for a while,
// as a wrong configuration of the servers does: partitions are given up, and no node can
// take them over.
func (w *World) otherInstallation() {
	w.tell("", -1, "the streams are another installation's")
	w.others = w.while()
	for _, n := range w.nodes {
		for p := range w.cfg.Partitions {
			f := n.feeds[p]
			if f == nil {
				continue
			}
			n.after(w.upTo(500*time.Millisecond), func() {
				if n.feeds[p] == f && f.epoch > 0 {
					n.lose(p, f.epoch, errOtherStream)
				}
			})
		}
	}
}

// wrongClock sets the clock of one agent or supervisor far off for a while. Schedulers and
// ingest correct theirs by the server's.
func (w *World) wrongClock() {
	all := make([]*clock, 0, len(w.agents)+len(w.bosses))
	for _, a := range w.agents {
		all = append(all, a.clock)
	}
	for _, b := range w.bosses {
		all = append(all, b.clock)
	}
	c := all[w.rand.IntN(len(all))]
	c.wrong = clockWrong
	if w.rand.IntN(2) == 0 {
		c.wrong = -clockWrong
	}
	w.tell("", -1, "a clock is %v wrong", c.wrong)
	w.after(w.upTo(w.cfg.Storm), func() { c.wrong = 0 })
}

// clockWrong is far beyond what the plans' grace covers.
const clockWrong = 90 * time.Second

// streamName is the identity of the present streams.
func (w *World) streamName() string {
	return fmt.Sprintf("tasks-%d/controls-%d", w.taskAge, w.controlAge)
}

// readsTasks and readsControl report whether cursors are those of the present streams.
func (w *World) readsTasks(stream string) bool {
	tasks, _, _ := strings.Cut(stream, "/")
	return tasks == fmt.Sprintf("tasks-%d", w.taskAge)
}

func (w *World) readsControl(stream string) bool {
	_, control, _ := strings.Cut(stream, "/")
	return control == fmt.Sprintf("controls-%d", w.controlAge)
}
