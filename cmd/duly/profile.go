package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"duly.dev/duly/cmd/duly/internal/show"
)

// saved is a profile: where a node is and what to show it.
type saved struct {
	URL   string `json:"url"`
	Token string `json:"token,omitempty"`
}

// profiles is the file.
type profiles struct {
	Use      string           `json:"use,omitempty"` // the one that is used where none is named
	Profiles map[string]saved `json:"profiles"`
}

// Bounds of the file.
const (
	profileBytesMax = 1 << 20
	profileMode     = 0o600
	profileDirMode  = 0o700
)

// profilesPath is the file of this user.
func profilesPath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("profiles: %w", err)
	}
	return filepath.Join(dir, "duly", "profiles.json"), nil
}

// loadProfiles reads the file; one that is not there has none. A file that others may read is refused: it has tokens.
func loadProfiles() (p profiles, path string, err error) {
	if path, err = profilesPath(); err != nil {
		return p, "", err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return profiles{Profiles: map[string]saved{}}, path, nil
	}
	if err != nil {
		return p, path, fmt.Errorf("profiles: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return p, path, fmt.Errorf("profiles: %w", err)
	}
	if mode := info.Mode().Perm(); mode&^profileMode != 0 && runtime.GOOS != "windows" {
		return p, path, misuse("profiles: %s has tokens and mode %04o, want %04o: chmod 600 %s", path, mode, profileMode, path)
	}
	data, err := io.ReadAll(io.LimitReader(f, profileBytesMax+1))
	if err != nil {
		return p, path, fmt.Errorf("profiles: %w", err)
	}
	if len(data) > profileBytesMax {
		return p, path, misuse("profiles: %s has more than %d bytes", path, profileBytesMax)
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, path, misuse("profiles: %s: %v", path, err)
	}
	if p.Profiles == nil {
		p.Profiles = map[string]saved{}
	}
	return p, path, nil
}

// save replaces the file as a whole.
func (p *profiles) save(path string) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), profileDirMode)
	}
	if err != nil {
		return fmt.Errorf("profiles: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".profiles-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("profiles: %w", err)
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("profiles: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// profileOf is the profile of a name, or the one in use; of no name and none in use, an empty one.
func profileOf(name string) (saved, error) {
	all, path, err := loadProfiles()
	if err != nil {
		return saved{}, err
	}
	if name == "" {
		name = all.Use
	}
	p, ok := all.Profiles[name]
	if !ok && name != "" {
		return p, misuse("profile %q is not in %s; there are %s", name, path, all.names())
	}
	return p, nil
}

func (p *profiles) names() string {
	if len(p.Profiles) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(p.Profiles)), ", ")
}

type profileCmd struct {
	Add  profileAddCmd  `cmd:"" help:"Keep an address and a token under a name, in a file that only you can read."`
	Use  profileUseCmd  `cmd:"" help:"Use a profile wherever none is named."`
	List profileListCmd `cmd:"" help:"List the profiles, without their tokens."`
}

type profileAddCmd struct {
	Name      string `arg:"" help:"Name of the profile; one that exists is replaced."`
	URL       string `arg:"" name:"url" help:"Address of a node's HTTP API."`
	TokenFile string `type:"path" help:"File with the token; - reads it from standard input. Without it the profile has none."`
}

// Run keeps a profile. The first one is used from then on.
func (c *profileAddCmd) Run(std streams) error {
	if c.Name == "" || strings.ContainsAny(c.Name, " \t\n/") {
		return misuse("name %q: want one without spaces and slashes", c.Name)
	}
	if u, err := url.Parse(c.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return misuse("url %q: want http:// or https:// and a host, and no password in it", c.URL)
	}
	token, err := readSecret(std, c.TokenFile)
	if err != nil {
		return err
	}
	all, path, err := loadProfiles()
	if err != nil {
		return err
	}
	all.Profiles[c.Name] = saved{URL: strings.TrimSuffix(c.URL, "/"), Token: token}
	if all.Use == "" {
		all.Use = c.Name
	}
	if err := all.save(path); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "profile %s is in %s; %s is in use\n", c.Name, path, all.Use)
	return err
}

// readSecret reads a token from a file or standard input.
func readSecret(std streams, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	from := std.in
	if file != "-" && filepath.Base(file) != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", misuse("token-file: %v", err)
		}
		defer f.Close()
		from = f
	}
	const most = 4096
	data, err := io.ReadAll(io.LimitReader(from, most+1))
	if err != nil {
		return "", fmt.Errorf("token-file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || len(token) > most || strings.ContainsAny(token, " \t\r\n") {
		return "", misuse("token-file: want one token on one line, of at most %d bytes", most)
	}
	return token, nil
}

type profileUseCmd struct {
	Name string `arg:"" help:"Name of the profile."`
}

// Run changes which profile is used.
func (c *profileUseCmd) Run(std streams) error {
	all, path, err := loadProfiles()
	if err != nil {
		return err
	}
	p, ok := all.Profiles[c.Name]
	if !ok {
		return misuse("profile %q is not in %s; there are %s", c.Name, path, all.names())
	}
	all.Use = c.Name
	if err := all.save(path); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s is in use: %s\n", c.Name, p.URL)
	return err
}

type profileListCmd struct {
	Output string `short:"o" enum:"text,json,yaml,csv" default:"text" help:"text, json, yaml or csv."`
}

// profileColumns are those of the list.
var profileColumns = []string{"name", "url", "token", "in_use"}

// Run lists the profiles.
func (c *profileListCmd) Run(std streams) error {
	all, _, err := loadProfiles()
	if err != nil {
		return err
	}
	rows := []show.Object{}
	for _, name := range slices.Sorted(maps.Keys(all.Profiles)) {
		p := all.Profiles[name]
		rows = append(rows, show.Object{"name": name, "url": p.URL, "token": p.Token != "", "in_use": name == all.Use})
	}
	data, err := json.Marshal(show.Object{"profiles": rows})
	if err != nil {
		return fmt.Errorf("profiles: %w", err)
	}
	s := server{Output: c.Output}
	return s.list(std, data, "profiles", "no profile: duly profile add NAME URL makes one", profileColumns)
}
