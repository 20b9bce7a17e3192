package wire

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
)

// replyToBytesMax bounds a submitter's private status subject.
const replyToBytesMax = 256

// InboxOf is what the inboxes of a user of NATS begin with that must not read another's.
func InboxOf(user string) string { return "_INBOX_" + user }

// DefaultReplyPrefixes are what a submitter's private status subject may begin
// with where nothing else is configured: NATS inboxes, those of users with a
// prefix of their own (_INBOX_client.…), and subjects set aside for it.
var DefaultReplyPrefixes = []string{"_INBOX.", "_INBOX_", "status."}

// inboxes are where a request is answered, whatever is configured: NATS inboxes, and what a server puts in their place
// for a requester in another account or cluster, which no client can name.
var inboxes = []string{"_INBOX.", "_INBOX_", "_R_.", "_GR_."}

// errReplyTo is wrapped by every error of Names.CheckReplyTo and Names.CheckAnswer.
var errReplyTo = errors.New("reply subject refused")

// CheckReplyTo accepts a submitter's private status subject. prefixes are what
// it may begin with; nil is DefaultReplyPrefixes. Duly's own subjects, those of the server
// and wildcards are refused whatever the prefixes say: Duly publishes with its own
// permissions. Errors wrap errReplyTo.
func (n Names) CheckReplyTo(subject string, prefixes []string) error {
	if err := n.checkTarget(subject); err != nil {
		return err
	}
	if prefixes == nil {
		prefixes = DefaultReplyPrefixes
	}
	for _, p := range prefixes {
		if len(subject) > len(p) && strings.HasPrefix(subject, p) {
			return nil
		}
	}
	return fmt.Errorf("%w: %q begins with none of %q", errReplyTo, subject, prefixes)
}

// CheckAnswer accepts the reply subject of a request: an inbox, or what CheckReplyTo accepts.
func (n Names) CheckAnswer(reply string, prefixes []string) error {
	if n.CheckReplyTo(reply, inboxes) == nil {
		return nil
	}
	return n.CheckReplyTo(reply, prefixes)
}

// checkTarget accepts what is a subject, and neither Duly's own nor the server's.
func (n Names) checkTarget(subject string) error {
	if len(subject) > replyToBytesMax {
		return fmt.Errorf("%w: %q… has %d bytes, the limit is %d", errReplyTo, core.CutText(subject, 64), len(subject), replyToBytesMax)
	}
	if subject == "" || strings.HasPrefix(subject, "$") || subject == n.get().namespace || strings.HasPrefix(subject, n.get().root) {
		return fmt.Errorf("%w: %q is reserved", errReplyTo, subject)
	}
	if !utf8.ValidString(subject) {
		return fmt.Errorf("%w: %q is not UTF-8", errReplyTo, subject)
	}
	for i := 0; i < len(subject); i++ {
		if c := subject[i]; c <= ' ' || c == 0x7f || c == '*' || c == '>' {
			return fmt.Errorf("%w: %q: character %d is %q", errReplyTo, subject, i+1, c)
		}
	}
	if strings.HasPrefix(subject, ".") || strings.HasSuffix(subject, ".") || strings.Contains(subject, "..") {
		return fmt.Errorf("%w: %q has an empty token", errReplyTo, subject)
	}
	return nil
}

// MayAnswer reports whether an agent answers a command there: on a subject of replies, or
// where a caller that is no scheduler waits, by CheckAnswer. Without a reply subject there
// is nothing to refuse.
func (n Names) MayAnswer(reply string, prefixes []string) bool {
	_, _, _, err := n.ParseReply(reply)
	return reply == "" || err == nil && !strings.ContainsAny(reply, "*> \t\r\n") || n.CheckAnswer(reply, prefixes) == nil
}
