package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// Faults that hit what operators do to the flow and to single tasks: pauses, pins, requests by hand.

const (
	pausedTasks = 16
	laneKey     = "lane"
	// pauseSeen is how long all schedulers may take to see a pause of which they are not told, and a little.
	pauseSeen = 6 * time.Second
)

// pauseKill holds a plan, a step, an agent or a label back, and kills what owns partitions meanwhile:
// nothing that is held is called, what is not held goes on, and all ends when the pause is lifted.
func pauseKill(ctx context.Context, w *world, in *injection) error {
	ctx, cancel := context.WithTimeout(ctx, operatorMax)
	defer cancel()
	pauses := []map[string]any{
		{"type": mendType}, {"type": mendType, "step": drone.StepPackage.String()}, {"agent": "package.create"}, {"label": laneKey + "=north"},
	}
	which := int(w.turns % uint64(len(pauses)))
	w.turns++
	body := pauses[which]
	body["reason"] = "chaos"
	in.on = []string{"a plan", "a step", "an agent", "a label"}[which]
	north, south := w.load.mends(pausedTasks), w.load.mends(pausedTasks/2)
	held := drone.StepPackage
	if which == 0 || which == 3 {
		held = drone.StepAccount
	}
	w.outage.watch(append(idsOf(north), idsOf(south)...)...)
	in.begins()
	var set operate.Pause
	if err := w.demand(ctx, http.MethodPost, "/v1/pauses", "", body, &set); err != nil {
		return err
	}
	err := w.paused(ctx, in, which == 3, held, north, south)
	if lifted := w.remove(ctx, "/v1/pauses/"+set.ID); err == nil {
		err = lifted
	}
	if err != nil {
		return err
	}
	if _, err := w.endedAll(ctx, append(idsOf(north), idsOf(south)...)); err != nil {
		return err
	}
	wrong, err := w.audited(ctx, "pause/"+set.ID, map[string]int{"pause.set": 1, "pause.lift": 1})
	in.wrong = append(in.wrong, wrong...)
	return err
}

// paused submits tasks behind a pause and kills an owner.
func (w *world) paused(ctx context.Context, in *injection, byLabel bool, held drone.Step, north, south []drone.Request) error {
	if err := pause(ctx, pauseSeen); err != nil {
		return err
	}
	ends := duly.Within(operatorMax) // none is undone because the pause lasts
	err := errors.Join(w.submitMends(ctx, north, duly.Label(laneKey, "north"), ends), w.submitMends(ctx, south, duly.Label(laneKey, "south"), ends))
	if err != nil {
		return err
	}
	for range 2 {
		if err := w.kill(ctx, in, one(in, w.owners())); err != nil {
			return err
		}
		in.pick++
	}
	if byLabel { // the others pass
		if _, err := w.endedAll(ctx, idsOf(south)); err != nil {
			return err
		}
	} else {
		north = append(north, south...)
	}
	if err := w.takenOver(ctx); err != nil {
		return err
	}
	for _, id := range idsOf(north) {
		v, err := w.stored(ctx, id)
		if err != nil {
			return err
		}
		switch {
		case w.outage.wasCalled(id, held):
			in.wrong = append(in.wrong, fmt.Sprintf("task %s: step %s is paused, and was called", id, held))
		case v.State.Ended() && (held == drone.StepAccount || v.FailedStep != drone.StepAccount.String()): // which comes before
			in.wrong = append(in.wrong, fmt.Sprintf("task %s has ended as %s behind a pause", id, v.State))
		}
	}
	return nil
}

