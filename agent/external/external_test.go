package external

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weftnet/weft/eventloop"
)

// outside is a directory of external configuration and what came of it.
type outside struct {
	*Files
	applied []string
	faults  []string
	refuse  error
}

func newOutside(t *testing.T) *outside {
	o := &outside{}
	o.Files = New(t.TempDir(), o, slog.New(slog.NewJSONHandler(o, nil)))
	return o
}

// SetExternal is what the event loop does for the files.
func (o *outside) SetExternal(_ context.Context, source string, values map[string][]byte) (*eventloop.Record, error) {
	o.applied = append(o.applied, fmt.Sprintf("%s %s", source, values))
	return nil, o.refuse
}

// Write takes a line of the log: each is about a fault of a file.
func (o *outside) Write(line []byte) (int, error) {
	var fault struct{ File, Err string }
	if err := json.Unmarshal(line, &fault); err != nil {
		return 0, err
	}
	o.faults = append(o.faults, filepath.Base(fault.File)+": "+fault.Err)
	return len(line), nil
}

func (o *outside) write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(o.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func (o *outside) expect(t *testing.T, applied, faults string) {
	t.Helper()
	o.look(t.Context())
	if got := strings.Join(o.applied, ";"); got != applied {
		t.Errorf("applied %q, want %q", got, applied)
	}
	if got := strings.Join(o.faults, ";"); !strings.Contains(got, faults) || (faults == "") != (got == "") {
		t.Errorf("faults %q, want %q", got, faults)
	}
	o.applied = nil
	o.faults = nil
}

func TestAFileIsAppliedWhenItComesChangesAndGoes(t *testing.T) {
	o := newOutside(t)
	o.write(t, "a.yaml", "vpp.route/x: {vrf: blue}", 0o600)
	o.expect(t, `file a.yaml map[vpp.route/x:{"vrf":"blue"}]`, "")
	o.expect(t, "", "")
	o.write(t, "a.yaml", "vpp.route/x: {vrf: z}", 0o600)
	o.expect(t, `file a.yaml map[vpp.route/x:{"vrf":"z"}]`, "")
	if err := os.Remove(filepath.Join(o.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	o.expect(t, "file a.yaml map[]", "")
	o.expect(t, "", "")
}

func TestAllDocumentsOfAFileAreApplied(t *testing.T) {
	for _, text := range []string{
		"a/x: 1\n---\na/y: 2\n", "---\na/x: 1\n---  # more\na/y: 2", "# ours\n---\na/x: 1\n---\n---\na/y: 2\n---\n",
		"a/x: 1\r\n...\r\na/y: 2\r\n...\r\n", `{"a/x": 1, "a/y": 2}`,
	} {
		o := newOutside(t)
		o.write(t, "a.yaml", text, 0o600)
		o.expect(t, "file a.yaml map[a/x:1 a/y:2]", "")
	}
}

func TestAFileThatCannotBeTrustedOrReadIsRefusedOnce(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		mode       os.FileMode
		want       string
	}{
		{"writable by the group", "vpp.route/x: {}", 0o620, "a.yaml: others may write it"},
		{"writable by others", "vpp.route/x: {}", 0o602, "a.yaml: others may write it"},
		{"no YAML", "{", 0o600, "a.yaml: "},
		{"a key twice", "a/b: 1\na/b: 2", 0o600, "already set"},
		{"a key again in the second document", "a/b: 1\n---\na/b: 2", 0o600, "a.yaml: a/b: it is already set"},
		{"a second document that is wrong", "a/b: 1\n---\n{", 0o600, "a.yaml: "},
		{
			"a document on the line of its mark", "a/b: 1\n--- {a/c: 2}", 0o600,
			`a.yaml: line 2: move the content after --- to the next line`,
		},
		{"too large", strings.Repeat("#", maxExternalFile+1), 0o600, "at most"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newOutside(t)
			o.write(t, "a.yaml", tc.text, tc.mode)
			o.expect(t, "", tc.want)
			o.expect(t, "", "")
		})
	}
}

func TestALinkIsNotFollowed(t *testing.T) {
	o := newOutside(t)
	if err := os.Symlink("/etc/passwd", filepath.Join(o.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	o.expect(t, "", "not a regular file")
}

func TestABadFileLeavesWhatItSaidBefore(t *testing.T) {
	o := newOutside(t)
	o.write(t, "a.yaml", "vpp.route/x: {vrf: blue}", 0o600)
	o.look(t.Context())
	o.applied = nil
	o.write(t, "a.yaml", "{", 0o600)
	o.expect(t, "", "a.yaml: ")
}

func TestWhatTheLoopRefusesIsTriedAgain(t *testing.T) {
	o := newOutside(t)
	o.refuse = errors.New("not now")
	o.write(t, "a.yaml", "vpp.route/x: {vrf: blue}", 0o600)
	o.expect(t, `file a.yaml map[vpp.route/x:{"vrf":"blue"}]`, "a.yaml: not now")
	o.refuse = nil
	o.expect(t, `file a.yaml map[vpp.route/x:{"vrf":"blue"}]`, "")
}

func TestTheConditionNamesFilesThatAreNotReadAndValuesThatAreLeftOut(t *testing.T) {
	o := newOutside(t)
	want := func(when, message string, drops ...eventloop.Drop) {
		t.Helper()
		o.look(t.Context())
		if c := o.Condition(drops); c.Ok != (message == "") || c.Name != "external" ||
			!strings.HasPrefix(strings.ReplaceAll(c.Message, o.dir+"/", ""), message) {
			t.Errorf("%s: %v, want %q", when, c, message)
		}
	}
	want("no file", "")
	o.write(t, "a.yaml", "vpp.route/x: {vrf: blue}", 0o600)
	want("a file", "")
	want("a value that is refused",
		"vpp.route/x of file a.yaml: it is a cycle", eventloop.Drop{
			Key:    "vpp.route/x",
			Source: "file a.yaml",
			Reason: "it is a cycle",
		})
	o.write(t, "a.yaml", "{", 0o600)
	want("a file that is wrong", "a.yaml: ")
	o.write(t, "a.yaml", "vpp.route/x: {vrf: blue}", 0o600)
	want("the file as it was", "")
	o.write(t, "b.yaml", "{", 0o600)
	want("another one that is wrong", "b.yaml: ")
	if err := os.Remove(filepath.Join(o.dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	want("without the wrong one", "")
}

func FuzzParseExternal(f *testing.F) {
	f.Add([]byte("vpp.route/x: {vrf: blue}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		values, err := Parse(raw)
		for key, value := range values {
			if err != nil || !json.Valid(value) {
				t.Errorf("took %q of key %q, %v", value, key, err)
			}
		}
	})
}
