// Package say has the sentences that operators read: why a task is where it is, what failed, what an action will do. They
// stand in one table, sentences.txt, so that they can be read and judged together.
package say

import (
	_ "embed" // sentences.txt
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed sentences.txt
var sentences string

// table is sentences.txt by id: a line is "id: template", and one that begins with # is a heading.
var table = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(sentences) {
		if id, template, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok && !strings.HasPrefix(line, "#") {
			all[id] = template
		}
	}
	return all
})

// Of is the sentence of an id with its values, which come in pairs of name and value. A template has a value as {name}, as
// {name:task} a number with its noun, which has a plural of its own in {name:child|children}, and as {name?is|are} the
// word that agrees with a number. A test holds every call to the table; an id that is not there is returned itself.
func Of(id string, values ...any) string {
	template, ok := table()[id]
	if !ok {
		return id
	}
	var b strings.Builder
	for {
		before, rest, open := strings.Cut(template, "{")
		field, after, closed := strings.Cut(rest, "}")
		if b.WriteString(before); !open || !closed {
			return b.String()
		}
		b.WriteString(fill(field, values))
		template = after
	}
}

// fill is a field of a template with its value.
func fill(field string, values []any) string {
	end := strings.IndexAny(field+":", ":?")
	for i := 0; i+1 < len(values); i += 2 {
		if values[i] != field[:end] {
			continue
		}
		text := fmt.Sprint(values[i+1])
		if end == len(field) {
			return text
		}
		one, several, ok := strings.Cut(field[end+1:], "|")
		if !ok {
			several = one + "s"
		}
		if text == "1" {
			several = one
		}
		if field[end] == '?' {
			return several
		}
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			text = Number(n)
		}
		return text + " " + several
	}
	return "{" + field + "}"
}

// Rounded is a duration as a person reads it, at most a twentieth off where it is a millisecond or more.
func Rounded(d time.Duration) time.Duration {
	switch {
	case d >= 100*time.Minute:
		return d.Round(time.Minute)
	case d >= 100*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// Number is a number with commas between thousands.
func Number(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "−", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// Count is a number with its noun, which has an s for several: "1 task", "1,249 tasks".
func Count(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return Number(n) + " " + noun
}
