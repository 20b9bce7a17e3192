package jsonschema

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/near"
)

// holds is what a keyword of a schema has for its value.
type holds int

const (
	aValue holds = iota
	aSchema
	schemas // a list of them
	named   // schemas by names of one's own
)

// keyEncrypted is Duly's own keyword: where it is true at the root of a schema, an encrypted payload fits, unseen. Words that
// begin as it does are Duly's.
const (
	keyEncrypted = ownPrefix + "encrypted"
	ownPrefix    = "x-duly-"
)

// keywords are those of JSON Schema 2020-12, and what it lets older schemas keep their parts in. It takes any other word for
// a note, so that a bound whose word is misspelt would bound nothing.
var keywords = func() map[string]holds {
	all := map[string]holds{}
	for of, words := range map[holds]string{
		aValue: `$schema $id $ref $anchor $dynamicRef $dynamicAnchor $vocabulary $comment type enum const multipleOf maximum exclusiveMaximum
			minimum exclusiveMinimum maxLength minLength pattern maxItems minItems uniqueItems maxContains minContains maxProperties
			minProperties required dependentRequired title description default deprecated readOnly writeOnly examples format
			contentEncoding contentMediaType ` + keyEncrypted,
		aSchema: "not if then else contains items propertyNames additionalProperties unevaluatedItems unevaluatedProperties contentSchema",
		schemas: "allOf anyOf oneOf prefixItems",
		named:   "properties patternProperties dependentSchemas $defs definitions",
	} {
		for word := range strings.FieldsSeq(words) {
			all[word] = of
		}
	}
	return all
}()

// known refuses a word that is no keyword, and does not begin with x- as notes do. schema fits the schema of schemas.
func known(schema any, at []string) error {
	members, _ := schema.(map[string]any)
	for _, word := range slices.Sorted(maps.Keys(members)) {
		of, is := keywords[word]
		if !is && (!strings.HasPrefix(word, "x-") || strings.HasPrefix(word, ownPrefix)) {
			words := core.QuoteShort(word) + " is no keyword of JSON Schema 2020-12"
			if meant := near.Nearest(word, slices.Sorted(maps.Keys(keywords))); meant != "" {
				words += ", did you mean " + meant + "?"
			}
			return &Mismatch{Pointer: core.ShortText(pointer(at), wordsMax), Words: words}
		}
		place := append(slices.Clip(at), word)
		if word == keyEncrypted {
			if err := encryptedIn(members[word], place); err != nil {
				return err
			}
		}
		if err := knownIn(members[word], of, place); err != nil {
			return err
		}
	}
	return nil
}

// encryptedIn refuses keyEncrypted where it would say nothing.
func encryptedIn(value any, at []string) error {
	words := ""
	switch _, is := value.(bool); {
	case len(at) > 1:
		words = "it is said of the whole payload alone, at the root of the schema"
	case !is:
		words = "want true or false"
	default:
		return nil
	}
	return &Mismatch{Pointer: core.ShortText(pointer(at), wordsMax), Words: words}
}

func knownIn(value any, of holds, at []string) error {
	switch of {
	case aSchema:
		return known(value, at)
	case schemas:
		all, _ := value.([]any)
		for i, one := range all {
			if err := known(one, append(slices.Clip(at), strconv.Itoa(i))); err != nil {
				return err
			}
		}
	case named:
		all, _ := value.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if err := known(all[name], append(slices.Clip(at), name)); err != nil {
				return err
			}
		}
	}
	return nil
}
