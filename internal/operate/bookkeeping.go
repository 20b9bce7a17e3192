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
	"duly.dev/duly/internal/say"
)

// Bookkeeping is Books over the state store. All fields are required. It is safe for concurrent use.
type Bookkeeping struct {
	Store    BooksStore
	Settings SettingStore
	Desk     *Desk
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
	compare := Act{By: by, Action: "books.compare", Target: "books", Reason: reason}
	if bad := firstOf(CheckOperator(by, compare.Action), CheckReason(reason)); bad != nil {
		return BooksView{}, b.Desk.Note(ctx, &compare, bad)
	}
	asked := BooksAsked{ID: strings.ToLower(rand.Text()), At: b.Now().UTC(), By: by.Name}
	document, err := json.Marshal(asked)
	if err != nil {
		return BooksView{}, fmt.Errorf("books: %w", err)
	}
	compare.After = asked
	if err := b.Desk.Change(ctx, &compare, func(ctx context.Context) error { return b.Settings.PutSetting(ctx, SettingBooksAsked, document) }); err != nil {
		return BooksView{}, fmt.Errorf("books: %w", err)
	}
	return b.Books(ctx)
}

// Repair implements Books. An undo is an action on the task like any other: it is the task's owner that decides, about
// the journal row that the comparison saw.
func (b *Bookkeeping) Repair(ctx context.Context, by Actor, r RepairRequest) (Answer, error) {
	repair := Act{By: by, Action: "books." + core.NameOf(string(r.Repair), core.NameBytesMax), Target: effectTarget(r.Agent, r.Effect), Reason: r.Reason, Key: r.Key}
	no := func(bad *Refusal) (Answer, error) { return Answer{}, b.Desk.Note(ctx, &repair, bad) }
	if bad := CheckOperator(by, repair.Action); bad != nil {
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
		return no(&Refusal{Code: 404, Field: "key", Detail: say.Of("ghost.gone", "agent", core.QuoteShort(r.Agent), "key", core.QuoteShort(r.Effect))})
	}
	if err != nil {
		return Answer{}, fmt.Errorf("ghost %s: %w", core.QuoteShort(r.Effect), err)
	}
	if r.Repair == RepairAccept {
		return b.accept(ctx, &repair, g)
	}
	if !g.Can(RepairUndo) {
		return no(&Refusal{Code: 409, Field: "repair", Detail: say.Of("ghost.not-undoable", "key", core.QuoteShort(g.Key), "state", stateWord(g.State), "text", g.Text)})
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
func (b *Bookkeeping) accept(ctx context.Context, accept *Act, g Ghost) (Answer, error) {
	accept.Before = g
	err := b.Desk.Change(ctx, accept, func(ctx context.Context) error {
		g.Status, g.Repair, g.By, g.Decided, g.Reason, g.Audit = GhostAccepted, RepairAccept, accept.By.Name, b.Now().UTC(), accept.Reason, accept.Number
		if err := b.Store.DecideGhost(ctx, g); errors.Is(err, core.ErrNotFound) {
			return &Refusal{Code: 404, Field: "key", Detail: say.Of("ghost.gone", "agent", core.QuoteShort(g.Agent), "key", core.QuoteShort(g.Key))}
		} else if err != nil {
			return fmt.Errorf("ghost %s: %w", core.QuoteShort(g.Key), err)
		}
		return nil
	})
	return Answer{Type: g.Type, ID: g.Task, Action: Action(RepairAccept), State: g.State, Outcome: say.Of("ghost.accepted"), Audit: accept.Number, Again: accept.Again != nil}, err
}
