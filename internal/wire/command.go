package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/taskform"
)

// AppendCommand appends the JSON of a command. Input and results are copied as they are,
// never decoded: no other encoder runs as often.
func AppendCommand(dst []byte, c *core.Command) []byte {
	dst = append(dst, `{"v":1,"task":`...)
	dst = appendString(dst, c.Task)
	dst = appendMember(dst, "type", c.Type)
	dst = appendMember(dst, "step", c.Step)
	dst = appendNumber(dst, "attempt", int64(c.Attempt))
	dst = append(dst, `,"key":"`...)
	dst = append(dst, c.Task...)
	dst = append(dst, '/')
	dst = append(dst, c.Step...)
	dst = append(dst, '/')
	dst = strconv.AppendInt(dst, int64(c.Round), 10)
	dst = append(dst, '"')
	dst = appendTime(dst, "complete_by", c.CompleteBy)
	dst = appendNumber(dst, "left_ms", c.Left.Milliseconds())
	dst = append(dst, `,"input":`...)
	dst = appendRaw(dst, c.Input)
	dst = append(dst, `,"results":{`...)
	for i := range c.Results {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, c.Results[i].Step)
		dst = append(dst, ':')
		dst = appendRaw(dst, c.Results[i].Result)
	}
	dst = append(dst, '}')
	if c.Undo && len(c.Result) > 0 {
		dst = append(dst, `,"result":`...)
		dst = append(dst, c.Result...)
	}
	return append(dst, '}')
}

// DecodeCommand reads the JSON of a command. Input and results are parts of
// data, not copies, and not parsed: their receiver unmarshals them, and finds then what is
// wrong with them. Agent, Undo, Trace and the numbers of the fence are not in
// it: they are in the subjects and headers. Unknown members are ignored, so
// that an older agent understands a newer scheduler. Errors wrap ErrUndecodable.
func DecodeCommand(data []byte) (core.Command, error) { return new(CommandDecoder).Decode(data) }

// CommandDecoder decodes one command after the other. Most have the type and the
// step of the one before, whose strings it uses again. The zero value is ready; it must not
// be used by two goroutines at once.
type CommandDecoder struct{ taskType, step string }

// Decode is DecodeCommand.
func (d *CommandDecoder) Decode(data []byte) (core.Command, error) {
	var c core.Command
	var version int64
	var failed error
	ok := eachMember(data, func(name, value []byte) bool {
		var err error
		switch string(name) {
		case "v":
			version, err = intValue(value)
		case "input":
			c.Input = value
		case "results":
			err = decodeResults(&c, value)
		case "result":
			c.Result = value
		default:
			err = d.scalar(&c, name, value)
		}
		if err != nil {
			failed = fmt.Errorf("%w: command: %s: %w", ErrUndecodable, name, err)
		}
		return err == nil
	})
	if failed != nil {
		return c, failed
	}
	if !ok {
		return c, fmt.Errorf("%w: command is not a JSON object", ErrUndecodable)
	}
	if version != Version {
		return c, fmt.Errorf("%w: command has version %d, want %d", ErrUndecodable, version, Version)
	}
	return c, checkCommand(&c)
}

func checkCommand(c *core.Command) error {
	if err := core.CheckTaskID(c.Task); err != nil {
		return fmt.Errorf("%w: command: task: %w", ErrUndecodable, err)
	}
	for _, n := range []struct{ field, name string }{{"type", c.Type}, {"step", c.Step}} {
		if err := core.CheckName(n.field, n.name); err != nil {
			return fmt.Errorf("%w: command: %w", ErrUndecodable, err)
		}
	}
	return nil
}

func (d *CommandDecoder) scalar(c *core.Command, name, value []byte) (err error) {
	switch string(name) {
	case "task":
		c.Task, err = stringValue(value)
	case "type":
		c.Type, err = sameString(&d.taskType, value)
	case "step":
		c.Step, err = sameString(&d.step, value)
	case "attempt":
		var n int64
		n, err = intValue(value)
		c.Attempt = int(n)
	case "key":
		c.Round, err = roundOf(value)
	case "complete_by":
		c.CompleteBy, err = timeValue(value)
	case "left_ms":
		var n int64
		if n, err = intValue(value); err == nil && (n < -int64(core.DurationMax/time.Millisecond) || n > int64(core.DurationMax/time.Millisecond)) {
			err = fmt.Errorf("%d is out of range", n)
		}
		c.Left = time.Duration(n) * time.Millisecond
	}
	return err
}

func decodeResults(c *core.Command, value []byte) error {
	if string(value) == "null" {
		return nil
	}
	if !eachMember(value, func(name, result []byte) bool {
		c.Results = append(c.Results, core.StepResult{Step: string(name), Result: result})
		return len(c.Results) <= core.StepsMax
	}) {
		return fmt.Errorf("not an object of at most %d results", core.StepsMax)
	}
	return nil
}

// roundOf reads the round out of a key <task>/<step>/<round>.
func roundOf(value []byte) (int, error) {
	key := value
	if !plainString(value) {
		s, err := stringValue(value)
		if err != nil {
			return 0, err
		}
		key = []byte(s)
	} else {
		key = value[1 : len(value)-1]
	}
	n, ok := parseNumber(key[bytes.LastIndexByte(key, '/')+1:])
	if !ok || n > 1<<31-1 || bytes.Count(key, []byte("/")) != 2 {
		return 0, fmt.Errorf("%q is not <task>/<step>/<round>", Short(string(key)))
	}
	return int(n), nil
}

// sameString reads a JSON string and spares its copy when it is the one before.
func sameString(before *string, value []byte) (string, error) {
	if plainString(value) && string(value[1:len(value)-1]) == *before {
		return *before, nil
	}
	s, err := stringValue(value)
	*before = s
	return s, err
}

// plainString reports whether value is a JSON string without escapes.
func plainString(value []byte) bool {
	if len(value) < 2 || value[0] != '"' {
		return false
	}
	for _, c := range value[1 : len(value)-1] {
		if c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}

// stringValue reads a JSON string; one without escapes costs one copy.
func stringValue(value []byte) (string, error) {
	if len(value) < 2 || value[0] != '"' {
		return "", fmt.Errorf("%s is not a string", Short(string(value)))
	}
	if !plainString(value) {
		var s string
		err := json.Unmarshal(value, &s)
		return s, err
	}
	return string(value[1 : len(value)-1]), nil
}

func intValue(value []byte) (int64, error) {
	if n, ok := parseNumber(value); ok {
		return n, nil
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is not a whole number", Short(string(value)))
	}
	return n, nil
}

func timeValue(value []byte) (core.Instant, error) {
	if at, ok := wireTime(value); ok {
		return at, nil
	}
	s, err := stringValue(value)
	if err != nil {
		return 0, err
	}
	return taskform.Instant(s)
}
