package group

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// PartitionsMax is the most partitions that a group can have.
const PartitionsMax = 4096

// By is a rule: how many partitions there are, and which one a message belongs to. It is fixed by a group's first [Run].
type By struct {
	partitions int
	hashed     bool
	tokens     []int // counted from 1; of a hash, none: the whole subject
}

// HashOfSubject spreads subjects over the partitions: messages of one subject keep their order.
func HashOfSubject(partitions int) By { return By{partitions: partitions, hashed: true} }

// HashOfTokens spreads messages by some tokens of their subjects, counted from 1: those in which all of them are equal keep
// their order. The hash is that of the server's partition mapping. A token that a subject lacks counts as empty.
//
// The server cannot filter by a hash: each member reads all messages that the group may have, and drops those of others.
// With many members of a busy stream let the server write the partition into the subject, and use [Token].
func HashOfTokens(partitions int, tokens ...int) By {
	return By{partitions: partitions, hashed: true, tokens: slices.Clone(tokens)}
}

// Token takes the partition from one token of the subject, counted from 1: a number from 0, as the server's subject mapping
// {{partition(n,token)}} writes it. Each member reads its own partitions alone. A message of the filter in which the token is
// another one belongs to no partition: a group's first Run refuses a stream that holds such, a later one logs it.
func Token(partitions, token int) By { return By{partitions: partitions, tokens: []int{token}} }

// check refuses a rule that cannot be.
func (b By) check() error {
	if b.partitions < 1 || b.partitions > PartitionsMax {
		return fmt.Errorf("group: %d partitions, want 1 to %d", b.partitions, PartitionsMax)
	}
	for _, token := range b.tokens {
		if token < 1 || token > tokensMax {
			return fmt.Errorf("group: token %d of the subject, want 1 to %d", token, tokensMax)
		}
	}
	return nil
}

const tokensMax = 64

// rule is how the database knows the rule.
func (b By) rule(filter []string) string {
	var words []string
	for _, token := range b.tokens {
		words = append(words, strconv.Itoa(token))
	}
	text := "token " + strings.Join(words, ",")
	if b.hashed {
		text = "hash of the subject"
		if len(words) > 0 {
			text = "hash of tokens " + strings.Join(words, ",")
		}
	}
	if len(filter) > 0 {
		text += " of " + strings.Join(filter, " ")
	}
	return text
}

// partition is that of a subject; ok is false where it has none.
func (b By) partition(subject string) (p int, ok bool) {
	if b.hashed {
		h := fnv.New32a()
		if len(b.tokens) == 0 {
			_, _ = h.Write([]byte(subject))
		}
		for _, token := range b.tokens {
			_, _ = h.Write([]byte(tokenOf(subject, token)))
		}
		return int(h.Sum32() % uint32(b.partitions)), true
	}
	word := tokenOf(subject, b.tokens[0])
	p, err := strconv.Atoi(word)
	return p, err == nil && p >= 0 && p < b.partitions && strconv.Itoa(p) == word
}

func tokenOf(subject string, token int) string {
	for n := 1; ; n++ {
		word, rest, more := strings.Cut(subject, ".")
		switch {
		case n == token:
			return word
		case !more:
			return ""
		}
		subject = rest
	}
}

// narrowed are the patterns of the messages of a pattern in which a token is word.
func narrowed(pattern string, token int, word string) []string {
	words := strings.Split(pattern, ".")
	if last := len(words) - 1; words[last] == ">" && last < token {
		words = words[:last]
		for len(words) < token-1 {
			words = append(words, "*")
		}
		exact := strings.Join(append(words, word), ".")
		return []string{exact, exact + ".>"}
	}
	if len(words) < token || words[token-1] != "*" && words[token-1] != word {
		return nil
	}
	words[token-1] = word
	return []string{strings.Join(words, ".")}
}

// filters are the subjects of a partition in a filter.
func (b By) filters(filter []string, partition int) (all []string) {
	for _, pattern := range filter {
		all = append(all, narrowed(pattern, b.tokens[0], strconv.Itoa(partition))...)
	}
	return all
}
