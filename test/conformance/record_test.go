package conformance

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
)

const divergencesFile = "testdata/divergences.txt"

// notRecorded starts the transcript of a case that did not run on a VPP version; the reason follows.
const notRecorded = "not recorded: "

// record holds the transcripts of a VPP version.
type record struct {
	version string // from show_version
	cases   map[string]string
}

// releaseOf returns the part of VPP's version for a file name: "25.10" of "25.10-release".
var release = regexp.MustCompile(`^v?([0-9]+\.[0-9]+)`)

func releaseOf(version string) string {
	if m := release.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return version
}

func recordFile(version string) string {
	return filepath.Join("testdata", "vpp-"+releaseOf(version)+".txt")
}

// readRecords reads all records, the oldest version first.
func readRecords(t *testing.T) []record {
	t.Helper()
	files, err := filepath.Glob("testdata/vpp-*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var records []record
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head, cases := sections(string(text))
		version, ok := strings.CutPrefix(strings.TrimSpace(head), "# VPP ")
		if !ok {
			t.Fatalf("%s does not start with its version", file)
		}
		records = append(records, record{version, cases})
	}
	return records
}

func (r record) write() error {
	text := new(strings.Builder)
	fmt.Fprintf(text, "# VPP %s\n", r.version)
	for _, name := range slices.Sorted(maps.Keys(r.cases)) {
		fmt.Fprintf(text, "\n== %s\n%s", name, r.cases[name])
	}
	return os.WriteFile(recordFile(r.version), []byte(text.String()), 0o644)
}

// sections splits a file at its lines "== name". It ignores empty lines between sections.
func sections(text string) (head string, bodies map[string]string) {
	head, rest, _ := strings.Cut("\n"+text, "\n== ")
	bodies = map[string]string{}
	for part := range strings.SplitSeq(rest, "\n== ") {
		if name, body, ok := strings.Cut(part, "\n"); ok {
			bodies[name] = strings.TrimRight(body, "\n") + "\n"
		}
	}
	return head, bodies
}

// divergence is a difference between weft-vswitch and VPP.
type divergence struct {
	releases []string // releases with the difference; empty = all
	reason   string
	lines    string // "- " lines of VPP, "+ " lines of weft-vswitch
	met      bool
}

// readDivergences reads the list. A case may have several entries for different releases.
func readDivergences(t *testing.T) map[string][]*divergence {
	t.Helper()
	text, err := os.ReadFile(divergencesFile)
	if err != nil {
		t.Fatal(err)
	}
	_, bodies := sections(string(text))
	all := map[string][]*divergence{}
	for title, body := range bodies {
		name, of, _ := strings.Cut(title, " @")
		reason, lines, ok := strings.Cut(body, "\n")
		reason, output := strings.CutPrefix(reason, "reason: ")
		if !ok || !output || strings.TrimSpace(reason) == "" {
			t.Fatalf("%s: the divergence of %q does not start with its reason", divergencesFile, title)
		}
		all[name] = append(all[name], &divergence{releases: strings.Fields(of), reason: reason, lines: lines})
	}
	return all
}

func (d *divergence) holdsFor(version string) bool {
	return len(d.releases) == 0 || slices.Contains(d.releases, releaseOf(version))
}

// difference returns the lines that only one side has: "- " VPP, "+ " weft-vswitch.
func difference(vpp, vswitch string) string {
	if vpp == vswitch {
		return ""
	}
	var lines []string
	for i, line := range strings.Split(string(diff.Diff("VPP", []byte(vpp), "weft-vswitch", []byte(vswitch))), "\n") {
		if i > 2 && (strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+")) {
			lines = append(lines, line[:1]+" "+line[1:])
		}
	}
	return strings.Join(lines, "\n") + "\n"
}
