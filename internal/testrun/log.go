//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// part is what stands under one heading of the command's output.
type part struct {
	name    string
	begun   time.Time
	seconds float64
}

// log passes on what a command prints, and keeps what the end of the run says again.
type log struct {
	mu    sync.Mutex
	out   io.Writer
	last  time.Time // of the last line
	parts []part
	again []string // lines of packages that passed, and of what was not run
}

func newLog(out io.Writer) *log { return &log{out: out, last: time.Now()} }

// copy passes lines on until there are no more.
func (l *log) copy(from io.Reader) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			l.line(line)
		}
		if err != nil {
			return
		}
	}
}

func (l *log) line(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = time.Now()
	_, _ = l.out.Write(line) // a reader that is gone does not stop the tests
	text := string(bytes.TrimRight(line, "\r\n"))
	name, heading := strings.CutPrefix(text, "==> ")
	switch {
	case heading:
		l.close()
		l.parts = append(l.parts, part{name: name, begun: l.last})
	case strings.HasPrefix(text, "ok  \t") && !strings.Contains(text, "no tests to run"), strings.Contains(text, "NOT RUN"), strings.HasPrefix(text, "compose: ") && strings.Contains(text, " failed"):
		l.again = append(l.again, text)
	}
}

// close ends the part that is at work.
func (l *log) close() {
	if n := len(l.parts); n > 0 {
		l.parts[n-1].seconds = time.Since(l.parts[n-1].begun).Seconds()
	}
}

// quiet says what is at work where nothing was said for as long as most.
func (l *log) quiet(most time.Duration, atWork func() []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.last) < most {
		return
	}
	l.last = time.Now()
	fmt.Fprintf(l.out, "    at work: %s\n", strings.Join(atWork(), ", "))
}

// summary ends the output, and writes how long each part took into a file.
func (l *log) summary(file string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close()
	var times strings.Builder
	fmt.Fprintf(l.out, "\n%s\n", strings.Join(l.again, "\n"))
	total := 0.0
	for _, p := range l.parts {
		total += p.seconds
		fmt.Fprintf(l.out, "%7.0f s  %s\n", p.seconds, p.name)
		fmt.Fprintf(&times, "%.0f\t%s\n", p.seconds, p.name)
	}
	fmt.Fprintf(l.out, "%7.0f s  in all\n", total)
	fmt.Fprintf(&times, "%.0f\ttotal\n", total)
	if file == "" {
		return nil
	}
	return os.WriteFile(file, []byte(times.String()), 0o644)
}
