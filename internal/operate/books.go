package operate

import (
	"context"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// Limits of the books.
const (
	GhostsMax         = 1000                 // that a comparison names; all are counted
	GhostsAcceptedMax = 10_000               // that are remembered as accepted
	GhostAcceptedFor  = 400 * 24 * time.Hour // after that an accepted one is forgotten
)

// Names of the settings in which the books keep what is no ghost.
const (
	SettingBooksAsked  = "books.asked"  // BooksAsked
	SettingBooksFailed = "books.failed" // BooksFailed
)

// GhostKind says what is wrong between journal and service.
type GhostKind string

// The kinds of ghost.
const (
	GhostOfUndone GhostKind = "effect_of_undone" // an effect stands whose step was undone, or never done
	GhostMissing  GhostKind = "effect_missing"   // a task is processed, and the effect of a step of it does not stand
	GhostDoubled  GhostKind = "effect_doubled"   // an effect was made more than once
	GhostUnknown  GhostKind = "effect_of_none"   // an effect of a task that is not known
)

// GhostKinds are all kinds.
var GhostKinds = []GhostKind{GhostOfUndone, GhostMissing, GhostDoubled, GhostUnknown}

// GhostStatus says whether someone has to look at a ghost.
type GhostStatus string

// What a ghost can be.
const (
	GhostOpen     GhostStatus = "open"
	GhostAsked    GhostStatus = "asked"    // a repair was asked for; the next comparison says whether it helped
	GhostAccepted GhostStatus = "accepted" // it is known and explained, and counts no more
)

// Repair is what may be asked about a ghost.
type Repair string

// The repairs.
const (
	RepairUndo   Repair = "undo"   // of an undone task: undo the step again; of a processed one: undo the task
	RepairAccept Repair = "accept" // it is known and explained
)

// Ghost is one thing that does not agree, with the evidence.
type Ghost struct {
	Kind  GhostKind  `json:"kind"`
	Agent string     `json:"agent"`
	Key   string     `json:"key"` // of the effect: <task>/<step>/<round>
	Task  string     `json:"task"`
	Type  string     `json:"type,omitempty"`
	Step  string     `json:"step"`
	State core.State `json:"state,omitempty"` // of the task; empty: it is not known
	Seq   int64      `json:"seq,omitempty"`   // of the task's newest journal row when it was compared
	Times int        `json:"times"`           // how often the service made the effect; 0: it has none
	Made  time.Time  `json:"made,omitzero"`   // when the service made it
	Text  string     `json:"text"`            // one sentence: what is wrong, and what mends it
	Found time.Time  `json:"found,omitzero"`  // when a comparison found it first

	Status  GhostStatus `json:"status"`
	Repairs []Repair    `json:"repairs"`          // that may be asked for
	By      string      `json:"by,omitempty"`     // who asked for the newest repair
	Decided time.Time   `json:"decided,omitzero"` // when
	Repair  Repair      `json:"repair,omitempty"` // which
	Reason  string      `json:"reason,omitempty"` // why
	Audit   int64       `json:"audit,omitempty"`  // number of its entry in the audit trail
	Again   bool        `json:"again,omitempty"`  // a comparison found it again after an undo was asked for
}

// Can reports whether a repair may be asked for.
func (g *Ghost) Can(r Repair) bool {
	for _, one := range g.Repairs {
		if one == r {
			return true
		}
	}
	return false
}

// AgentBooks is what one agent answered.
type AgentBooks struct {
	Agent   string `json:"agent"`
	Effects int64  `json:"effects"`
	None    bool   `json:"none,omitempty"`  // it keeps no books
	Error   string `json:"error,omitempty"` // why its books are not known; empty: they are
}

// BooksResult is what a comparison of journal and services came to.
type BooksResult struct {
	Since    time.Time           `json:"since,omitzero"` // of the effects and tasks that were compared
	Begun    time.Time           `json:"begun,omitzero"`
	At       time.Time           `json:"at,omitzero"`
	Agents   []AgentBooks        `json:"agents"`
	Effects  int64               `json:"effects"`           // that were compared
	Tasks    int64               `json:"tasks"`             // processed ones whose effects were looked for
	Open     int64               `json:"open"`              // effects of tasks that have not ended: to be compared later
	Total    int64               `json:"total"`             // of ghosts that are not accepted
	Accepted int64               `json:"accepted"`          // ghosts that were found, and are accepted
	Kinds    map[GhostKind]int64 `json:"kinds"`             // of the total
	Answers  string              `json:"answers,omitempty"` // id of the newest request for a comparison when it began
	Cut      bool                `json:"cut,omitempty"`     // it ended at its limit of pages, so not all was compared
	Closed   bool                `json:"closed"`            // some agent keeps books, all that do answered, all was compared, and there is no ghost
}

// Kept is how many agents keep books, whether or not they answered.
func (r *BooksResult) Kept() int {
	n := 0
	for i := range r.Agents {
		if !r.Agents[i].None {
			n++
		}
	}
	return n
}

// Silent is how many agents keep books and did not answer.
func (r *BooksResult) Silent() int {
	n := 0
	for i := range r.Agents {
		if r.Agents[i].Error != "" {
			n++
		}
	}
	return n
}

// Sentence is the result in one line of sentences, the same everywhere.
func (r *BooksResult) Sentence() string {
	at, kept, silent := r.At.UTC().Format("15:04"), r.Kept(), r.Silent()
	switch {
	case r.At.IsZero():
		return say.Of("books.never")
	case kept == 0:
		return say.Of("books.none", "at", at)
	}
	said := say.Of("books.closed", "at", at, "n", r.Effects)
	switch {
	case r.Total > 0:
		said = say.Of("books.differ", "at", at, "n", r.Total, "of", r.Effects)
	case silent > 0:
		said = say.Of("books.unknown", "at", at, "n", silent, "of", kept, "effects", r.Effects)
	case r.Cut:
		said = say.Of("books.cut", "at", at, "n", r.Effects)
	}
	if r.Total > 0 && silent > 0 {
		said += " " + say.Of("books.silent", "n", silent, "of", kept)
	}
	for _, more := range []struct {
		id string
		n  int64
	}{{"books.open", r.Open}, {"books.accepted", r.Accepted}, {"books.without", int64(len(r.Agents) - kept)}} {
		if more.n > 0 {
			said += " " + say.Of(more.id, "n", more.n)
		}
	}
	return said
}

// BooksAsked is that someone wants a comparison now.
type BooksAsked struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
	By string    `json:"by"`
}

