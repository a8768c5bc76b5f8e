// Package rows_test says which test shows which row of the feature tables of other CNI plugins, and what is not shown.
package rows_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// owed are the rows that are to be shown, by what they belong to.
var owed = map[string]string{
	"the way of one pod": `
		MEM-06 MEM-07 MEM-08 MEM-09 MEM-10 MEM-11 MEM-12 MEM-13 MEM-14 MEM-15 MEM-16 MEM-17 MEM-18 MEM-19 MEM-20 MEM-21
		AWS-10 AWS-13 AWS-18 AWS-19 AWS-21 AWS-22 AWS-27 AWS-28 AWS-29 AWS-30 AWS-31 AWS-32 AWS-33 AWS-34 AWS-36 AWS-37
		AWS-39 AWS-40 AWS-44 AWS-49
		CAL-02 CAL-03 CAL-05 CAL-07 CAL-08 CAL-10 CAL-11 CAL-12 CAL-13 CAL-17 CAL-23 CAL-26 CAL-27 CAL-31 CAL-33 CAL-35
		IPM-03 IPM-04 IPM-05
		CIL-02 CIL-04 CIL-08 CIL-09 CIL-11 CIL-13 CIL-14 CIL-15 CIL-16 CIL-18 CIL-19 CIL-20 CIL-25`,
	"extra interfaces and networks": `
		AWS-38 AWS-41
		CAL-09 CAL-14 CAL-15 CAL-18 CAL-19 CAL-20 CAL-21 CAL-22 CAL-25 CAL-29
		IPM-01 IPM-02 IPM-06 IPM-09
		MEM-01 MEM-02 MEM-16 MEM-26 MEM-28`,
	"Kubernetes": `
		AWS-01 AWS-02 AWS-03 AWS-04 AWS-05 AWS-06 AWS-07 AWS-08 AWS-09 AWS-11 AWS-12 AWS-14 AWS-15 AWS-16 AWS-17 AWS-20
		AWS-23 AWS-26 AWS-35 AWS-42 AWS-43 AWS-47
		CAL-06 CAL-16 CAL-28 CAL-30 CAL-32
		IPM-07 IPM-08 IPM-10 IPM-11 IPM-12 IPM-13 IPM-14 IPM-15 IPM-16 IPM-17 IPM-18
		CIL-01 CIL-03 CIL-05 CIL-06 CIL-07 CIL-10 CIL-12 CIL-17 CIL-21 CIL-22 CIL-23 CIL-24`,
	"memif to the pod": `MEM-03 MEM-04 MEM-05 MEM-22 MEM-23 MEM-24 MEM-25 MEM-27`,
}

// partly are rows that a test names and of which something is not shown, with what that is.
var partly = map[string]string{
	"AWS-09": "a node's labels choose its pools; its uplink is the link with its address, and pools are always watched",
	"AWS-17": "no interface is made ahead of its pod",
	"AWS-20": "CNI's result has no place for a block: the IPBlock and weftctl say whose it is",
	"AWS-28": "the code of a mismatch is 107 and not 11; releases next to each other work together, so that none is seen in an upgrade",
	"AWS-47": "probes execute weft-agent, as only root reaches its socket: whether it is alive is nobody else's to ask",
	"CAL-16": "labels, service account and ports of a pod are not kept, for nothing is decided by them",
	"CAL-29": "there is no netkit",
	"CIL-01": "no earlier program is kept for a way back: each image brings its own",
	"CIL-10": "the object NodeNetwork has it, always: agents have no right to write Nodes",
	"CIL-11": "there is nothing upstream to write to before the API server is; the dataplane is not pruned before all is known",
	"MEM-28": "microservice-label is kept with the attachment and has no effect: there is no etcd where a pod's agent would read",
}

// excused are rows that no test names, with the reason.
var excused = map[string]string{
	"AWS-43": "Weft enforces no NetworkPolicy, which its documents say in their first lines",
	"CAL-28": "Weft enforces no NetworkPolicy: there is none to wait for",
}

// root is where the repository begins.
const root = "../.."

func TestWhatIsOwedIsNamedOrExcused(t *testing.T) {
	named, faults := read(t, root)
	all := strings.Fields(strings.Join(slices.Collect(maps.Values(owed)), " "))
	for _, fault := range append(faults, compare(all, partly, excused, named)...) {
		t.Error(fault)
	}
}

