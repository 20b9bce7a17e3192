package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
)

// BooksMax is how many effects an answer, and how many keys a question, may have.
const BooksMax = 1000

// ErrNoBooks says that nothing listens on the subject of an agent's books: it keeps none, or no instance of it runs.
var ErrNoBooks = errors.New("agent keeps no books")

// SubjectBooks is where an agent answers what effects its service has.
func (n Names) SubjectBooks(agent string) string { return n.get().root + "books." + agent }

// PatternBooks selects the books of all agents.
func (n Names) PatternBooks() string { return n.get().root + "books.>" }

// BooksQuestion asks an agent for effects: those since a time, page by page, or those of some keys.
type BooksQuestion struct {
	V     int       `json:"v"`
	Since time.Time `json:"since,omitzero"`
	After string    `json:"after,omitempty"` // next of the page before
	Limit int       `json:"limit,omitempty"` // 1 to BooksMax
	Keys  []string  `json:"keys,omitempty"`  // at most BooksMax; then neither Since nor After counts
}

// BooksEffect is one effect that stands: what an undo has taken back is none.
type BooksEffect struct {
	Key   string    `json:"key"`
	Times int       `json:"times"` // how often it was made: 1, unless something is wrong
	At    time.Time `json:"at,omitzero"`
}

// BooksAnswer is a page of effects.
type BooksAnswer struct {
	V       int           `json:"v"`
	Effects []BooksEffect `json:"effects"`
	Next    string        `json:"next,omitempty"` // empty: this was the last page
}

// EncodeBooksQuestion makes the JSON of a question.
func EncodeBooksQuestion(q BooksQuestion) ([]byte, error) {
	q.V = Version
	return encodeBooks(&q)
}

// EncodeBooksAnswer makes the JSON of an answer.
func EncodeBooksAnswer(a BooksAnswer) ([]byte, error) {
	a.V = Version
	if a.Effects == nil {
		a.Effects = []BooksEffect{}
	}
	return encodeBooks(&a)
}

func encodeBooks(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("books: %w", err)
	}
	return data, nil
}

// DecodeBooksQuestion reads a question. Errors wrap ErrUndecodable and name the field, the value and the limit.
func DecodeBooksQuestion(data []byte) (BooksQuestion, error) {
	var q BooksQuestion
	if err := decodeOf("books", data, &q, &q.V); err != nil {
		return q, err
	}
	switch {
	case len(q.Keys) > BooksMax:
		return q, fmt.Errorf("%w: books: %d keys, the limit is %d", ErrUndecodable, len(q.Keys), BooksMax)
	case len(q.Keys) == 0 && (q.Limit < 1 || q.Limit > BooksMax):
		return q, fmt.Errorf("%w: books: limit %d, want 1 to %d", ErrUndecodable, q.Limit, BooksMax)
	}
	return q, nil
}

// DecodeBooksAnswer reads an answer. Errors wrap ErrUndecodable: no JSON, another version, more effects than there may
// be, an effect without a key or made less than once.
func DecodeBooksAnswer(data []byte) (BooksAnswer, error) {
	var a BooksAnswer
	if err := decodeOf("books", data, &a, &a.V); err != nil {
		return a, err
	}
	if len(a.Effects) > BooksMax {
		return a, fmt.Errorf("%w: books: %d effects, the limit is %d", ErrUndecodable, len(a.Effects), BooksMax)
	}
	for _, e := range a.Effects {
		if _, err := ParseKey(e.Key); err != nil || e.Times < 1 {
			return a, fmt.Errorf("%w: books: effect %s, made %d times: want a key <task>/<step>/<round>, 1 or more times", ErrUndecodable, core.QuoteShort(e.Key), e.Times)
		}
	}
	return a, nil
}
