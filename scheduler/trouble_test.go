package scheduler

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestNewsAreOneLine: partitions taken over, or lost, within a moment are one line with the list, which waits for more
// while a takeover is under way, but not for ever.
//
// covers: B13
func TestNewsAreOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := &shared{cfg: RunConfig{Config: Config{Node: "me"}}, news: newNews(), log: slog.New(slog.NewTextHandler(&text, nil))}
		s.placement.owners = []string{7: "me", 8: "another", 9: "me"}
		s.news.log(s.log, s.falls, false)
		for p, before := range []string{"dead", "dead", "", "me"} {
			s.news.about(p, before)
			if err := s.news.noteTakeover(p, nil); err != nil {
				t.Error(err)
			}
		}
		for _, p := range []int{9, 8, 7, 9} {
			s.news.lose(p)
		}
		s.news.log(s.log, s.falls, true)
		if text.Len() != 0 {
			t.Errorf("logged though a takeover is under way: %s", &text)
		}
		<-time.After(newsPatience)
		s.news.log(s.log, s.falls, true)
		s.news.log(s.log, s.falls, false)
		for _, want := range []string{`level=INFO msg="partitions taken over" partitions=0,1,2,3 from=dead,me,none`,
			`level=WARN msg="partitions are not as this node left them: others have taken them over, or the database went back" partitions=7,9`,
			`level=INFO msg="partitions were taken over by the nodes that they belong to now" partitions=8`} {
			if strings.Count(text.String(), want) != 1 {
				t.Errorf("want one line %s in\n%s", want, &text)
			}
		}
		if n := strings.Count(text.String(), "\n"); n != 3 {
			t.Errorf("%d lines:\n%s", n, &text)
		}
	})
}

// TestTakeoversAreOneTrouble: as long as one partition cannot be taken over there is a trouble, which names all of them;
// partitions that are not wanted any more are no part of it.
func TestTakeoversAreOneTrouble(t *testing.T) {
	n := newNews()
	away := errors.New("away")
	if err := n.noteTakeover(5, away); err == nil || err.Error() != "partitions 5: away" {
		t.Error(err)
	}
	if err := n.noteTakeover(3, away); !errors.Is(err, away) || err.Error() != "partitions 3,5: away" {
		t.Error(err)
	}
	if err := n.noteTakeover(4, nil); err == nil {
		t.Error("another partition's takeover ends the trouble")
	}
	if err := n.noteTakeover(3, nil); err == nil || err.Error() != "partitions 5: away" {
		t.Error(err)
	}
	if err, changed := n.only(func(p int) bool { return p == 5 }); err == nil || changed {
		t.Error(err, changed)
	}
	if err, changed := n.only(func(int) bool { return false }); err != nil || !changed {
		t.Error(err, changed)
	}
}

// TestMembersAreTold: one line for each change of the live nodes.
//
// covers: B13
func TestMembersAreTold(t *testing.T) {
	var text bytes.Buffer
	s := &Scheduler{shared: shared{placement: newPlacement(), log: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))}}
	for _, live := range [][]string{{"a", "b", "c"}, {"a"}, {"a"}, {"a", "d"}, {"b"}, nil} {
		s.SetLive(live)
	}
	want := `level=INFO msg="live nodes" live=a,b,c
level=WARN msg="nodes are gone" gone=b,c live=a
level=INFO msg="nodes came" came=d live=a,d
level=WARN msg="nodes are gone, and others came" gone=a,d came=b live=b
level=WARN msg="nodes are gone" gone=b live=""
`
	if text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &text, want)
	}
}

// TestListed: a list of partitions is bounded.
func TestListed(t *testing.T) {
	all := make([]int, 1024)
	for i := range all {
		all[i] = i
	}
	if got := listed(all[:3]); got != "0,1,2" {
		t.Error(got)
	}
	if got := listed(all); !strings.HasSuffix(got, ",63,… 1024 in all") || len(got) > 300 {
		t.Error(got)
	}
}
