package api

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
)

// answerLines answers in the order of the lines, and counts. When the client is gone it only makes room, so that the
// reader ends.
func (b *bulk) answerLines(sum *summaryJSON) {
	var queue []*bulkLine
	for {
		if len(queue) == 0 {
			l := b.nextLine()
			if l == nil {
				return
			}
			queue = append(queue, l)
		}
		l := queue[0]
		if l.answer != nil || b.settle(&queue) {
			sum.count(l.answer.Outcome)
			b.put(l.answer)
		}
		close(l.done)
		b.bytes.Release(l.size)
		b.room.Release(1)
		queue[0] = nil
		queue = queue[1:]
	}
}

// nextLine waits for the next line to answer; nil: there is none any more. What is known meanwhile is sent.
func (b *bulk) nextLine() *bulkLine {
	select {
	case l := <-b.lines:
		return l
	default:
		b.out.push()
		return <-b.lines
	}
}

// became waits for what becomes of a line; false: the client is gone. What is known meanwhile is sent.
func (b *bulk) became(l *bulkLine) bool {
	select {
	case became := <-l.became:
		l.got = &became
		return true
	default:
		b.out.push()
	}
	select {
	case became := <-l.became:
		l.got = &became
		return true
	case <-b.ctx.Done():
		return false
	}
}

func (s *summaryJSON) count(outcome string) {
	s.Lines++
	switch outcome {
	case lineStored:
		s.Stored++
	case lineExisting:
		s.Existing++
	case lineRefused:
		s.Refused++
	case lineFailed:
		s.Failed++
	}
}

// settle waits for what becomes of the first line of the queue. While there is no room for it at the door it is handed in
// again, and with it those behind it that found none either. It reports false when the client is gone.
func (b *bulk) settle(queue *[]*bulkLine) bool {
	l := (*queue)[0]
	for {
		if l.got == nil && !b.became(l) {
			return false
		}
		*l.got = b.told(b.ctx, *l.got)
		bad := l.got.Err
		switch {
		case bad == nil:
			l.answer = accepted(l)
			return true
		case !bad.Retryable() || b.stopped.Load() || !time.Now().Before(l.until):
			l.refused(&lineJSON{Form: l.req.Form}, bad)
			return true
		}
		// The jitter keeps those that were refused together from coming back together.
		wait := cmp.Or(bad.Retry, ingest.RetryFull)
		b.wait(min(wait+rand.N(wait/2), time.Until(l.until)))
		b.waiting(queue)
		b.again(*queue)
	}
}

// accepted is the answer to a line that the door took.
func accepted(l *bulkLine) *lineAnswerJSON {
	a := &lineAnswerJSON{Line: l.number, Outcome: lineStored, ID: l.got.Task, Type: l.req.Type, State: cmp.Or(l.got.State, core.StatePending), Stream: l.got.Stream,
		Position: fmt.Sprintf("%d.%d", l.got.Partition, l.got.Seq), Warning: l.got.Warning}
	if l.got.Again {
		a.Outcome = lineExisting
	}
	return a
}

// wait waits, or until the client is gone or the server stops.
func (b *bulk) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.ctx.Done():
	case <-b.cfg.Closing:
	}
}

// waiting takes into the queue what is behind it; how much that is the room for lines bounds.
func (b *bulk) waiting(queue *[]*bulkLine) {
	for {
		select {
		case l, more := <-b.lines:
			if !more {
				return
			}
			*queue = append(*queue, l)
		default:
			return
		}
	}
}

// again hands in once more what may be taken now.
func (b *bulk) again(queue []*bulkLine) {
	now := time.Now()
	for _, l := range queue {
		if l.answer != nil {
			continue
		}
		if l.got == nil {
			select {
			case became := <-l.became:
				l.got = &became
			default:
				continue
			}
		}
		if l.got.Err != nil && l.got.Err.Retryable() && now.Before(l.until) && b.ctx.Err() == nil {
			l.got = nil
			b.door.Submit(l.req)
		}
	}
}

// put writes one line of the answer.
func (b *bulk) put(line any) {
	text, err := encode(line)
	if err != nil {
		b.log.Error("a line of a bulk submission cannot be answered", "error", err)
		return
	}
	b.out.put(text)
}

