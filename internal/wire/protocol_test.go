package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire/wiretest"
)

var update = flag.Bool("update", false, "write the golden messages of testdata/protocol")

const (
	protocolDir  = "../../testdata/protocol"
	protocolPage = "../../docs/reference/protocol.md"
	agentsPage   = "../../docs/guide/agents-in-any-language.md"
)

// golden is one golden message, made by the encoders, and how the decoders read it.
type golden struct {
	wiretest.Message
	read func(h Header, data []byte) error // nil: nothing of Duly's reads it
}

// goldens are all golden messages.
func goldens(t *testing.T) []golden {
	t.Helper()
	var all []golden
	for _, part := range []func(*testing.T) []golden{commandGoldens, replyGoldens, batchGoldens, probeGoldens, bookGoldens, submitGoldens, statusGoldens, askGoldens, readGoldens, planGoldens} {
		all = append(all, part(t)...)
	}
	return all
}

// TestProtocol holds the golden messages to the encoders that write them, byte for byte, and to the decoders that read them.
func TestProtocol(t *testing.T) {
	all := goldens(t)
	if *update {
		writeGoldens(t, all)
	}
	files, err := wiretest.Read(protocolDir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		g := &all[i]
		t.Run(g.Name, func(t *testing.T) {
			is := files[g.Name]
			delete(files, g.Name)
			if is == nil {
				t.Fatal("there is no such file: go test ./internal/wire -run TestProtocol -update writes it")
			}
			if !reflect.DeepEqual(*is, g.Message) {
				t.Errorf("the file has\n%s\nwant\n%s", encodeGolden(t, is), encodeGolden(t, &g.Message))
			}
			if g.read == nil {
				return
			}
			h := Header{}
			for name, value := range is.Headers {
				h[name] = []string{value}
			}
			data, err := is.Data()
			if err != nil {
				t.Fatal(err)
			}
			if err := g.read(h, data); err != nil {
				t.Error(err)
			}
		})
	}
	for name := range files {
		t.Errorf("%s.json is made by no test", name)
	}
}

// writeGoldens replaces all files.
func writeGoldens(t *testing.T, all []golden) {
	t.Helper()
	old, err := filepath.Glob(filepath.Join(protocolDir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	for i := range all {
		if err := os.WriteFile(filepath.Join(protocolDir, all[i].Name+".json"), encodeGolden(t, &all[i].Message), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// encodeGolden is a message as its file has it: a member a line, payloads as they are on the wire.
func encodeGolden(t *testing.T, m *wiretest.Message) []byte {
	t.Helper()
	var b bytes.Buffer
	of := reflect.ValueOf(*m)
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Type().Field(i).Tag.Get("json"), ",")
		if name == "-" || of.Field(i).IsZero() {
			continue
		}
		value, ok := of.Field(i).Interface().(json.RawMessage)
		if !ok {
			value = plainJSON(t, of.Field(i).Interface())
		}
		if b.Len() > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, "  %q: %s", name, value)
	}
	return []byte("{\n" + b.String() + "\n}\n")
}

// plainJSON is JSON without the escapes for HTML.
func plainJSON(t *testing.T, v any) json.RawMessage {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

// same is the error of a decoder, or says that it read something else.
func same(got any, err error, want any) error {
	if err == nil && !reflect.DeepEqual(got, want) {
		err = fmt.Errorf("decoded %+v\nwant    %+v", got, want)
	}
	return err
}

// undecodable wants that error.
func undecodable(err error) error {
	if !isUndecodable(err) {
		return fmt.Errorf("error %w, want one that wraps ErrUndecodable", err)
	}
	return nil
}

// headersOf is a header as the files have it.
func headersOf(h Header) map[string]string {
	var plain map[string]string
	for name := range h {
		if plain == nil {
			plain = map[string]string{}
		}
		plain[name] = h.Get(name)
	}
	return plain
}

// The world of the golden messages.
const (
	goldenPartitions = 16
	goldenInbox      = "_INBOX.shop.1"
	goldenTrace      = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)

// goldenAt is 2026-11-25T10:00:00Z, and so many seconds.
func goldenAt(seconds int64) core.Instant { return core.Instant(1795600800+seconds) * 1e6 }

// goldenSigner has a key that is none of an installation.
func goldenSigner(t *testing.T) *Signer {
	t.Helper()
	key, err := hex.DecodeString("000102030405060708090a0b0c0d0e0f")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := NewSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

var (
	goldenMark = regexp.MustCompile("(?m)^<!-- golden: (.*) -->\n```json\n((?s:.*?))```$")
	ruleMark   = regexp.MustCompile(`(?m)^- \*\*([PQ]\d+), `)
)

// TestProtocolPage: every example of JSON on the page is a golden message, every golden message is told of in the README of
// their folder, and each names a rule that the page has.
func TestProtocolPage(t *testing.T) {
	files, err := wiretest.Read(protocolDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{protocolPage, agentsPage} {
		text := pageText(t, page)
		marked := goldenMark.FindAllStringSubmatch(text, -1)
		if n := strings.Count(text, "```json\n"); n != len(marked) || n == 0 {
			t.Errorf("%s: %d of %d examples in JSON say which golden message they are: <!-- golden: NAME -->", page, len(marked), n)
		}
		for _, m := range marked {
			checkExamples(t, page, files, strings.Split(m[1], ", "), m[2])
		}
	}
	rules := map[string]bool{}
	for _, m := range ruleMark.FindAllStringSubmatch(pageText(t, protocolPage), -1) {
		if rules[m[1]] {
			t.Errorf("rule %s is there twice", m[1])
		}
		rules[m[1]] = true
	}
	readme := pageText(t, filepath.Join(protocolDir, "README.md"))
	for _, name := range wiretest.Names(files) {
		if !strings.Contains(readme, "`"+name+"`") {
			t.Errorf("README.md does not tell of %s", name)
		}
		for rule := range strings.SplitSeq(files[name].Rule, ", ") {
			if rule != "" && !rules[rule] {
				t.Errorf("%s: there is no rule %q", name, rule)
			}
		}
		if of := files[name].Answers; of != "" && files[of] == nil {
			t.Errorf("%s answers %s, which is not there", name, of)
		}
	}
}

// checkExamples holds one block to the messages that it says it shows.
func checkExamples(t *testing.T, page string, files map[string]*wiretest.Message, names []string, block string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(block))
	for _, name := range names {
		var example json.RawMessage
		if err := d.Decode(&example); err != nil {
			t.Errorf("%s: example %s: %v", page, name, err)
			return
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, example); err != nil {
			t.Errorf("%s: example %s: %v", page, name, err)
			return
		}
		switch is := files[name]; {
		case is == nil:
			t.Errorf("%s: there is no golden message %s", page, name)
		case compact.String() != string(is.Payload):
			t.Errorf("%s: example %s is\n%s\nwant\n%s", page, name, compact.String(), is.Payload)
		}
	}
	if d.More() {
		t.Errorf("%s: more examples than %v", page, names)
	}
}

func pageText(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
