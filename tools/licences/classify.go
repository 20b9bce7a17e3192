package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/licensecheck"
)

// permissive are the licences that a program under Apache-2.0 may link. They ask for
// their text to be carried along, or for nothing.
var permissive = map[string]bool{
	"0BSD": true, "Apache-2.0": true, "BSD-2-Clause": true, "BSD-3-Clause": true, "CC0-1.0": true,
	"ISC": true, "MIT": true, "MIT-0": true, "Unlicense": true, "Zlib": true, "blessing": true,
}

// added are licences that the scanner does not know, by a sentence only they have.
// They are here to be refused by name.
var added = []licensecheck.License{
	{ID: "BUSL-1.1", LRE: "The Licensor hereby grants you the right to copy, modify, create derivative works, redistribute, and make non-production use of the Licensed Work."},
	{ID: "Elastic-2.0", LRE: "You may not provide the software to third parties as a hosted or managed service, where the service provides users with access to any substantial set of the features or functionality of the software."},
}

// knownLeast is how much of a licence file, in per cent of its words, must be the text
// of known licences. The rest is copyright lines, and names of what each part is about.
const knownLeast = 75

// fileBytesMax bounds a licence file; the longest licences have some 40 kB.
const fileBytesMax = 1 << 20

var (
	licenceName = regexp.MustCompile(`(?i)^[\w-]*(licen[cs]e|copying)[\w.-]*$`)
	noticeName  = regexp.MustCompile(`(?i)^notice(\.(txt|md))?$`)
	otherFile   = regexp.MustCompile(`(?i)\.(go|s|c|h|json|ya?ml|sh)$`)
)

// newScanner knows all licences. Making one takes seconds, so there is one.
var newScanner = sync.OnceValues(func() (*licensecheck.Scanner, error) {
	return licensecheck.NewScanner(append(licensecheck.BuiltinLicenses(), added...))
})

// classify fills in licences and notices of each module. Its error names every module
// with a licence that is unknown or not permissive, or with none.
func classify(modules []*module) error {
	scanner, err := newScanner()
	if err != nil {
		return fmt.Errorf("known licences: %w", err)
	}
	var bad []error
	for _, m := range modules {
		if err := m.classify(scanner); err != nil {
			bad = append(bad, fmt.Errorf("%s %s: %w", m.path, m.version, err))
		}
	}
	return errors.Join(bad...)
}

func (m *module) classify(scanner *licensecheck.Scanner) error {
	var bad []error
	atTop := false
	for _, folder := range m.folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return fmt.Errorf("folder of a module: %w", err)
		}
		for _, entry := range entries {
			name := entry.Name()
			if entry.IsDir() || otherFile.MatchString(name) {
				continue
			}
			path := filepath.Join(folder, name)
			switch {
			case noticeName.MatchString(name):
				m.notices = append(m.notices, m.below(path))
				m.texts = append(m.texts, path)
			case licenceName.MatchString(name):
				m.texts = append(m.texts, path)
				atTop = atTop || folder == m.dir
				if err := m.scan(scanner, path); err != nil {
					bad = append(bad, err)
				}
			}
		}
	}
	if !atTop {
		bad = append(bad, errors.New("no licence file at the top of the module"))
	}
	slices.Sort(m.licences)
	m.licences = slices.Compact(m.licences)
	return errors.Join(bad...)
}

// scan reads one licence file.
func (m *module) scan(scanner *licensecheck.Scanner, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("licence file: %w", err)
	}
	if len(text) > fileBytesMax {
		return fmt.Errorf("%s has %d bytes, the limit is %d", m.below(path), len(text), fileBytesMax)
	}
	found, err := judge(scanner, text)
	if err != nil {
		if found, err = m.review(path, text, err); err != nil {
			return fmt.Errorf("%s: %w", m.below(path), err)
		}
	}
	m.licences = append(m.licences, found...)
	return nil
}

// review is what reading found in a text that the scanner refuses with refusal.
func (m *module) review(path string, text []byte, refusal error) ([]string, error) {
	i := slices.IndexFunc(reviewed, func(r review) bool { return r.module == m.path && r.file == m.below(path) })
	if i < 0 {
		return nil, refusal
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(text)); sum != reviewed[i].sha256 {
		return nil, fmt.Errorf("not the text that was read (reviewed.go), its SHA-256 is %s: %w", sum, refusal)
	}
	return reviewed[i].licences, nil
}

// judge names the licences of a text, and says which of them are not permissive, or
// that too much of it is of no known licence.
func judge(scanner *licensecheck.Scanner, text []byte) ([]string, error) {
	coverage := scanner.Scan(text)
	var found, refused []string
	for _, match := range coverage.Match {
		switch {
		case !permissive[match.ID]: // a mere link to one as well
			refused = append(refused, match.ID)
		case !match.IsURL:
			found = append(found, match.ID)
		}
	}
	slices.Sort(refused)
	refused = slices.Compact(refused)
	switch {
	case len(refused) > 0:
		return found, fmt.Errorf("licence %s is not permissive", strings.Join(refused, ", "))
	case len(found) == 0 || coverage.Percent < knownLeast:
		return found, fmt.Errorf("unknown licence: %.0f %% of the text is of a known one, want %d", coverage.Percent, knownLeast)
	}
	return found, nil
}

// below is a path inside the module, with slashes.
func (m *module) below(path string) string {
	rel, err := filepath.Rel(m.dir, path)
	if err != nil {
		return path
	}
	return filepath.ToSlash(rel)
}
