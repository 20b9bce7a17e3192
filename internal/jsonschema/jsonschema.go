// Package jsonschema checks JSON by JSON Schema 2020-12, in bounded time and without a look at anything outside the schema.
package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/decimal"
	"duly.dev/duly/internal/seal"
)

// Limits of a schema.
const (
	// bytesMax bounds its text.
	bytesMax = 64 << 10
	// schemasMax bounds the schemas that it has, with those that it refers to counted where they are referred to: no value
	// of a payload is checked by more.
	schemasMax = 4096
	// cacheMax bounds the schemas that a Cache keeps compiled.
	cacheMax = 1000
	// wordsMax bounds the text about a payload that does not fit.
	wordsMax = 400
)

// ErrSchema is wrapped by every error of Compile.
var ErrSchema = errors.New("schema refused")

// Schema is a compiled schema. It is safe for concurrent use.
type Schema struct {
	is        *jsonschema.Schema
	encrypted bool // see keyEncrypted
}

// Mismatch is a payload that does not fit a schema.
type Mismatch struct {
	Pointer string // JSON pointer (RFC 6901) to the value that does not; empty: the whole
	Words   string // what is wrong with it
}

// Error names the place and what is wrong.
func (m *Mismatch) Error() string {
	if m.Pointer == "" {
		return m.Words
	}
	return "at " + core.QuoteShort(m.Pointer) + ": " + m.Words
}

// nowhere loads nothing: a schema stands alone.
type nowhere struct{}

func (nowhere) Load(url string) (any, error) {
	return nil, fmt.Errorf("a schema refers to nothing outside itself, and this one refers to %s", core.QuoteShort(url))
}

// home is where a schema without an address of its own counts as being.
const home = "duly:schema"

// Compile reads a schema. Errors wrap ErrSchema: too large, no JSON, no schema of 2020-12, one with words that it does not
// have, one that refers to something
// outside itself, to itself, or to so much that it has more than schemasMax schemas.
func Compile(text string) (*Schema, error) {
	if len(text) > bytesMax {
		return nil, fmt.Errorf("%w: it has %d bytes, want at most %d", ErrSchema, len(text), bytesMax)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%w: it is no JSON: %w", ErrSchema, err)
	}
	if document, err = small(document, nil); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	if members, ok := document.(map[string]any); ok {
		if draft, said := members["$schema"]; said && strings.TrimSuffix(fmt.Sprint(draft), "#") != jsonschema.Draft2020.String() {
			return nil, fmt.Errorf("%w: $schema is %s, want %s", ErrSchema, core.QuoteShort(fmt.Sprint(draft)), jsonschema.Draft2020)
		}
	} else if _, ok := document.(bool); !ok {
		return nil, fmt.Errorf("%w: want an object, true or false", ErrSchema)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(nowhere{})
	if err := c.AddResource(home, document); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrSchema, words(err))
	}
	is, err := c.Compile(home)
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if wrong, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			return nil, fmt.Errorf("%w: %w", ErrSchema, mismatch(wrong))
		}
	}
	if missing, ok := errors.AsType[*jsonschema.JSONPointerNotFoundError](err); ok {
		return nil, fmt.Errorf("%w: it refers to %s, which it does not have", ErrSchema, core.QuoteShort(strings.TrimPrefix(missing.URL, home)))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrSchema, words(err))
	}
	if err := known(document, nil); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	count := counter{sizes: map[*jsonschema.Schema]int{}}
	if n := count.of(is); count.err != nil {
		return nil, count.err
	} else if n > schemasMax {
		return nil, fmt.Errorf("%w: it has more than %d schemas, each counted where it is referred to", ErrSchema, schemasMax)
	}
	for s := range count.sizes {
		index(s)
	}
	members, _ := document.(map[string]any)
	encrypted, _ := members[keyEncrypted].(bool)
	return &Schema{is, encrypted}, nil
}

// words is an error of the library without the address that a schema counts as having.
func words(err error) string {
	return core.ShortText(strings.ReplaceAll(err.Error(), home, "the schema"), wordsMax)
}

// Check reports whether a payload fits: *Mismatch if it does not, another error if it is no JSON.
func (s *Schema) Check(payload []byte) error {
	if s.encrypted {
		if _, is := seal.Of(payload); is {
			return nil
		}
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		return fmt.Errorf("payload is no JSON: %w", err)
	}
	if value, err = small(value, nil); err != nil {
		return err
	}
	err = s.is.Validate(value)
	wrong, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err
	}
	return mismatch(wrong)
}