// send sends what is held until there is no more, or the client is gone.
func (b *bulk) send(w io.Writer) {
	for {
		text, more := b.out.next(b.rc)
		if text == nil {
			return
		}
		_, err := w.Write(text)
		if err == nil && !more {
			err = b.rc.Flush()
		}
		b.out.sent(b.rc)
		if err != nil {
			b.gone()
			b.out.drop()
			return
		}
	}
}

// heldChunk is how many bytes of answers are kept, and sent, together.
const heldChunk = 32 << 10

// heldOwn is how many chunks a client may have without the room that all share.
const heldOwn = 2

// held are answers that wait until the client takes them: one that sends everything before it reads anything must not
// wait for us while we wait for it. A client has some room of its own, and as much as is left of what all share.
type held struct {
	shared  *semaphore.Weighted // in chunks
	idle    time.Duration       // for the client to take a chunk, while it sends nothing
	mu      sync.Mutex
	changed sync.Cond
	chunks  [][]byte
	count   int  // of chunks that are kept or sent just now
	pooled  int  // of them: of the shared room
	last    bool // nothing is sent yet
	ready   bool // there is enough to be sent, or no more comes soon
	sending bool
	closed  bool // no more comes
	dropped bool // the client is gone
}

func (h *held) init(shared *semaphore.Weighted, idle time.Duration, last bool) {
	h.shared, h.idle, h.last = shared, idle, last
	h.changed.L = &h.mu
}

// put keeps a text, when there is room.
func (h *held) put(text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !h.dropped && !h.fits(len(text)) {
		h.last, h.ready = false, true
		h.changed.Broadcast()
		h.changed.Wait()
	}
	if h.dropped {
		return
	}
	last := len(h.chunks) - 1
	if h.chunks[last] = append(h.chunks[last], text...); len(h.chunks[last]) >= heldChunk/4 {
		h.ready = true
		h.changed.Broadcast()
	}
}

// push has sent what is kept, however little it is.
func (h *held) push() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ready = len(h.chunks) > 0; h.ready {
		h.changed.Broadcast()
	}
}

// fits makes room for so many bytes, if it can.
func (h *held) fits(n int) bool {
	if last := len(h.chunks) - 1; last >= 0 && len(h.chunks[last])+n <= heldChunk {
		return true
	}
	switch {
	case h.count < heldOwn:
	case h.shared.TryAcquire(1):
		h.pooled++
	default:
		return false
	}
	h.count++
	h.chunks = append(h.chunks, make([]byte, 0, max(n, heldChunk/8)))
	return true
}

// next waits for a text to send; nil: there is none any more. more says that another waits behind it.
func (h *held) next(rc *http.ResponseController) (text []byte, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for (len(h.chunks) == 0 || h.last || !h.ready) && !h.closed && !h.dropped {
		h.changed.Wait()
	}
	if len(h.chunks) == 0 || h.dropped {
		return nil, false
	}
	text, h.chunks = h.chunks[0], h.chunks[1:]
	h.sending, h.ready = true, len(h.chunks) > 0
	_ = rc.SetWriteDeadline(time.Now().Add(h.idle)) // a writer without deadlines is a test's
	return text, len(h.chunks) > 0
}

// sent gives back the room of what was sent.
func (h *held) sent(rc *http.ResponseController) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sending = false
	_ = rc.SetWriteDeadline(time.Time{})
	if h.count--; h.pooled > 0 {
		h.pooled--
		h.shared.Release(1)
	}
	h.changed.Broadcast()
}

// alive gives a client that sends more time to take what is sent to it.
func (h *held) alive(rc *http.ResponseController) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sending {
		_ = rc.SetWriteDeadline(time.Now().Add(h.idle))
	}
}

// begin has sent what waits for the end of the body.
func (h *held) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = false
	h.changed.Broadcast()
}

// close says that no more comes: what is kept is still sent.
func (h *held) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.changed.Broadcast()
}

// drop forgets what is kept: there is no one to take it.
func (h *held) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropped, h.chunks = true, nil
	h.shared.Release(int64(h.pooled))
	h.pooled = 0
	h.changed.Broadcast()
}
