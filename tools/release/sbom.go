package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func (r *release) sbomName(target string) string { return r.name(target) + ".cdx.json" }

// sbom writes the bill of materials of a program, by cyclonedx-gomod from the modules that the program itself names, with
// the licences of docs/third-party.md.
func (r *release) sbom(ctx context.Context, target, binary string) error {
	raw := filepath.Join(r.work, "raw.json")
	// In the module of this program, whose go.mod pins the tool.
	if _, err := r.command(ctx, filepath.Join(r.root, "tools", "release"), nil, "go", "tool", "cyclonedx-gomod", "bin",
		"-json", "-std", "-noserial", "-notimestamp", "-version", "v"+r.version, "-output", raw, binary); err != nil {
		return err
	}
	bom, err := readBOM(raw)
	if err != nil {
		return err
	}
	licences, err := r.licenceTable()
	if err != nil {
		return err
	}
	// The tool is named without the hashes of its program, which is built on each machine.
	bom.Metadata.Tools = &cdx.ToolsChoice{Components: &[]cdx.Component{{Type: cdx.ComponentTypeApplication, Name: "cyclonedx-gomod"}}}
	for i := range *bom.Components {
		c := &(*bom.Components)[i]
		expression, ok := licences[c.Name+" "+c.Version]
		if c.Name == "std" {
			expression, ok = "BSD-3-Clause", true
		}
		if !ok {
			return fmt.Errorf("SBOM: %s %s is not in docs/third-party.md", c.Name, c.Version)
		}
		c.Licenses = &cdx.Licenses{{Expression: expression}}
	}
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return fmt.Errorf("SBOM: %w", err)
	}
	to := filepath.Join(r.out, r.sbomName(target))
	if err := os.WriteFile(to, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("SBOM: %w", err)
	}
	return checkBOM(to, binary)
}

func readBOM(path string) (*cdx.BOM, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("SBOM: %w", err)
	}
	bom := new(cdx.BOM)
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(bom); err != nil {
		return nil, fmt.Errorf("SBOM: %w", err)
	}
	if bom.Components == nil || bom.Metadata == nil || bom.Metadata.Component == nil {
		return nil, errors.New("SBOM: no components, or not of what")
	}
	return bom, nil
}

// checkBOM fails unless a bill of materials has exactly the modules that the program names, each with a licence and a
// package URL.
func checkBOM(path, binary string) error {
	bom, err := readBOM(path)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("build information: %w", err)
	}
	want := map[string]bool{"std " + info.GoVersion: true}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		want[m.Path+" "+m.Version] = true
	}
	for _, c := range *bom.Components {
		id := c.Name + " " + c.Version
		if !want[id] {
			return fmt.Errorf("SBOM: %s is not linked, or there twice", id)
		}
		delete(want, id)
		if c.Licenses == nil || len(*c.Licenses) != 1 || (*c.Licenses)[0].Expression == "" || !strings.HasPrefix(c.PackageURL, "pkg:golang/") {
			return fmt.Errorf("SBOM: %s has no licence, or no package URL", id)
		}
	}
	if len(want) > 0 {
		return fmt.Errorf("SBOM: it lacks %v", want)
	}
	return nil
}

var licenceRow = regexp.MustCompile("(?m)^\\| `(\\S+)` \\| (\\S+) \\| ([^|]+) \\|$")

// licenceTable reads docs/third-party.md: SPDX expressions by module and version.
func (r *release) licenceTable() (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "docs", "third-party.md"))
	if err != nil {
		return nil, fmt.Errorf("licences: %w", err)
	}
	table := map[string]string{}
	for _, row := range licenceRow.FindAllStringSubmatch(string(text), -1) {
		table[row[1]+" "+row[2]] = strings.ReplaceAll(strings.TrimSpace(row[3]), ", ", " AND ")
	}
	return table, nil
}
