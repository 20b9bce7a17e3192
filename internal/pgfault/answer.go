package pgfault

import (
	"bufio"
	"errors"

	"github.com/jackc/pgx/v5/pgproto3"
)

// answer is what a server says to one request.
type answer struct {
	wire   []byte
	code   string // SQLSTATE of the first error
	status byte   // of the transaction: I, T or E
}

var errCopy = errors.New("COPY outside of a pipeline")

// readAnswer reads up to where the server is ready for the next request. What
// came before an error is in the answer as well. Codes are changed on the way.
func readAnswer(r *bufio.Reader, copies bool, code func(string) string) (answer, error) {
	var a answer
	for {
		f, err := readFrame(r)
		if err != nil {
			return a, err
		}
		if f.kind() == 'E' {
			var e pgproto3.ErrorResponse
			if err := e.Decode(f.body()); err != nil {
				return a, err
			}
			e.Code = code(e.Code)
			if a.code == "" {
				a.code = e.Code
			}
			if a.wire, err = e.Encode(a.wire); err != nil {
				return a, err
			}
			continue
		}
		a.wire = append(a.wire, f...)
		switch f.kind() {
		case 'G':
			if !copies {
				return a, errCopy
			}
		case 'Z':
			a.status = f[5]
			return a, nil
		}
	}
}

// refusal is an error and the state of the transaction after it.
func refusal(code, message string, status byte) (answer, error) {
	wire, err := (&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: code, Message: message}).Encode(nil)
	return ready(wire, code, status, err)
}

// done is the end of a command and the state of the transaction after it.
func done(tag string, status byte) (answer, error) {
	wire, err := (&pgproto3.CommandComplete{CommandTag: []byte(tag)}).Encode(nil)
	return ready(wire, "", status, err)
}

func ready(wire []byte, code string, status byte, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	wire, err = (&pgproto3.ReadyForQuery{TxStatus: status}).Encode(wire)
	return answer{wire: wire, code: code, status: status}, err
}
