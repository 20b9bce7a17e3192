package operate

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// Bookkeeping is Books over the state store. All fields are required. It is safe for concurrent use.
type Bookkeeping struct {
	Store    BooksStore
	Settings SettingStore
	Trail    TrailWriter
	Actions  Actions
	Now      func() time.Time
}

var _ Books = (*Bookkeeping)(nil)

// Books implements Books.
func (b *Bookkeeping) Books(ctx context.Context) (BooksView, error) {
	var v BooksView
	var err error
	if v.BooksResult, err = b.Store.LastBooks(ctx); err != nil && !errors.Is(err, core.ErrNotFound) {
		return v, fmt.Errorf("books: %w", err)
	}
	if v.Agents == nil {
		v.Agents = []AgentBooks{}
	}
	if v.Kinds == nil {
		v.Kinds = map[GhostKind]int64{}
	}
	v.Sentence = v.BooksResult.Sentence()
	var asked BooksAsked
	switch found, err := b.document(ctx, SettingBooksAsked, &asked); {
	case err != nil:
		return v, err
	case found && asked.ID != v.Answers:
		v.Asked = &asked
	}
	var failed BooksFailed
	switch found, err := b.document(ctx, SettingBooksFailed, &failed); {
	case err != nil:
		return v, err
	case found && failed.At.After(v.At):
		v.Failed = &failed
	}
	return v, nil
}

