package submit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"duly.dev/duly/internal/core"
)

// ErrNoObject says that something is no JSON object.
var ErrNoObject = errors.New("want a JSON object")

// Object reads a JSON object, in its order. Decoders take the last of two members with one name without a word; each is
// told here.
func Object(data []byte, member func(name string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return fmt.Errorf("%w: %s", ErrNoObject, core.QuoteShort(string(data)))
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return fmt.Errorf("not JSON: %w", err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return fmt.Errorf("not JSON: %w", err)
		}
		text, _ := name.(string)
		if err := member(text, value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("more than one JSON value: %s", core.QuoteShort(string(data)))
	}
	return nil
}

// ReadObject is ReadHeader of headers in a JSON object, as a row of an outbox has them.
func (f *Form) ReadObject(data []byte) error {
	header := map[string][]string{}
	err := Object(data, func(name string, value json.RawMessage) error {
		var text *string
		if err := json.Unmarshal(value, &text); err != nil || text == nil {
			return fmt.Errorf("header %s is %s, want text", core.QuoteShort(name), core.QuoteShort(string(value)))
		}
		header[name] = append(header[name], *text)
		return nil
	})
	if err != nil {
		return refuse(ErrHeader, "headers: %v", err)
	}
	return f.ReadHeader(header)
}