// mismatch is the first error that says something of its own.
func mismatch(wrong *jsonschema.ValidationError) *Mismatch {
	for len(wrong.Causes) > 0 {
		wrong = wrong.Causes[0]
	}
	return &Mismatch{Pointer: core.ShortText(pointer(wrong.InstanceLocation), wordsMax),
		Words: core.ShortText(wrong.ErrorKind.LocalizedString(message.NewPrinter(language.English)), wordsMax)}
}

// small gives each number in a value its one spelling. It refuses numbers that take long to compare, which is done exactly, and
// that an expression would refuse.
func small(value any, at []string) (_ any, err error) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if v[name], err = small(member, append(at, name)); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, element := range v {
			if v[i], err = small(element, append(at, strconv.Itoa(i))); err != nil {
				return nil, err
			}
		}
	case json.Number:
		canon, err := decimal.Canon(string(v))
		if err != nil {
			return nil, &Mismatch{Pointer: core.ShortText(pointer(at), wordsMax), Words: "number " + err.Error()}
		}
		return json.Number(canon), nil
	}
	return value, nil
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func pointer(parts []string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + escape.Replace(p))
	}
	return b.String()
}

// counter counts the schemas that a payload's value may be checked by.
type counter struct {
	sizes map[*jsonschema.Schema]int // 0: it is being counted
	err   error
}

func (c *counter) of(s *jsonschema.Schema) int {
	if s == nil || c.err != nil {
		return 0
	}
	if n, seen := c.sizes[s]; seen {
		if n == 0 {
			c.err = fmt.Errorf("%w: %s refers to itself, directly or through others, so that no bound on its work is known: say {} there", ErrSchema, core.QuoteShort(strings.TrimPrefix(s.Location, home)))
		}
		return n
	}
	c.sizes[s] = 0
	if s.DynamicRef != nil || s.RecursiveRef != nil {
		c.err = fmt.Errorf("%w: $dynamicRef is not taken, use $ref", ErrSchema)
		return 0
	}
	n := 1
	for _, sub := range parts(s) {
		if n = n + c.of(sub); n > schemasMax {
			n = schemasMax + 1 // it is refused, however much more there is
			break
		}
	}
	c.sizes[s] = n
	return n
}

// parts are the schemas that a schema has or refers to.
func parts(s *jsonschema.Schema) []*jsonschema.Schema {
	all := []*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema}
	all = append(all, s.AllOf...)
	all = append(all, s.AnyOf...)
	all = append(all, s.OneOf...)
	all = append(all, s.PrefixItems...)
	for _, sub := range s.Properties {
		all = append(all, sub)
	}
	for _, sub := range s.PatternProperties {
		all = append(all, sub)
	}
	for _, sub := range s.DependentSchemas {
		all = append(all, sub)
	}
	for _, other := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		if sub, ok := other.(*jsonschema.Schema); ok {
			all = append(all, sub)
		}
	}
	for _, other := range s.Dependencies {
		if sub, ok := other.(*jsonschema.Schema); ok {
			all = append(all, sub)
		}
	}
	return all
}

// Cache compiles each schema once. The zero value is ready; it is safe for concurrent use.
type Cache struct {
	mu  sync.Mutex
	all map[string]*Schema // by text
}

// Check checks a payload by a schema: see Compile and Schema.Check. An empty schema takes any.
func (c *Cache) Check(schema string, payload []byte) error {
	if schema == "" {
		return nil
	}
	s, err := c.get(schema)
	if err != nil {
		return err
	}
	return s.Check(payload)
}

func (c *Cache) get(schema string) (*Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.all[schema]; s != nil {
		return s, nil
	}
	s, err := Compile(schema)
	if err != nil {
		return nil, err
	}
	if c.all == nil || len(c.all) >= cacheMax {
		c.all = map[string]*Schema{}
	}
	c.all[schema] = s
	return s, nil
}

// CheckPlan compiles the schemas of a plan. The error is core.PlanErrors with all that is wrong, each an ErrSchema.
func CheckPlan(p *core.Plan) error {
	var wrong core.PlanErrors
	if p.InputSchema != "" {
		if _, err := Compile(p.InputSchema); err != nil {
			wrong = append(wrong, p.Wrong("input_schema", "input_schema: %w", err))
		}
	}
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Schema != "" {
			if _, err := Compile(s.Schema); err != nil {
				wrong = append(wrong, p.WrongStep(i, "schema", "schema: %w", err))
			}
		}
	}
	return wrong.Err()
}
