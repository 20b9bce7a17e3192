// Package wiretest reads the golden messages of testdata/protocol, for the tests of all that speaks Duly's protocol. It has
// no way into the program.
package wiretest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Message is one golden message, as its file has it. testdata/protocol/README.md says what each member means.
type Message struct {
	Name    string            `json:"-"` // of the file, without .json
	What    string            `json:"what"`
	Rule    string            `json:"rule,omitempty"` // numbers of rules, with commas
	From    string            `json:"from"`           // submitter, agent or duly
	Answers string            `json:"answers,omitempty"`
	Subject string            `json:"subject"`
	Reply   string            `json:"reply,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Payload json.RawMessage   `json:"payload,omitempty"`
	Text    string            `json:"payload_text,omitempty"` // where the payload is not JSON
	Hex     string            `json:"payload_hex,omitempty"`  // where it is binary
	Means   json.RawMessage   `json:"means,omitempty"`
	Refused *Refused          `json:"refused,omitempty"`
}

// Refused is how a message that is wrong is answered.
type Refused struct {
	Code    int `json:"code"`
	Or      int `json:"or,omitempty"` // as good as Code; 0: nothing is
	ErrCode int `json:"err_code,omitempty"`
}

// Data is the payload as it is on the wire. Error: the hexadecimal digits are none.
func (m *Message) Data() ([]byte, error) {
	switch {
	case m.Hex != "":
		data, err := hex.DecodeString(m.Hex)
		if err != nil {
			return nil, fmt.Errorf("golden message %s: payload_hex: %w", m.Name, err)
		}
		return data, nil
	case m.Text != "":
		return []byte(m.Text), nil
	}
	return m.Payload, nil
}

var completeBy = regexp.MustCompile(`"complete_by":"[^"]*"`)

// Live is the payload of a command that is to be answered now: its complete_by is until. As its file has it the time of a
// command is over, and an agent is silent.
func (m *Message) Live(until time.Time) ([]byte, error) {
	data, err := m.Data()
	return completeBy.ReplaceAll(data, []byte(`"complete_by":"`+until.UTC().Format(time.RFC3339Nano)+`"`)), err
}

// Read reads all golden messages of a folder, by name. Errors: a file that cannot be read, or has a member that is not known.
func Read(dir string) (map[string]*Message, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("golden messages in %s: %w", dir, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("golden messages: %s has none", dir)
	}
	all := make(map[string]*Message, len(files))
	for _, file := range files {
		m := &Message{Name: strings.TrimSuffix(filepath.Base(file), ".json")}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("golden message %s: %w", m.Name, err)
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(m); err != nil {
			return nil, fmt.Errorf("golden message %s: %w", m.Name, err)
		}
		all[m.Name] = m
	}
	return all, nil
}

// Names are the names of messages, in order.
func Names(all map[string]*Message) []string {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