// takenOver waits until a fresh delivery of each partition is stored: each has an owner that reads.
func (w *world) takenOver(ctx context.Context) error {
	for partition := range partitions {
		id, err := w.load.submitTo(ctx, partition)
		if err != nil {
			return err
		}
		if err := w.await(ctx, "delivery "+id+" is not read", func(ctx context.Context) (bool, error) {
			_, err := w.view(ctx, partition, id)
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a pause or a limit. One that is not there any more was removed by a request whose answer was lost.
func (w *world) remove(ctx context.Context, path string) error {
	got, err := w.insist(ctx, http.MethodDelete, path+"?reason=chaos", "", nil, nil)
	if err == nil && got.status >= 300 && got.status != http.StatusNotFound {
		err = fmt.Errorf("remove %s: %s", path, got)
	}
	return err
}

// pinKill pins a partition to the node that does not own it, kills that node, has it back; then the
// owner steps down and is killed.
func pinKill(ctx context.Context, w *world, in *injection) error {
	ctx, cancel := context.WithTimeout(ctx, operatorMax)
	defer cancel()
	if err := w.schedulersLive(ctx); err != nil {
		return err
	}
	p := int(in.pick % partitions)
	owner, err := w.ownerOf(ctx, p, "")
	if err != nil {
		return err
	}
	pinned := "scheduler-a"
	if owner == pinned {
		pinned = "scheduler-b"
	}
	in.on = fmt.Sprintf("partition %d to %s", p, pinned)
	in.begins()
	path, target := fmt.Sprintf("/v1/partitions/%d/", p), fmt.Sprintf("partition/%d", p)
	before, err := w.auditOf(ctx, target)
	if err != nil {
		return err
	}
	if err := w.demand(ctx, http.MethodPost, path+"pin", "", map[string]any{"node": pinned, "reason": "chaos"}, nil); err != nil {
		return err
	}
	if _, err := w.ownerOf(ctx, p, pinned); err != nil {
		return err
	}
	node := w.role(pinned)
	w.mended.Kills++
	if err := node.end(syscall.SIGKILL); err != nil {
		return err
	}
	_, err = w.ownerOf(ctx, p, owner) // a pin to a node that is gone holds nothing up
	if err = errors.Join(err, node.start()); err != nil {
		return err
	}
	if _, err := w.ownerOf(ctx, p, pinned); err != nil {
		return err
	}
	got, err := w.insist(ctx, http.MethodPost, path+"step-down", "", map[string]any{"reason": "chaos"}, nil)
	if err != nil {
		return err
	}
	if got.status != http.StatusConflict {
		in.wrong = append(in.wrong, fmt.Sprintf("a node steps down from partition %d, which is pinned to it: %s", p, got))
	}
	if err := w.demand(ctx, http.MethodPost, path+"unpin", "", map[string]any{"reason": "chaos"}, nil); err != nil {
		return err
	}
	now, err := w.ownerOf(ctx, p, "")
	if err != nil {
		return err
	}
	if err := w.demand(ctx, http.MethodPost, path+"step-down", "", map[string]any{"reason": "chaos"}, nil); err != nil {
		return err
	}
	heir := "scheduler-a"
	if now == heir {
		heir = "scheduler-b"
	}
	if _, err := w.ownerOf(ctx, p, heir); err != nil {
		return err
	}
	if err := w.kill(ctx, in, w.role(heir)); err != nil {
		return err
	}
	if got, err = w.insist(ctx, http.MethodPost, path+"unpin", "", map[string]any{"reason": "chaos"}, nil); err != nil {
		return err
	}
	if got.status >= 300 && got.status != http.StatusConflict { // its time may be over
		return fmt.Errorf("unpin: %s", got)
	}
	wrong, err := w.added(ctx, target, len(before), map[string]int{"partition.pin": 1, "partition.unpin": 2, "partition.step_down": 2})
	in.wrong = append(in.wrong, wrong...)
	return err
}

// ownerOf waits until a partition has that owner (empty: any), and returns it.
func (w *world) ownerOf(ctx context.Context, partition int, wanted string) (owner string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	err = w.await(ctx, fmt.Sprintf("partition %d is not owned by %s", partition, wanted), func(ctx context.Context) (bool, error) {
		store, err := w.store()
		if err != nil {
			return false, err
		}
		all, err := store.Cursors(ctx)
		for i := range all {
			if all[i].Partition == partition {
				owner = all[i].Owner
			}
		}
		return owner != "" && (wanted == "" || owner == wanted), err
	})
	return owner, err
}

// handTasks are planted for each action by hand.
const handTasks = 6

// byHand accepts, edits and undoes tasks one by one, each request sent twice by one key, asks all
// sorts of things of deliveries that are at work, and kills owners and doors meanwhile.
func byHand(ctx context.Context, w *world, in *injection) error {
	ctx, cancel := context.WithTimeout(ctx, operatorMax)
	defer cancel()
	plants := map[operate.Action]drone.Step{operate.ActionAccept: drone.StepTransport, operate.ActionEdit: drone.StepDrone, operate.ActionUndo: drone.StepDrone}
	tasks := map[operate.Action][]string{}
	for action, step := range plants {
		ids, err := w.plant(ctx, handTasks, step, w.words())
		if err == nil && action == operate.ActionAccept {
			err = w.doByHand(ctx, step, ids)
		}
		if err != nil {
			return err
		}
		w.outage.open(ids...)
		tasks[action] = ids
	}
	in.begins()
	n := 0
	for action, ids := range tasks {
		for _, id := range ids {
			if n++; n%5 == 0 {
				if err := w.kill(ctx, in, w.handKills()[n/5%len(w.handKills())]); err != nil {
					return err
				}
			}
			wrong, err := w.askByHand(ctx, action, id)
			if err != nil {
				return err
			}
			in.wrong = append(in.wrong, wrong...)
		}
	}
	strange, err := w.askAtRandom(ctx, in.pick)
	if err != nil {
		return err
	}
	in.on = fmt.Sprintf("%d by hand, %d at random", n, strange)
	for action, ids := range tasks {
		wrong, err := w.judgeByHand(ctx, action, ids)
		if err != nil {
			return err
		}
		in.wrong = append(in.wrong, wrong...)
	}
	w.goneBack = true
	return nil
}

// handKills are what dies while requests are made by hand.
func (w *world) handKills() []*process {
	if w.stage.topology == devOnly {
		return []*process{w.role("dev")}
	}
	return append(w.schedulers(), w.role("ingest"))
}

// askByHand asks one action of one task, twice by the same key.
func (w *world) askByHand(ctx context.Context, action operate.Action, id string) (wrong []string, err error) {
	body := map[string]any{"reason": "chaos"}
	switch action {
	case operate.ActionAccept:
		body["result"] = map[string]any{}
	case operate.ActionEdit:
		v, err := w.stored(ctx, id)
		if err != nil {
			return nil, err
		}
		var input drone.Request
		if err := json.Unmarshal(v.Input, &input); err != nil {
			return nil, fmt.Errorf("input of %s: %w", id, err)
		}
		input.OwnerID += "-edited"
		body["input"] = input
	}
	path := taskPath(mendType, id) + "/" + string(action)
	var first, second operate.Answer
	if err := w.demand(ctx, http.MethodPost, path, "hand-"+id, body, &first); err != nil {
		return nil, err
	}
	got, err := w.insist(ctx, http.MethodPost, path, "hand-"+id, body, &second)
	if err != nil {
		return nil, err
	}
	if got.status >= 300 || !second.Again || second.Audit != first.Audit {
		wrong = append(wrong, fmt.Sprintf("%s of task %s, sent again by its key: %s, after entry %d", action, id, got, first.Audit))
	}
	return wrong, nil
}

// judgeByHand holds each action against journal, books and trail of its tasks.
func (w *world) judgeByHand(ctx context.Context, action operate.Action, ids []string) (wrong []string, err error) {
	kind := map[operate.Action]core.Kind{operate.ActionAccept: core.KindAccepted, operate.ActionEdit: core.KindResubmitted, operate.ActionUndo: core.KindUndoAsked}[action]
	store, err := w.store()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		n := 0
		if err := w.await(ctx, fmt.Sprintf("%s of task %s does not come about", action, id), func(ctx context.Context) (bool, error) {
			v, err := w.stored(ctx, id)
			if err != nil || !v.State.Ended() {
				return false, err
			}
			rows, err := store.Journal(ctx, v.Partition, v.Number)
			n = 0
			for i := range rows {
				if rows[i].Kind == kind {
					n++
				}
			}
			return n > 0, err
		}); err != nil {
			return nil, err
		}
		if n != 1 {
			wrong = append(wrong, fmt.Sprintf("task %s: %s was asked once, and was done %d times", id, action, n))
		}
		why, err := w.audited(ctx, "task/"+mendType+"/"+id, map[string]int{string(action): 1})
		if err != nil {
			return nil, err
		}
		wrong = append(wrong, why...)
	}
	return wrong, nil
}

// randomAsks is how many deliveries are asked something at random.
const randomAsks = 30

// askAtRandom asks deliveries that were accepted lately for anything. Whether it is possible their
// owners know; the books tell whether it was done well.
func (w *world) askAtRandom(ctx context.Context, seed uint64) (taken int, err error) {
	w.load.mu.Lock()
	var ids []string
	for i := max(0, len(w.load.accepted)-4*randomAsks); i < len(w.load.accepted) && len(ids) < randomAsks; i += 4 {
		if id := w.load.accepted[i]; !strings.HasPrefix(id, mendType) && !strings.HasPrefix(id, boundedType) {
			ids = append(ids, id)
		}
	}
	w.load.mu.Unlock()
	actions := []operate.Action{operate.ActionUndo, operate.ActionCancel, operate.ActionResubmit, operate.ActionExtend}
	for i, id := range ids {
		action := actions[(seed+uint64(i))%uint64(len(actions))]
		body := map[string]any{"reason": "chaos"}
		if action == operate.ActionExtend {
			body["until"] = time.Now().Add(2 * time.Minute).UTC()
		}
		got, err := w.insist(ctx, http.MethodPost, taskPath(drone.Type, id)+"/"+string(action), "random-"+id, body, nil)
		switch {
		case err != nil:
			return taken, err
		case got.status < 300:
			taken++
		case got.status != http.StatusConflict && got.status != http.StatusNotFound:
			return taken, fmt.Errorf("%s of %s: %s", action, id, got)
		}
	}
	return taken, nil
}
