package pgfault

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// frameMax bounds one message.
const frameMax = 256 << 20

// frame is one message with its type and length.
type frame []byte

func (f frame) kind() byte   { return f[0] }
func (f frame) body() []byte { return f[5:] }

func readFrame(r *bufio.Reader) (frame, error) {
	head, err := r.Peek(5)
	if err != nil {
		if len(head) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(head[1:])) + 1
	if size < 5 || size > frameMax {
		return nil, fmt.Errorf("message %q of %d bytes, want 5 to %d", head[0], size, frameMax)
	}
	f := make(frame, size)
	_, err = io.ReadFull(r, f)
	return f, err
}

// point is where in a transaction a request stands.
type point int

const (
	passive   point = iota // begins, prepares, sets up, rolls back: nothing fails there
	statement              // within a transaction
	read                   // a transaction by itself that writes nothing
	write                  // a transaction by itself
	commit                 // ends a transaction
)

// kinds are the ways to fail there.
func (p point) kinds() []Kind {
	switch p {
	case statement, read:
		return []Kind{RetryAtStatement, LostBefore, Slow}
	case write:
		return []Kind{RetryAtStatement, UnknownCommitted, UnknownRolledBack, LostBefore, LostAfter, Slow}
	case commit:
		return []Kind{RetryAtCommit, UnknownCommitted, UnknownRolledBack, LostBefore, LostAfter, Slow}
	}
	return nil
}

// request is what a client sends up to the point where it waits for an answer.
type request struct {
	wire   []byte
	texts  []string // that are run
	word   string   // the only text, in lower case and without spaces around it
	copies bool     // the rows of a COPY are in it
	ends   bool     // the client says goodbye
}

// readRequest reads the next request; prepared are the texts of the session's
// statements by name, seen is told of each text, once rewritten.
func readRequest(r *bufio.Reader, prepared map[string]string, change func(string) string, seen func(string)) (*request, error) {
	req := &request{}
	bound := ""
	for {
		f, err := readFrame(r)
		if err != nil {
			return nil, err
		}
		switch f.kind() {
		case 'Q':
			var q pgproto3.Query
			if err := q.Decode(f.body()); err != nil {
				return nil, err
			}
			seen(q.String)
			q.String = change(q.String)
			req.texts = append(req.texts, q.String)
			if req.wire, err = q.Encode(req.wire); err != nil {
				return nil, err
			}
			req.word = normal(q.String)
			return req, nil
		case 'P':
			var p pgproto3.Parse
			if err := p.Decode(f.body()); err != nil {
				return nil, err
			}
			seen(p.Query)
			p.Query = change(p.Query)
			prepared[p.Name] = p.Query
			if req.wire, err = p.Encode(req.wire); err != nil {
				return nil, err
			}
			continue
		case 'B':
			_, rest, _ := strings.Cut(string(f.body()), "\x00") // the portal
			name, _, _ := strings.Cut(rest, "\x00")
			bound = prepared[name]
		case 'E':
			req.texts = append(req.texts, bound)
		case 'c', 'f':
			req.copies = true
		}
		req.wire = append(req.wire, f...)
		switch f.kind() {
		case 'S', 'F':
			if len(req.texts) == 1 {
				req.word = normal(req.texts[0])
			}
			return req, nil
		case 'X':
			req.ends = true
			return req, nil
		}
	}
}

func normal(text string) string {
	return strings.TrimSuffix(strings.TrimSpace(strings.ToLower(text)), ";")
}

// is reports whether the request's only text begins with one of the words.
func (r *request) is(words ...string) bool {
	for _, w := range words {
		if r.word == w || strings.HasPrefix(r.word, w+" ") {
			return true
		}
	}
	return false
}

// at is where the request stands, in a transaction or not.
func (r *request) at(inTransaction bool) point {
	switch {
	case len(r.texts) == 0, r.is("begin", "start", "savepoint", "release", "rollback", "set", "show", "deallocate"):
		return passive
	case r.is("commit", "end"):
		return commit
	case inTransaction:
		return statement
	case len(r.texts) > 1: // a pipeline, whose end is that of its transaction
		return commit
	case r.is("select"):
		return read
	}
	return write
}
