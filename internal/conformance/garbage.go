package conformance

import (
	"bytes"
	"fmt"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// nestedMost is how deep the deepest garbage is.
const nestedMost = 20_000

// junk is a payload that is no command.
type junk struct {
	what   string
	data   []byte
	undo   bool
	silent bool  // it has no reply subject
	key    *life // whose effect it must not have; nil: it names none
	taken  bool  // a do that is a command, with an input that the agent may take all the same
}

// junks are the payloads of P10.
func (s *scene) junks() []junk {
	of := func(undo bool, input []byte) (*life, []byte) {
		l := s.life().with(input)
		return l, wire.AppendCommand(nil, l.command(undo, nil, s.o.CallTime))
	}
	late, future := of(false, nil)
	future = bytes.Replace(future, []byte(`{"v":1,`), []byte(`{"v":99,`), 1)
	numbered, wrong := of(false, nil)
	wrong = bytes.Replace(wrong, fmt.Appendf(nil, `"key":%q`, numbered.key()), []byte(`"key":7`), 1)
	nameless, unnamed := of(false, nil)
	unnamed = bytes.Replace(unnamed, fmt.Appendf(nil, `"task":%q,`, nameless.task), nil, 1)
	keyless, short := of(false, nil)
	short = bytes.Replace(short, fmt.Appendf(nil, `"key":%q`, keyless.key()), fmt.Appendf(nil, `"key":%q`, keyless.task), 1)
	_, half := of(false, nil)
	odd := []byte(`[[7]]`)
	if in := bytes.TrimSpace(s.o.Input); len(in) > 0 && in[0] == '[' {
		odd = []byte(`{"conformance":[[7]]}`)
	}
	kind, foreign := of(false, odd)
	return []junk{
		{what: "an empty payload"},
		{what: "no JSON", data: []byte("conformance")},
		{what: "bytes that are no text", data: []byte{0xff, 0xfe, 0, 1, '{', 0xc3}},
		{what: "half a command", data: half[:len(half)/2]},
		{what: "null", data: []byte("null")},
		{what: "a list", data: []byte(`[{"v":1}]`)},
		{what: "an object without members", data: []byte(`{}`)},
		{what: "a key that is a number", data: wrong, key: numbered},
		{what: "a key that is none", data: short, key: keyless},
		{what: "a command without a task", data: unnamed, key: nameless},
		{what: "a version that there is not", data: future, key: late},
		{what: fmt.Sprintf("lists in lists, %d deep", nestedMost), data: []byte(strings.Repeat("[", nestedMost))},
		{what: "no JSON, as an undo", data: []byte("{conformance"), undo: true},
		{what: "no JSON, and no reply subject", data: []byte("conformance"), silent: true},
		{what: "an input of another kind", data: foreign, key: kind, taken: true},
	}
}

// garbage: P10.
func (s *scene) garbage() {
	n := 0
	for _, j := range s.junks() {
		if j.undo && s.o.Check {
			continue
		}
		n++
		if !s.refuses(&j) {
			return
		}
	}
	if !s.o.Check && !s.undoesForeign() {
		return
	}
	s.held(ruleGarbage, byAnswers, fmt.Sprintf("%d payloads were refused for good, and the agent went on after each", n))
}

// refuses plays one of them.
func (s *scene) refuses(j *junk) bool {
	subject := s.o.Names.CommandSubject(s.o.Agent, j.undo)
	if j.silent {
		if err := s.desk.nc.Publish(subject, j.data); err != nil {
			s.open(ruleGarbage, fmt.Sprintf("publish to %s: %v", subject, err))
			return false
		}
		return s.goesOn(j, nil)
	}
	c := s.desk.send(j.what, subject, nil, j.data, s.o.CallTime)
	c.untimed = true // it says no time
	a, answered := s.wait(c)
	switch {
	case !answered:
		other, alive := s.alive()
		why := j.what + " was not answered"
		if !alive {
			why += ", and afterwards the do of another key " + s.said(other)
		}
		s.broken(ruleGarbage, byAnswers, why, c, other)
		return false
	case a.ok() && !j.taken:
		s.broken(ruleGarbage, byAnswers, j.what+" was taken for a command", c)
		return false
	case !a.ok() && !a.final() && (a.reply.Code != core.CodeUnable || j.taken):
		s.broken(ruleGarbage, byAnswers, j.what+" "+s.said(c)+": it would be sent again; want 4xx", c)
		return false
	case !a.ok() && j.key != nil && s.stillStands(j.key):
		s.broken(ruleGarbage, byEffects, j.what+" was refused, and had an effect", c)
		return false
	}
	if j.key != nil {
		j.key.acted = a.ok()
	}
	return s.goesOn(j, c)
}

// goesOn reports whether the agent lives.
func (s *scene) goesOn(j *junk, c *call) bool {
	other, alive := s.alive()
	if !alive {
		s.broken(ruleGarbage, byAnswers, "after "+j.what+" the do of another key "+s.said(other), c, other)
	}
	return alive
}

// undoesForeign plays an undo with an input that is not the do's: it is not refused for it.
func (s *scene) undoesForeign() bool {
	l := s.life().with([]byte(`[[7]]`))
	c := l.send("undo with an input of another kind", l.command(true, nil, s.o.CallTime))
	if a, answered := s.wait(c); answered && a.final() {
		s.unlessHidden(ruleGarbage, byAnswers, "an undo with an input of another kind "+s.said(c), []string{ruleUndoFirst}, c)
		return false
	}
	return true
}
