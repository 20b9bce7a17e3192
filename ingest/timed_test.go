package ingest

import (
	"slices"
	"testing"
	"time"
)

// Submissions with a start-at have packs of their own: an owner that does not know them loses no other with them.
func TestTimedSubmissionsArePackedApart(t *testing.T) {
	r := newRig(t, nil)
	for i, id := range []string{"a1", "b1", "c1", "d1"} {
		req := r.request(id)
		if i%2 == 1 {
			req.StartAt = "30s"
		}
		r.door.Submit(epoch, req)
	}
	r.door.Flush(epoch.Add(time.Second))
	if len(r.log.got) != 2 || !slices.Equal(r.log.got[0].ids, []string{"a1", "c1"}) || !slices.Equal(r.log.got[1].ids, []string{"b1", "d1"}) {
		t.Fatalf("messages %+v, want those that begin at once and the others apart", r.log.got)
	}
	for i := range r.log.got {
		if r.log.got[i].partition != 1 {
			t.Errorf("message %d is of partition %d, want 1", i, r.log.got[i].partition)
		}
		r.log.store(i)
	}
	r.door.Flush(epoch.Add(time.Second))
	r.idle()
	for _, id := range []string{"a1", "b1", "c1", "d1"} {
		if a := r.answer(id); a.Err != nil {
			t.Errorf("%s: %v", id, a.Err)
		}
	}
	again := r.request("e1") // a pack that was of the timed is used for others again
	r.door.Submit(epoch.Add(2*time.Second), again)
	r.door.Flush(epoch.Add(3 * time.Second))
	if len(r.log.got) != 3 || !slices.Equal(r.log.got[2].ids, []string{"e1"}) || r.door.streams[0].open != 0 {
		t.Errorf("messages %+v, %d packs open", r.log.got, r.door.streams[0].open)
	}
}