// BooksFailed is why the newest comparison did not come to its end.
type BooksFailed struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// BooksView is the newest result as people see it.
type BooksView struct {
	BooksResult
	Sentence string       `json:"sentence"`
	Asked    *BooksAsked  `json:"asked,omitempty"`  // a comparison that was asked for and has not ended
	Failed   *BooksFailed `json:"failed,omitempty"` // the newest comparison, if it did not come to its end
}

// Class is how the result looks: good, bad or calm.
func (v *BooksView) Class() string {
	switch {
	case v.Failed != nil || v.Total > 0 || v.Silent() > 0 || v.Cut:
		return "bad"
	case v.Closed:
		return "good"
	}
	return "calm"
}

// BooksStore keeps the newest result and the ghosts.
type BooksStore interface {
	// PutBooks stores a result and its ghosts in place of those before, unless a newer one is stored. Ghosts that were
	// accepted stay; of a ghost that was there already it is kept when it was found first and what was asked about it.
	PutBooks(ctx context.Context, r BooksResult, ghosts []Ghost) error
	// LastBooks returns the newest result. Error: core.ErrNotFound.
	LastBooks(ctx context.Context) (BooksResult, error)
	// Ghosts returns one page of those with one of the statuses, by agent and key; no status: all.
	Ghosts(ctx context.Context, statuses []GhostStatus, limit int, after string) (ghosts []Ghost, next string, err error)
	// Ghost returns one. Error: core.ErrNotFound.
	Ghost(ctx context.Context, agent, key string) (Ghost, error)
	// DecideGhost stores status, repair, who, when, why and audit of a ghost. Errors: core.ErrNotFound, *Refusal when
	// GhostsAcceptedMax are accepted already.
	DecideGhost(ctx context.Context, g Ghost) error
	// SavedIDs returns rows with journals, as the owners' LoadIDs, over the connections of people who ask.
	SavedIDs(ctx context.Context, partition int, ids []string) ([]core.Saved, error)
}

// RepairRequest asks for a repair of one ghost.
type RepairRequest struct {
	Agent  string
	Effect string // key of the effect
	Repair Repair
	Reason string
	Key    string // Idempotency-Key: the same key is carried out once
}

// Books is how operators see the books and repair what does not agree. Every change is in the audit trail before it is
// made.
type Books interface {
	Books(ctx context.Context) (BooksView, error)
	Ghosts(ctx context.Context, statuses []GhostStatus, limit int, after string) ([]Ghost, string, error)
	// Ghost returns one. Error: core.ErrNotFound.
	Ghost(ctx context.Context, agent, key string) (Ghost, error)
	// Compare asks the leader for a comparison now. Error: *Refusal.
	Compare(ctx context.Context, by Actor, reason string) (BooksView, error)
	// Repair carries out a repair of one ghost. Error: *Refusal.
	Repair(ctx context.Context, by Actor, r RepairRequest) (Answer, error)
}

// RepairsOf are the repairs of a ghost. now is whether the task's state and journal let its owner undo: see core.
func RepairsOf(undo bool) []Repair {
	if undo {
		return []Repair{RepairUndo, RepairAccept}
	}
	return []Repair{RepairAccept}
}

// effectTarget is what the audit trail calls an effect.
func effectTarget(agent, key string) string {
	return "effect/" + core.ShortText(strings.ToValidUTF8(agent, "\uFFFD"), core.NameBytesMax*4) + "/" + core.ShortText(strings.ToValidUTF8(key, "\uFFFD"), 2*core.NameBytesMax+16)
}
