// Package rows_test compares the table of features in docs/rows.md with the tests that name its rows.
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

// root is the path of the repository.
const root = "../.."

// page lists the rows.
const page = root + "/docs/rows.md"

// last is the last number of each table, so that a missing row is noticed.
var last = map[string]int{"AWS": 49, "CAL": 35, "IPM": 18, "MEM": 28, "CIL": 25}

func TestRowsOfThePageMatchTheTests(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows, problems := rowsOfPage(string(text))
	named, wrong := read(t, root)
	for _, problem := range slices.Concat(problems, wrong, compare(rows, named)) {
		t.Error(problem)
	}
	for table, n := range last {
		for i := range n {
			if id := fmt.Sprintf("%s-%02d", table, i+1); rows[id] == "" {
				t.Errorf("%s is not on the page", id)
			}
		}
	}
}

func TestErrorsOfThePageAreFound(t *testing.T) {
	named := map[string][]string{"AWS-01": {"a_test.go"}}
	tests := []struct {
		name, page string
		named      map[string][]string
		problem    string
	}{
		{"shown", "| AWS-01 | feature | yes |", named, ""},
		{"shown in part", "| AWS-01 | feature | partly: reason |", named, ""},
		{"not there", "| AWS-01 | feature | no: reason |", nil, ""},
		{"not shown", "| AWS-01 | feature | yes |", nil, "AWS-01 is yes, and no test names it"},
		{
			"not shown in part", "| AWS-01 | feature | partly: reason |", nil,
			"AWS-01 is partly: reason, and no test names it",
		},
		{
			"not there, but shown", "| AWS-01 | feature | no: reason |", named,
			"AWS-01 is no: reason, and a_test.go names it",
		},
		{
			"without a reason", "| AWS-01 | feature | partly |", named,
			`AWS-01: "partly" is not yes, "partly: reason" or "no: reason"`,
		},
		{"without a feature", "| AWS-01 |  | yes |", named, "AWS-01: no feature"},
		{"twice", "| AWS-01 | feature | yes |\n| AWS-01 | feature | yes |", named, "AWS-01 is on the page twice"},
		{"not on the page", "", named, "AWS-01, which a_test.go names, is not on the page"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rows, problems := rowsOfPage(tt.page)
			if got := strings.Join(append(problems, compare(rows, tt.named)...), "; "); got != tt.problem {
				t.Errorf("faults %q, want %q", got, tt.problem)
			}
		})
	}
}

func TestInvalidRowsCommentsAreFound(t *testing.T) {
	for text, problem := range map[string]string{
		"// rows: AWS-01, CAL-02\nfunc TestA(t *testing.T) {":             "",
		"// rows: AWS-01\n// TestA does.\nfunc TestA(t *testing.T) {":     "",
		"// rows: AWS-01\nfunc FuzzA(f *testing.F) {":                     "",
		"# rows: AWS-01 CAL-02":                                           "",
		"// rows: AWS-1\nfunc TestA(t *testing.T) {":                      `x:1: "AWS-1" is no row`,
		"// rows:\nfunc TestA(t *testing.T) {":                            "x:1: there is no row",
		"// rows: AWS-01\n\nfunc TestA(t *testing.T) {":                   "x:1: it is not right above a test",
		"// rows: AWS-01\nfunc helper() {":                                "x:1: it is not right above a test",
		"// TestA does. rows: AWS-01\nfunc TestA(t *testing.T) {":         "x:1: rows are behind a text; give them a line of their own",
		"x := 1 // rows: AWS-01":                                          "",
		"// rows: AWS-01\nfunc TestA(t *testing.T) {}\n\n// rows: none\n": `x:4: "none" is no row`,
	} {
		_, problems := rowsOf("x", text)
		if got := strings.Join(problems, "; "); got != problem {
			t.Errorf("%q: faults %q, want %q", text, got, problem)
		}
	}
}

// line is a row of the page.
var line = regexp.MustCompile(`(?m)^\| ([A-Z]{3}-[0-9]{2}) \|(.*)\| (.*) \|$`)

// status is a valid status of a row.
var status = regexp.MustCompile(`^(yes|(partly|no): .+)$`)

// rowsOfPage returns the status of each row, and the errors of the page.
func rowsOfPage(text string) (rows map[string]string, problems []string) {
	rows = map[string]string{}
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		id := m[1]
		feature := strings.TrimSpace(m[2])
		says := m[3]
		switch {
		case rows[id] != "":
			problems = append(problems, id+" is on the page twice")
		case feature == "":
			problems = append(problems, id+": no feature")
		case !status.MatchString(says):
			problems = append(problems, fmt.Sprintf(`%s: %q is not yes, "partly: reason" or "no: reason"`, id, says))
		}
		rows[id] = says
	}
	return rows, problems
}

// compare reports rows with the status no that tests name, and rows with another status that no test names.
func compare(rows map[string]string, named map[string][]string) (problems []string) {
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		isNo := strings.HasPrefix(rows[id], "no")
		files := named[id]
		if isNo && len(files) > 0 {
			problems = append(problems,
				fmt.Sprintf("%s is %s, and %s names it", id, rows[id], strings.Join(files, ", ")))
		}
		if !isNo && len(files) == 0 {
			problems = append(problems, fmt.Sprintf("%s is %s, and no test names it", id, rows[id]))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(named)) {
		if rows[id] == "" {
			problems = append(problems,
				fmt.Sprintf("%s, which %s names, is not on the page", id, strings.Join(named[id], ", ")))
		}
	}
	return problems
}

// read returns the files that name each row, and the errors of their comments.
func read(t *testing.T, dir string) (named map[string][]string, problems []string) {
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
		problems = append(problems, wrong...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return named, problems
}

// comment matches a line that names rows, in a script or above a test.
var comment = regexp.MustCompile(`(?m)^(#|//) rows:(.*)$`)

// behindText matches rows that comment does not match, as a reformatted comment has them.
var behindText = regexp.MustCompile(`(?m)^(#|//) .+ rows: [A-Z]{3}-[0-9]{2}`)

// row matches an id of a row.
var row = regexp.MustCompile(`^[A-Z]{3}-[0-9]{2}$`)

// above matches the code after a comment in Go: the rest of the test's comment, and the test.
var above = regexp.MustCompile(`^\n(//.*\n)*func (Test|Fuzz)`)

// rowsOf returns the rows that a file names, and the errors of its comments.
func rowsOf(place, text string) (ids, problems []string) {
	for _, at := range comment.FindAllStringSubmatchIndex(text, -1) {
		line := fmt.Sprintf("%s:%d: ", place, 1+strings.Count(text[:at[0]], "\n"))
		fields := strings.Fields(strings.ReplaceAll(text[at[4]:at[5]], ",", " "))
		if len(fields) == 0 {
			problems = append(problems, line+"there is no row")
		}
		wrong := slices.IndexFunc(fields, func(id string) bool { return !row.MatchString(id) })
		switch {
		case wrong >= 0:
			problems = append(problems, fmt.Sprintf("%s%q is no row", line, fields[wrong]))
		case text[at[2]:at[3]] == "//" && len(fields) > 0 && !above.MatchString(text[at[1]:]):
			problems = append(problems, line+"it is not right above a test")
		}
		ids = append(ids, fields...)
	}
	for _, at := range behindText.FindAllStringIndex(text, -1) {
		problems = append(problems, fmt.Sprintf("%s:%d: rows are behind a text; give them a line of their own",
			place, 1+strings.Count(text[:at[0]], "\n")))
	}
	return ids, problems
}
