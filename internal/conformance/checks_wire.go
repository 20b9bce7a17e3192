package conformance

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/wire"
)

// strange sends the next command for the key with members and a header that no agent knows.
func (l *life) strange(undo bool) (*call, answer, bool) {
	data := wire.AppendCommand([]byte(`{"later":{"list":[1,{"none":null}],"text":"é"},`), l.command(undo, l.result, l.o.CallTime))
	at := bytes.Index(data, []byte(`{"v":`))
	data = append(append(data[:at:at], data[at+1:len(data)-1]...), `,"zz_later":[true,-1.5e3,"\"",{}]}`...)
	c := l.desk.send("with members and a header that are not known", l.o.Names.CommandSubject(l.o.Agent, undo), nats.Header{"Duly-Later": {"1"}}, data, l.o.CallTime)
	a, answered := l.wait(c)
	if answered && a.ok() {
		l.took(undo, &a)
	}
	return c, a, answered
}

// unknown: P12.
func (s *scene) unknown() {
	const what = "a command with members that are not known "
	for range keysTried {
		l := s.life()
		c, a, answered := l.strange(false)
		if answered && a.final() {
			plain := l.do("do without them")
			if b, answered := s.desk.answer(plain); answered && b.final() {
				continue // the agent refuses the key
			}
		}
		if !answered || !a.ok() {
			s.unlessHidden(ruleUnknown, byAnswers, what+s.said(c), []string{ruleGroup}, c) // another instance may have been at it
			return
		}
		if !s.o.Check {
			if c, a, answered := l.strange(true); !answered || !a.ok() {
				s.unlessHidden(ruleUnknown, byAnswers, what+s.said(c), []string{ruleUndo, ruleGroup}, c)
				return
			}
		}
		s.held(ruleUnknown, byAnswers, "commands with members and a header that are not known were answered as others")
		return
	}
	s.open(ruleUnknown, "the agent refuses each key, also without such members")
}

// shortTimes are the times that commands of P11 have.
var shortTimes = []time.Duration{200 * time.Millisecond, 50 * time.Millisecond, 10 * time.Millisecond, time.Millisecond}

// over: P11. Answers that come late are found with all others, at the end.
func (s *scene) over() {
	var expired []*call
	for _, undo := range []bool{false, true} {
		if undo && s.o.Check {
			break
		}
		l := s.life()
		cmd := l.command(undo, nil, -time.Second)
		cmd.Left = 0
		expired = append(expired, l.send("a command whose time is over", cmd))
	}
	silence := s.o.Silence
	if s.o.SlowInput != nil { // what comes late comes when the work is done
		began := time.Now()
		s.life().with(s.o.SlowInput).do("do that takes long")
		silence = max(silence, 2*time.Since(began))
	}
	for _, left := range shortTimes {
		l := s.life().with(s.o.SlowInput)
		l.send(fmt.Sprintf("do with %v left", left), l.command(false, nil, left))
	}
	_ = pause.For(s.ctx, silence) // the check's end ends it, too
	for _, c := range expired {
		if _, answered := s.desk.answer(c); answered {
			s.broken(ruleSilent, byAnswers, "a command whose time was over "+s.said(c), c)
			return
		}
	}
	if c, alive := s.alive(); !alive {
		s.open(ruleSilent, "the agent is silent: the do of another key "+s.said(c))
		return
	}
	s.held(ruleSilent, byAnswers, fmt.Sprintf("nothing came in %v of commands whose time was over", silence.Round(time.Millisecond)))
}

// many: P13, under load. It ends when the agent has answered again, which may be busy with the many calls for long: only an
// agent that does not within the check's time is broken.
func (s *scene) many() {
	began := time.Now()
	calls := s.desk.sendMany("do among many", s.o.Names.CommandSubject(s.o.Agent, false), s.o.Calls,
		func() []byte { return wire.AppendCommand(nil, s.life().command(false, nil, s.o.CallTime)) }, s.o.CallTime, true)
	var done, busy, failed, silent int
	for _, c := range calls {
		a, answered := s.wait(c)
		switch {
		case !answered:
			silent++
		case a.ok():
			done++
		case core.BusyCode(a.reply.Code):
			busy++
		default:
			failed++
		}
	}
	took := time.Since(began).Round(time.Millisecond)
	c, alive := s.alive()
	for !alive && s.ctx.Err() == nil {
		c, alive = s.alive()
	}
	what := fmt.Sprintf("%d calls at a time in %v: %d done, %d busy, %d failed, %d without an answer in time", len(calls), took, done, busy, failed, silent)
	switch {
	case !alive:
		s.broken(ruleOneAnswer, byAnswers, what+"; afterwards the do of another key "+s.said(c), c)
	case silent == len(calls):
		s.open(ruleOneAnswer, what+": ask for fewer --calls, or give them more --call-time")
	default:
		s.held(ruleOneAnswer, byAnswers, what)
	}
}

