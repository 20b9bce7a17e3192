// Package keep has the services of the examples remember in files what they have done, so that their books are the same
// after a restart.
package keep

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"time"
)

// Effect is what a service did under a key.
type Effect struct {
	Key   string
	At    time.Time
	Times int // it stands so often; 0: it was taken back
}

// File is a file of effects. It is safe for concurrent use; a nil one keeps nothing.
type File struct {
	mu   sync.Mutex
	file *os.File
}

// Open reads what is in the file, of each key the newest, in the order of their first effects, and adds what comes. A line
// that was cut off when the process died is skipped: its call was never answered.
func Open(path string) (*File, []Effect, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("books: %w", err)
	}
	var all []Effect
	places := map[string]int{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var e Effect
		var at int64
		if _, err := fmt.Sscanf(lines.Text(), "%d %d %s .", &e.Times, &at, &e.Key); err != nil {
			continue
		}
		if e.At = time.UnixMicro(at); places[e.Key] > 0 {
			all[places[e.Key]-1].Times = e.Times
			continue
		}
		all = append(all, e)
		places[e.Key] = len(all)
	}
	if err := lines.Err(); err != nil {
		_ = file.Close()
		return nil, nil, fmt.Errorf("books in %s: %w", path, err)
	}
	_, err = fmt.Fprintln(file) // ends a line that was cut off
	return &File{file: file}, all, err
}

// Add keeps an effect before its service answers.
func (f *File) Add(e Effect) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := fmt.Fprintf(f.file, "%d %d %s .\n", e.Times, e.At.UnixMicro(), e.Key); err != nil {
		return fmt.Errorf("books: %w", err)
	}
	return nil
}

// Close ends the writing.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	return f.file.Close()
}