// document reads a setting; false: there is none.
func (b *Bookkeeping) document(ctx context.Context, name string, into any) (bool, error) {
	data, err := b.Settings.Setting(ctx, name)
	if errors.Is(err, core.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("books: %w", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return false, fmt.Errorf("setting %s: %w", name, err)
	}
	return true, nil
}

// Ghosts implements Books.
func (b *Bookkeeping) Ghosts(ctx context.Context, statuses []GhostStatus, limit int, after string) ([]Ghost, string, error) {
	return b.Store.Ghosts(ctx, statuses, limit, after)
}

// Ghost implements Books.
func (b *Bookkeeping) Ghost(ctx context.Context, agent, key string) (Ghost, error) {
	return b.Store.Ghost(ctx, agent, key)
}

// Compare implements Books. One comparison answers all that were asked for before it began.
func (b *Bookkeeping) Compare(ctx context.Context, by Actor, reason string) (BooksView, error) {
	const action, target = "books.compare", "books"
	if bad := CheckOperator(by, action); bad != nil {
		return BooksView{}, refused(ctx, b.Trail, by, action, target, reason, nil, nil, bad)
	}
	if bad := CheckReason(reason); bad != nil {
		return BooksView{}, refused(ctx, b.Trail, by, action, target, reason, nil, nil, bad)
	}
	asked := BooksAsked{ID: strings.ToLower(rand.Text()), At: b.Now().UTC(), By: by.Name}
	document, err := json.Marshal(asked)
	if err != nil {
		return BooksView{}, fmt.Errorf("books: %w", err)
	}
	err = changed(ctx, b.Trail, by, action, target, reason, nil, asked, func() error { return b.Settings.PutSetting(ctx, SettingBooksAsked, document) })
	if err != nil {
		return BooksView{}, fmt.Errorf("books: %w", err)
	}
	return b.Books(ctx)
}

// Repair implements Books. An undo is an action on the task like any other: it is the task's owner that decides, about
// the journal row that the comparison saw.
func (b *Bookkeeping) Repair(ctx context.Context, by Actor, r RepairRequest) (Answer, error) {
	action, target := "books."+core.NameOf(string(r.Repair), core.NameBytesMax), effectTarget(r.Agent, r.Effect)
	no := func(bad *Refusal) (Answer, error) {
		return Answer{}, refused(ctx, b.Trail, by, action, target, r.Reason, nil, nil, bad)
	}
	if bad := CheckOperator(by, action); bad != nil {
		return no(bad)
	}
	if r.Repair != RepairUndo && r.Repair != RepairAccept {
		return no(&Refusal{Code: 400, Field: "repair", Detail: fmt.Sprintf("repair is %s, want undo or accept", core.QuoteShort(string(r.Repair)))})
	}
	if bad := checkReason(r.Reason); bad != nil {
		return no(bad)
	}
	g, err := b.Store.Ghost(ctx, r.Agent, r.Effect)
	if errors.Is(err, core.ErrNotFound) {
		return no(&Refusal{Code: 404, Field: "key", Detail: fmt.Sprintf("no ghost of agent %s has the key %s: it may have been repaired", core.QuoteShort(r.Agent), core.QuoteShort(r.Effect))})
	}
	if err != nil {
		return Answer{}, fmt.Errorf("ghost %s: %w", core.QuoteShort(r.Effect), err)
	}
	if r.Repair == RepairAccept {
		return b.accept(ctx, by, g, r, target)
	}
	if !g.Can(RepairUndo) {
		return no(&Refusal{Code: 409, Field: "repair", Detail: fmt.Sprintf("effect %s cannot be undone by its task, which is %s: %s; accept it when that is done", core.QuoteShort(g.Key), stateWord(g.State), g.Text)})
	}
	return b.undo(ctx, by, g, r)
}

func stateWord(s core.State) string {
	if s == "" {
		return "not known"
	}
	return string(s)
}

// undo asks the task's owner.
func (b *Bookkeeping) undo(ctx context.Context, by Actor, g Ghost, r RepairRequest) (Answer, error) {
	request := Request{Action: ActionUndo, Reason: r.Reason, IfSeq: g.Seq, Key: r.Key}
	if g.State == core.StateUndone {
		request.Step = g.Step
	}
	answer, err := b.Actions.Do(ctx, by, TaskRef{Type: g.Type, ID: g.Task}, request)
	if err != nil {
		return answer, err
	}
	if g.Status == GhostAsked && answer.Again {
		return answer, nil
	}
	g.Status, g.Repair, g.By, g.Decided, g.Reason, g.Audit = GhostAsked, RepairUndo, by.Name, b.Now().UTC(), r.Reason, answer.Audit
	if err := b.Store.DecideGhost(ctx, g); err != nil && !errors.Is(err, core.ErrNotFound) { // a comparison may have ended meanwhile
		return answer, fmt.Errorf("ghost %s: %w", core.QuoteShort(g.Key), err)
	}
	return answer, nil
}

// accept remembers that a ghost is explained.
func (b *Bookkeeping) accept(ctx context.Context, by Actor, g Ghost, r RepairRequest, target string) (Answer, error) {
	const action = "books.accept"
	answer := Answer{Type: g.Type, ID: g.Task, Action: Action(RepairAccept), State: g.State, Outcome: "it is remembered as explained, and counts no more"}
	e := entry(by, action, target, r.Reason, g, nil)
	e.Outcome, e.Key, e.Request = "", CleanText(r.Key), RequestFrom(ctx)
	number, again, err := b.Trail.Append(ctx, e)
	if err != nil {
		return answer, fmt.Errorf("audit trail: %w", err)
	}
	answer.Audit = number
	if again != nil {
		answer.Audit, answer.Again = again.Number, true
		if again.Action != action || again.Target != target {
			return answer, KeyTaken(r.Key, again)
		}
		switch again.Outcome {
		case "": // it is not known what became of it: it is done again
		case "done":
			return answer, nil
		default:
			return answer, &Refusal{Code: 409, Detail: "the same request was answered before: " + again.Outcome}
		}
	}
	g.Status, g.Repair, g.By, g.Decided, g.Reason, g.Audit = GhostAccepted, RepairAccept, by.Name, b.Now().UTC(), r.Reason, answer.Audit
	err = b.Store.DecideGhost(ctx, g)
	outcome := "done"
	bad, ok := errors.AsType[*Refusal](err)
	switch {
	case ok:
		outcome = "refused: " + bad.Detail
	case errors.Is(err, core.ErrNotFound):
		err = &Refusal{Code: 404, Field: "key", Detail: fmt.Sprintf("no ghost of agent %s has the key %s any more", core.QuoteShort(g.Agent), core.QuoteShort(g.Key))}
		outcome = "refused: " + err.Error()
	case err != nil:
		outcome = "failed: " + core.CutText(err.Error(), core.WordsBytesMax)
		err = fmt.Errorf("ghost %s: %w", core.QuoteShort(g.Key), err)
	}
	if told := b.Trail.SetOutcome(ctx, answer.Audit, outcome); told != nil {
		return answer, errors.Join(err, fmt.Errorf("audit trail, entry %d: %w", answer.Audit, told))
	}
	return answer, err
}
