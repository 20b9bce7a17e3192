package httpagent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	secretBytesMax = 64 << 10
	secretAge      = 10 * time.Second // a file of a secret is read again after that
)

// secret is a text that stands in a file or the environment. It is in no error and no log.
type secret struct {
	file string // empty: it came from the environment

	mu   sync.Mutex
	text string
	last string // text before the newest change: a request with it may be under way
	read time.Time
}

// newSecret reads a secret from a file or, where that is empty, from a variable of the environment.
func newSecret(file, env string) (*secret, error) {
	s := &secret{file: file}
	var err error
	if file != "" {
		s.read = time.Now()
		s.text, err = readSecret(file)
		return s, err
	}
	s.text, err = checkSecret(os.Getenv(env))
	if err != nil {
		return nil, fmt.Errorf("variable %s of the environment: %w", env, err)
	}
	return s, nil
}

// value is the secret as it is now. One whose file cannot be read stays as it was.
func (s *secret) value() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.file != "" && now.Sub(s.read) > secretAge {
		s.read = now
		if text, err := readSecret(s.file); err == nil {
			if text != s.text {
				s.text, s.last = text, s.text
			}
		}
	}
	return s.text
}

// before is the secret before the newest change; empty: it has not changed.
func (s *secret) before() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func readSecret(path string) (string, error) {
	data, err := readFile(path, secretBytesMax+2)
	if err != nil {
		return "", err
	}
	text, err := checkSecret(string(data))
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

// readFile reads a file of at most so many bytes.
func readFile(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return data, err
}

// checkSecret takes a secret that a header can carry, without the line end that editors add.
func checkSecret(text string) (string, error) {
	text = strings.TrimRight(text, "\r\n")
	switch {
	case text == "":
		return "", errors.New("it is empty")
	case len(text) > secretBytesMax:
		return "", fmt.Errorf("it has more than %d bytes", secretBytesMax)
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "", errors.New("it has a character that no header can carry")
	}
	return text, nil
}
