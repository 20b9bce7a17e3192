// Package keep has the services of the examples remember in files what they have done, so that their books are the same
// after a restart.
package keep

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// effectsMax bounds the effects of a file: the newest keys stay. A service that has forgotten a key takes it for a new one.
const effectsMax = 100_000

// Effect is what a service did under a key.
type Effect struct {
	Key   string
	At    time.Time
	Times int // it stands so often; 0: it was taken back
}

// File is a file of effects. It is safe for concurrent use; a nil one keeps nothing.
type File struct {
	path string
	most int // effects that stay when it is rewritten, and as many lines may be added until then

	mu    sync.Mutex
	file  *os.File
	added int // lines, since it was written anew
}

// Open reads what is in the file, of each key the newest, in the order of their first effects, and adds what comes. A line
// that was cut off when the process died is skipped: its call was never answered.
func Open(path string) (*File, []Effect, error) { return open(path, effectsMax) }

func open(path string, most int) (*File, []Effect, error) {
	f := &File{path: path, most: most}
	all, err := f.rewrite()
	if err != nil {
		return nil, nil, err
	}
	return f, all, nil
}

// rewrite leaves in the file a line for each of the newest keys, and returns these. A process that dies meanwhile leaves it as
// it was.
func (f *File) rewrite() (all []Effect, err error) {
	all, err = read(f.path)
	if err != nil {
		return nil, fmt.Errorf("books in %s: %w", f.path, err)
	}
	all = all[max(0, len(all)-f.most):]
	file, err := os.OpenFile(f.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("books: %w", err)
	}
	lines := bufio.NewWriter(file)
	for i := range all {
		all[i].write(lines)
	}
	if err := errors.Join(lines.Flush(), os.Rename(f.path+".new", f.path)); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("books: %w", err)
	}
	if f.file != nil {
		_ = f.file.Close() // all that it had is in the new one
	}
	f.file, f.added = file, 0
	return all, nil
}

// read is what is in a file; nothing, where there is none.
func read(path string) (all []Effect, err error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
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
	return all, lines.Err()
}

func (e *Effect) write(to *bufio.Writer) {
	fmt.Fprintf(to, "%d %d %s .\n", e.Times, e.At.UnixMicro(), e.Key) // what fails is said by Flush
}

// Add keeps an effect before its service answers.
func (f *File) Add(e Effect) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	line := bufio.NewWriter(f.file)
	e.write(line)
	if err := line.Flush(); err != nil {
		return fmt.Errorf("books: %w", err)
	}
	if f.added++; f.added < f.most {
		return nil
	}
	_, err := f.rewrite()
	return err
}

// Close ends the writing.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}
