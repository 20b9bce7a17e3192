package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"duly.dev/duly"
	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
	"duly.dev/duly/internal/seal"
)

// payloads are the keys of payloads, which are here alone: the node has none.
type payloads struct {
	PayloadKeys string `name:"payload-keys" env:"DULY_PAYLOAD_KEYS" help:"File with the keys that inputs and results are encrypted with: a line for each, its id, a space and its 32 bytes in base64; the first one encrypts."`
}

// codec is made of the file; nil: none is given.
func (p *payloads) codec() (duly.Codec, error) {
	if p.PayloadKeys == "" {
		return nil, nil
	}
	keys, err := duly.LoadKeys(p.PayloadKeys)
	if err != nil {
		return nil, misuse("payload-%v", err)
	}
	codec, err := duly.NewAES256GCM(keys...)
	if err != nil {
		return nil, misuse("payload-keys: %v", err)
	}
	return codec, nil
}

// opened is a task with its payloads decrypted, as far as the keys go.
func (p *payloads) opened(ctx context.Context, std streams, s *server, taskType, id string) (t task, err error) {
	data, err := s.read(ctx, taskPath(taskType, id), nil)
	if err == nil {
		data, err = p.open(std, data)
	}
	if err != nil {
		return t, err
	}
	return readTask(data)
}

// needs refuses to go on with a payload that open has left encrypted.
func (p *payloads) needs(what string, payload []byte) error {
	e, encrypted := seal.Of(payload)
	switch {
	case !encrypted:
		return nil
	case p.PayloadKeys == "":
		return misuse("%s: it is encrypted with key %s: give --payload-keys FILE, or DULY_PAYLOAD_KEYS", what, e.Key)
	}
	return misuse("%s: it is encrypted with key %s, and does not open with the keys of %s", what, e.Key, p.PayloadKeys)
}

// encode is a payload as it is sent.
func (p *payloads) encode(at duly.Place, payload []byte, most int) ([]byte, error) {
	codec, err := p.codec()
	if err != nil || codec == nil {
		return payload, err
	}
	if err := quickjson.Check("the "+at.String(), payload); err != nil {
		return nil, misuse("%v", err)
	}
	sent, err := codec.Encode(at, payload)
	if err != nil {
		return nil, misuse("%v", err)
	}
	if len(sent) > most {
		return nil, misuse("the %s has %d bytes as it is encrypted (%d before), the limit is %d", at, len(sent), len(payload), most)
	}
	return sent, nil
}

// span is a payload in the answer about a task.
type span struct {
	step     string // whose result it is; empty: the input
	from, to int
}

// spans finds the payloads in an answer about a task, in their order.
func spans(data []byte) (taskType, id string, all []span, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	var value json.RawMessage
	// object calls each with every member; each reads its value.
	object := func(each func(name string) error) error {
		if t, err := d.Token(); err != nil || t != json.Delim('{') {
			return errors.Join(err, errors.New("no object"))
		}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return err
			}
			if err := each(fmt.Sprint(name)); err != nil {
				return err
			}
		}
		_, err := d.Token()
		return err
	}
	note := func(step string) error {
		err := d.Decode(&value)
		to := int(d.InputOffset())
		all = append(all, span{step, to - len(value), to})
		return err
	}
	steps := func() error {
		if t, err := d.Token(); err != nil || t != json.Delim('[') {
			return err // null
		}
		for d.More() {
			name, first := "", len(all)
			err := object(func(member string) error {
				switch member {
				case "name":
					return d.Decode(&name)
				case "result":
					return note("")
				}
				return d.Decode(&value)
			})
			if err != nil {
				return err
			}
			for i := first; i < len(all); i++ {
				all[i].step = name
			}
		}
		_, err := d.Token()
		return err
	}
	err = object(func(member string) error {
		switch member {
		case "type":
			return d.Decode(&taskType)
		case "id":
			return d.Decode(&id)
		case "input":
			return note("")
		case "steps":
			return steps()
		}
		return d.Decode(&value)
	})
	return taskType, id, all, err
}

// open is the answer about a task with its payloads decrypted, all else as it came. What does not open stays, and is said.
func (p *payloads) open(std streams, data []byte) ([]byte, error) {
	codec, err := p.codec()
	if err != nil || codec == nil {
		return data, err
	}
	taskType, id, all, err := spans(data)
	if err != nil {
		return nil, fmt.Errorf("answer of the API: %w", err)
	}
	out, last := make([]byte, 0, len(data)), 0
	for _, s := range all {
		stored := data[s.from:s.to]
		if _, encrypted := seal.Of(stored); !encrypted {
			continue
		}
		plain, err := codec.Decode(duly.Place{Type: taskType, Task: id, Step: s.step}, stored)
		if err != nil {
			fmt.Fprintln(std.err, "duly:", err)
			continue
		}
		out, last = append(append(out, data[last:s.from]...), plain...), s.to
	}
	return append(out, data[last:]...), nil
}

// again finds the task of a submission that was refused because its id is taken: the same payload may have been encrypted
// with another key.
func (c *submitCmd) again(ctx context.Context, input []byte, refused error) ([]byte, error) {
	codec, err := c.codec()
	if p, ok := errors.AsType[*client.Problem](refused); err != nil || codec == nil || !ok || p.Status != http.StatusConflict {
		return nil, refused
	}
	data, err := c.read(ctx, taskPath(c.Type, c.ID), nil)
	if err != nil {
		return nil, refused
	}
	t, err := readTask(data)
	if err != nil {
		return nil, err
	}
	if is, err := codec.Decode(duly.Place{Type: c.Type, Task: c.ID}, t.Input); err != nil || !bytes.Equal(is, input) {
		return nil, refused
	}
	return data, nil
}

// shown is a payload on a line of text.
func shown(payload []byte) string {
	if e, encrypted := seal.Of(payload); encrypted {
		return "encrypted with key " + e.Key
	}
	return string(payload)
}

// placeOf is where the result of a step belongs that an operator gives: of the step named, or of the failed one.
func (c *acceptCmd) placeOf(t *task) (duly.Place, error) {
	step := cmp.Or(c.Step, t.FailedStep)
	if step == "" {
		return duly.Place{}, misuse("step: none given, and none of %s has failed: its result is encrypted for one step alone", core.ShortText(c.ID, core.NameBytesMax))
	}
	return duly.Place{Type: c.Type, Task: c.ID, Step: step}, nil
}