// large: P9.
func (s *scene) large() {
	input := padded(s.o.Input, core.InputBytesMax+1)
	l := s.life().with(input)
	cmd := l.command(false, nil, s.o.CallTime)
	notes := ""
	if size := int64(len(wire.AppendCommand(nil, cmd)) + 1024); size > s.desk.nc.MaxPayload() {
		notes = fmt.Sprintf("; an input over %d bytes does not fit NATS's max_payload of %d", core.InputBytesMax, s.desk.nc.MaxPayload())
	} else if !s.bears(l.send(fmt.Sprintf("do with an input of %d bytes", len(input)), cmd)) {
		return
	}
	if s.o.LargeInput != nil {
		l := s.life().with(s.o.LargeInput)
		c := l.send("do whose result is too large", l.command(false, nil, s.o.CallTime))
		if !s.bears(c) {
			return
		}
		switch a, _ := s.desk.answer(c); {
		case a.failed && !core.LastCode(a.reply.Code):
			s.broken(ruleSize, byAnswers, fmt.Sprintf("a result that is too large %s: it would be sent again, want %d", s.said(c), core.CodeFailed), c)
			return
		case a.ok():
			notes += fmt.Sprintf("; the result of large-input had %d bytes, which are allowed", a.bytes)
		}
	}
	if notes != "" && s.o.LargeInput == nil {
		s.open(ruleSize, strings.TrimPrefix(notes, "; "))
		return
	}
	s.held(ruleSize, byAnswers, "what was too large was answered, with a result in its limit or an error"+notes)
}

// bears reports whether a call that is too large is answered by what is not, and the agent goes on.
func (s *scene) bears(c *call) bool {
	c.untimed = true // it is judged here
	a, answered := s.wait(c)
	other, alive := s.alive()
	switch {
	case !answered:
		s.broken(ruleSize, byAnswers, "what is too large "+s.said(c), c, other)
	case !a.failed && a.reply.Code != 0:
		s.broken(ruleSize, byAnswers, "a result is too large: "+a.reply.Error, c)
	case !alive:
		s.broken(ruleSize, byAnswers, "after what was too large the do of another key "+s.said(other), c, other)
	default:
		return true
	}
	return false
}

// padded is an input with so many bytes.
func padded(input []byte, size int) []byte {
	const member = `{"conformance_padding":"`
	rest := bytes.TrimSpace(input)
	if len(rest) < 2 || rest[0] != '{' {
		return []byte(`"` + strings.Repeat("x", size-2) + `"`)
	}
	rest = bytes.TrimSpace(rest[1:])
	end := `",`
	if rest[0] == '}' {
		end = `"`
	}
	return []byte(member + strings.Repeat("x", max(0, size-len(member)-len(end)-len(rest))) + end + string(rest))
}

// groupCommands is how many commands P14 is judged by.
const groupCommands = 32

// shared: P14. The run is a member of the queue group for a moment: what comes to it must come to no instance.
func (s *scene) shared() {
	subject := s.o.Names.CommandSubject(s.o.Agent, false)
	member, err := s.desk.nc.QueueSubscribe(subject, wire.GroupAgent, func(m *nats.Msg) {
		if m.Reply == "" || s.desk.hear(m.Reply) {
			return
		}
		// Another's command, for the agent: it comes again, and no attempt is used up.
		away := &nats.Msg{Header: nats.Header{wire.HeaderError: {"conformance listens for a moment"}, wire.HeaderErrorCode: {fmt.Sprint(core.CodeUnavailable)}}}
		_ = m.RespondMsg(away) // what is lost counts as no answer
	})
	if err == nil {
		err = s.desk.nc.FlushWithContext(s.ctx)
	}
	if err != nil {
		s.open(ruleGroup, fmt.Sprintf("subscribe to %s: %v", subject, err))
		return
	}
	lives, calls := make([]*life, groupCommands), make([]*call, groupCommands)
	for i := range lives {
		lives[i] = s.life()
		calls[i] = lives[i].send("do, with one more member of the queue group", lives[i].command(false, nil, s.o.CallTime))
	}
	s.quiet()
	s.judgeShared(subject, lives, calls)
	if err := member.Drain(); err != nil {
		return // the connection has ended, and with it the membership
	}
	for member.IsValid() { // others' commands that have come are answered
		if pause.For(s.ctx, lookEvery) != nil {
			return
		}
	}
}

// judgeShared judges P14 by what came to the run's own member and to the agent.
func (s *scene) judgeShared(subject string, lives []*life, calls []*call) {
	took := 0
	for _, c := range calls {
		if _, _, heard := s.desk.look(c); heard {
			took++
		}
	}
	if took == len(calls) {
		s.wait(calls[0]) // an agent that is no member may be slow
	}
	var both []*call
	for i, c := range calls {
		_, came, heard := s.desk.look(c)
		c.untimed = heard && came == 0
		lives[i].acted = !c.untimed
		if heard && came > 0 {
			both = append(both, c)
		}
	}
	switch {
	case len(both) > 0:
		s.broken(ruleGroup, byAnswers, fmt.Sprintf("%d of %d commands came to an instance and to another member of the queue group %s", len(both), len(calls), wire.GroupAgent), both...)
	case took == 0:
		s.open(ruleGroup, fmt.Sprintf("none of %d commands came to the run's own member of the queue group: its user may not subscribe to %s", len(calls), subject))
	case took == len(calls):
		s.open(ruleGroup, fmt.Sprintf("all of %d commands came to the run's own member of the queue group: NATS prefers members at the run's own server", len(calls)))
	default:
		s.held(ruleGroup, byAnswers, fmt.Sprintf("of %d commands %d came to another member of the queue group, and those to no instance", len(calls), took))
	}
}
