package pgfault

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"duly.dev/duly/internal/pause"
)

// session is one connection of a client, with one to the server.
type session struct {
	p              *Proxy
	client, server net.Conn
	fromClient     *bufio.Reader
	fromServer     *bufio.Reader
	prepared       map[string]string
	status         byte   // of the transaction, as the client knows it
	behind         byte   // as the server knows it; they differ after a fault
	begin          string // how the client began its transaction
}

func newSession(p *Proxy, client, server net.Conn) *session {
	return &session{
		p: p, client: client, server: server, fromClient: bufio.NewReader(client), fromServer: bufio.NewReader(server),
		prepared: map[string]string{}, status: 'I', behind: 'I',
	}
}

// errCut ends a session by a fault.
var errCut = errors.New("cut")

// run serves the session. That either side goes away is no error.
func (s *session) run() error {
	err := s.start()
	for err == nil {
		var req *request
		if req, err = readRequest(s.fromClient, s.prepared, s.change, s.p.seen); err == nil {
			err = s.serve(req)
		}
	}
	var network net.Error
	if errors.Is(err, errCut) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &network) {
		return nil
	}
	return err
}

const (
	protocol3     = 3 << 16
	cancelRequest = 80877102
	startupMax    = 10_000 // bytes, as in the server
)

// start passes the beginning of a session on.
func (s *session) start() error {
	head, err := s.fromClient.Peek(8)
	if err != nil {
		return err
	}
	size, version := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
	if size < 8 || size > startupMax {
		return fmt.Errorf("startup message of %d bytes, want 8 to %d", size, startupMax)
	}
	message := make([]byte, size)
	if _, err := io.ReadFull(s.fromClient, message); err != nil {
		return err
	}
	if _, err := s.server.Write(message); err != nil {
		return err
	}
	if version == cancelRequest {
		return io.EOF // there is no answer
	}
	if r := s.p.refusal(nil); r != nil {
		_, err := s.refuse(r)
		return err
	}
	if version>>16 != protocol3>>16 {
		return fmt.Errorf("protocol version %d.%d, want 3", version>>16, version&0xffff)
	}
	a, err := readAnswer(s.fromServer, false, s.code)
	if err == nil && s.p.dice.Cockroach {
		a.wire, err = likeCockroach(a.wire)
	}
	_, werr := s.client.Write(a.wire)
	return errors.Join(err, werr)
}

// serve answers one request.
func (s *session) serve(req *request) error {
	if req.ends {
		_, err := s.server.Write(req.wire)
		return errors.Join(err, io.EOF)
	}
	inTransaction := s.status != 'I'
	at := req.at(inTransaction)
	if s.p.dice.Cockroach && req.is(release) && s.status == 'T' {
		at = commit
	}
	if s.status == 'E' || s.status == 'T' && s.behind == 'I' {
		at = passive // the transaction is over in all but name
	}
	fault, number := s.p.dice.draw(at, req.texts)
	if s.p.dice.cuts(number, req.texts, false) {
		return errCut
	}
	if fault == LostBefore {
		s.p.dice.count(fault)
		return errCut
	}
	if fault == Slow {
		s.p.dice.count(fault)
		if err := s.wait(); err != nil {
			return err
		}
	}
	var a answer
	var err error
	if r := s.refusal(req); r != nil {
		a, err = s.refuse(r)
	} else {
		a, err = s.answer(req, fault)
	}
	if err != nil {
		_, werr := s.client.Write(a.wire) // a server that goes away says why
		return errors.Join(err, werr)
	}
	s.status = a.status
	if s.p.dice.cuts(number, req.texts, true) {
		return errCut
	}
	_, err = s.client.Write(a.wire)
	return err
}

// refusal is the one for a request, if its transaction is not over already.
func (s *session) refusal(req *request) *Refusal {
	if s.status == 'E' || s.status == 'T' && s.behind == 'I' {
		return nil
	}
	return s.p.refusal(req)
}

// answer is what the client gets.
func (s *session) answer(req *request, fault Kind) (answer, error) {
	if s.p.dice.Cockroach {
		if a, err, taken := s.cockroach(req, fault); taken {
			return a, err
		}
	}
	if s.status == 'E' && s.behind == 'T' { // failed by us
		switch {
		case req.is("commit", "end"):
			return s.ask("ROLLBACK")
		case !req.is("rollback"):
			return refusal("25P02", "current transaction is aborted, commands ignored until end of transaction block", 'E')
		}
	}
	if req.is("begin", "start") {
		s.begin = req.texts[0]
	}
	status := s.status
	switch fault {
	case RetryAtStatement:
		s.p.dice.count(fault)
		if status == 'T' {
			status = 'E'
		}
		return refusal("40001", restart, status)
	case RetryAtCommit, UnknownRolledBack:
		return s.rolledBack(fault)
	case UnknownCommitted, LostAfter:
		a, err := s.pass(req.wire, req.copies)
		if err != nil || a.code != "" || a.status != 'I' {
			return a, err
		}
		return s.after(fault, 'I')
	}
	return s.pass(req.wire, req.copies)
}

// rolledBack ends a transaction by a fault and rolls it back, or does not run
// what is one by itself.
func (s *session) rolledBack(fault Kind) (answer, error) {
	if s.behind != 'I' {
		if a, err := s.ask("ROLLBACK"); err != nil {
			return a, err
		}
	}
	s.p.dice.count(fault)
	if fault == UnknownRolledBack {
		return refusal("40003", ambiguous, 'I')
	}
	return refusal("40001", restart, 'I')
}

// after is the answer to a commit that happened.
func (s *session) after(fault Kind, status byte) (answer, error) {
	s.p.dice.count(fault)
	if fault == LostAfter {
		return answer{}, errCut
	}
	return refusal("40003", ambiguous, status)
}

const (
	restart   = "restart transaction: injected by the proxy"
	ambiguous = "result is ambiguous: injected by the proxy"
)

// pass sends something to the server and reads the answer.
func (s *session) pass(wire []byte, copies bool) (answer, error) {
	// Both at once: a server that is full of answers reads no more of a pipeline.
	written := make(chan error, 1)
	go func() {
		_, err := s.server.Write(wire)
		written <- err
	}()
	a, err := readAnswer(s.fromServer, copies, s.code)
	if err != nil {
		s.server.Close()
	} else {
		s.behind = a.status
	}
	return a, errors.Join(err, <-written)
}

// ask runs a text of the proxy's own.
func (s *session) ask(text string) (answer, error) {
	wire, err := (&pgproto3.Query{String: text}).Encode(nil)
	if err != nil {
		return answer{}, err
	}
	return s.pass(wire, false)
}

func (s *session) wait() error {
	if pause.For(s.p.gone, time.Duration(s.p.dice.wait())*time.Millisecond) != nil {
		return errCut
	}
	return nil
}