func TestWhatIsWrongWithTheListsIsSeen(t *testing.T) {
	one := map[string]string{"AWS-01": "why"}
	named := map[string][]string{"AWS-01": {"a_test.go"}}
	tests := []struct {
		name            string
		partly, excused map[string]string
		named           map[string][]string
		fault           string
	}{
		{"named", nil, nil, named, ""},
		{"named in part", one, nil, named, ""},
		{"excused", nil, one, nil, ""},
		{"neither", nil, nil, nil, "AWS-01 is neither named by a test nor excused"},
		{"not named, though in part", one, nil, nil, "AWS-01 is said to be shown in part, and no test names it"},
		{"named and excused", nil, one, named, "AWS-01 is excused, and named in a_test.go"},
		{"twice", one, one, named, "AWS-01 is excused, and named in a_test.go"},
		{"without a reason", nil, map[string]string{"AWS-01": ""}, nil, "AWS-01 is excused without a reason"},
		{"of another list", nil, map[string]string{"CAL-99": "why"}, named, "CAL-99 is not owed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.Join(compare([]string{"AWS-01"}, tt.partly, tt.excused, tt.named), "; "); got != tt.fault {
				t.Errorf("faults %q, want %q", got, tt.fault)
			}
		})
	}
}

func TestAWrongCommentIsSeen(t *testing.T) {
	for text, fault := range map[string]string{
		"// rows: AWS-01, CAL-02\nfunc TestA(t *testing.T) {":             "",
		"// rows: AWS-01\n// TestA does.\nfunc TestA(t *testing.T) {":     "",
		"// rows: AWS-01\nfunc FuzzA(f *testing.F) {":                     "",
		"# rows: AWS-01 CAL-02":                                           "",
		"// rows: AWS-1\nfunc TestA(t *testing.T) {":                      `x:1: "AWS-1" is no row`,
		"// rows:\nfunc TestA(t *testing.T) {":                            "x:1: there is no row",
		"// rows: AWS-01\n\nfunc TestA(t *testing.T) {":                   "x:1: it is not right above a test",
		"// rows: AWS-01\nfunc helper() {":                                "x:1: it is not right above a test",
		"x := 1 // rows: AWS-01":                                          "",
		"// rows: AWS-01\nfunc TestA(t *testing.T) {}\n\n// rows: none\n": `x:4: "none" is no row`,
	} {
		_, faults := rowsOf("x", text)
		if got := strings.Join(faults, "; "); got != fault {
			t.Errorf("%q: faults %q, want %q", text, got, fault)
		}
	}
}

// compare lists what is wrong: each row that is owed is named or excused, and not both.
func compare(owed []string, partly, excused map[string]string, named map[string][]string) (faults []string) {
	for _, id := range owed {
		reason, isExcused := excused[id]
		_, isPartly := partly[id]
		switch {
		case isExcused && len(named[id]) > 0:
			faults = append(faults, fmt.Sprintf("%s is excused, and named in %s", id, strings.Join(named[id], ", ")))
		case isExcused && reason == "":
			faults = append(faults, id+" is excused without a reason")
		case isPartly && len(named[id]) == 0:
			faults = append(faults, id+" is said to be shown in part, and no test names it")
		case !isExcused && len(named[id]) == 0:
			faults = append(faults, id+" is neither named by a test nor excused")
		}
	}
	for _, list := range []map[string]string{partly, excused} {
		for _, id := range slices.Sorted(maps.Keys(list)) {
			if !slices.Contains(owed, id) {
				faults = append(faults, id+" is not owed")
			}
		}
	}
	return faults
}

// read gives the files that name each row, and what is wrong with how they do.
func read(t *testing.T, dir string) (named map[string][]string, faults []string) {
	t.Helper()
	named = map[string][]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".txtar"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		place := strings.TrimPrefix(path, dir+"/")
		ids, wrong := rowsOf(place, string(text))
		for _, id := range ids {
			named[id] = append(named[id], place)
		}
		faults = append(faults, wrong...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return named, faults
}

// comment is a line that names rows, in a script or above a test.
var comment = regexp.MustCompile(`(?m)^(#|//) rows:(.*)$`)

// row is what the id of one looks like.
var row = regexp.MustCompile(`^[A-Z]{3}-[0-9]{2}$`)

// above is what follows a comment in Go: the rest of the test's comment, and the test.
var above = regexp.MustCompile(`^\n(//.*\n)*func (Test|Fuzz)`)

// rowsOf gives the rows that a file names, and what is wrong with how it does.
func rowsOf(place, text string) (ids, faults []string) {
	for _, at := range comment.FindAllStringSubmatchIndex(text, -1) {
		line := fmt.Sprintf("%s:%d: ", place, 1+strings.Count(text[:at[0]], "\n"))
		fields := strings.Fields(strings.ReplaceAll(text[at[4]:at[5]], ",", " "))
		if len(fields) == 0 {
			faults = append(faults, line+"there is no row")
		}
		wrong := slices.IndexFunc(fields, func(id string) bool { return !row.MatchString(id) })
		switch {
		case wrong >= 0:
			faults = append(faults, fmt.Sprintf("%s%q is no row", line, fields[wrong]))
		case text[at[2]:at[3]] == "//" && len(fields) > 0 && !above.MatchString(text[at[1]:]):
			faults = append(faults, line+"it is not right above a test")
		}
		ids = append(ids, fields...)
	}
	return ids, faults
}
