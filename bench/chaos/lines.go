package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// line is one line that a process logged.
type line struct {
	process, life string
	at            time.Time
	text          string            // the message
	attrs         map[string]string // the last of each name
	raw           string
}

// cause is what a line is about: no cause may have more than one line a second. Each task in error is a cause of its
// own; the supervisor bounds how many it tells of.
func (l *line) cause() string {
	return strings.Join([]string{l.life, l.text, l.attrs["alert"], l.attrs["name"], l.attrs["key"], l.attrs["task"]}, "|")
}

// lineGap is a second, less what two clocks of one process may be apart.
const lineGap = 950 * time.Millisecond

// logs reads what processes log, as they go on.
type logs struct {
	older string // the program whose lines do not count: it is not of this version
	files map[string]*logFile
	last  map[string]time.Time // of each cause
	noisy map[string]int       // lines too many, by message
	first map[string]string    // one of them
}

// logFile is how far a log has been read.
type logFile struct {
	name   string
	offset int64
	lives  int
	own    bool   // its lines are of this version's program
	soon   []line // sooner than a second after another of their cause; whether that is too soon is not known yet
}

// endFlush is how long before its end a process may write what it had held back.
const endFlush = 500 * time.Millisecond

func newLogs(older string) *logs {
	return &logs{older: older, files: map[string]*logFile{}, last: map[string]time.Time{}, noisy: map[string]int{}, first: map[string]string{}}
}

// read gives the lines that were added to the logs of processes since it was last called.
func (l *logs) read(list []*process) ([]line, error) {
	var all []line
	for _, p := range list {
		f := l.files[p.name]
		if f == nil {
			f = &logFile{name: p.name}
			l.files[p.name] = f
		}
		text, err := tail(p.log.Name(), f.offset)
		if err != nil {
			return nil, err
		}
		text = text[:bytes.LastIndexByte(text, '\n')+1] // the rest is being written
		f.offset += int64(len(text))
		for _, raw := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
			if one, ok := l.line(f, raw); ok {
				all = append(all, one)
			}
		}
	}
	return all, nil
}

// tail is a file from a place on.
func tail(path string, offset int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	text := make([]byte, max(0, info.Size()-offset))
	n, err := file.ReadAt(text, offset)
	if n < len(text) && err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	return text, nil
}

// line takes one in; false: it is none, or does not count.
func (l *logs) line(f *logFile, raw string) (line, bool) {
	if strings.HasPrefix(raw, "--- ") { // of the harness
		if _, program, ok := strings.Cut(raw, " starts "); ok {
			f.lives++
			f.own = l.older == "" || program != l.older
		}
		if at, _, ok := strings.Cut(strings.TrimPrefix(raw, "--- "), " ended"); ok {
			if ended, err := time.Parse(time.RFC3339Nano, at); err == nil {
				l.tooSoon(f, ended.Add(-endFlush))
				f.soon = nil
			}
		}
		return line{}, false
	}
	attrs := attributes(raw)
	at, err := time.Parse(time.RFC3339Nano, attrs["time"])
	if err != nil || attrs["msg"] == "" || !f.own {
		return line{}, false
	}
	one := line{process: f.name, life: f.name + "#" + strconv.Itoa(f.lives), at: at, text: attrs["msg"], attrs: attrs, raw: raw}
	cause := one.cause()
	if last, ok := l.last[cause]; ok && at.Sub(last) < lineGap {
		f.soon = append(f.soon, one)
	}
	l.last[cause] = at
	return one, true
}

// tooSoon counts the lines of a log that came too soon and were written before a moment.
func (l *logs) tooSoon(f *logFile, before time.Time) {
	var rest []line
	for _, one := range f.soon {
		if !one.at.Before(before) {
			rest = append(rest, one)
			continue
		}
		l.noisy[one.text]++
		if l.first[one.text] == "" {
			l.first[one.text] = one.raw
		}
	}
	f.soon = rest
}

// noise are all lines that were too many, by message.
func (l *logs) noise() map[string]int {
	for _, f := range l.files {
		l.tooSoon(f, forever)
	}
	return l.noisy
}

// forever is after all that is ever logged.
var forever = time.Now().AddDate(100, 0, 0)

// attributes reads the name=value pairs of a line.
func attributes(raw string) map[string]string {
	m := map[string]string{}
	for raw != "" {
		name, rest, ok := strings.Cut(strings.TrimLeft(raw, " "), "=")
		if !ok {
			break
		}
		if strings.HasPrefix(rest, `"`) {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				break
			}
			m[name], _ = strconv.Unquote(quoted) // QuotedPrefix has read it
			raw = rest[len(quoted):]
			continue
		}
		m[name], raw, _ = strings.Cut(rest, " ")
	}
	return m
}
