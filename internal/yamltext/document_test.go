package yamltext_test

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/yamltext"
)

func TestLinesOfValues(t *testing.T) {
	const text = "# first\na:\n  b: 1\n  c:\n  - x\n  - {d: 2,\n     e: 3}\n--- # second\nf: &f {g: 1}\nh: *f\ni:\n  <<: *f\n  j: 2\n...\n---\n\n# empty\n---\n{\"k\": [1,\n\t2]}\n"
	documents := yamltext.Documents([]byte(text))
	if len(documents) != 3 {
		t.Fatalf("%d documents", len(documents))
	}
	for _, tt := range []struct {
		document int
		path     yamltext.Path
		line     int
	}{
		{0, nil, 2}, {0, yamltext.Path{"a"}, 2}, {0, yamltext.Path{"a", "b"}, 3}, {
			0, yamltext.Path{"a", "c", 1, "e"}, 7,
		},
		{0, yamltext.Path{"a", "c", 5}, 4}, {0, yamltext.Path{"a", "missing", "x"}, 2},
		{1, yamltext.Path{"h", "g"}, 9}, {1, yamltext.Path{"i", "g"}, 9}, {1, yamltext.Path{"i", "j"}, 13},
		{2, yamltext.Path{"k"}, 19},
	} {
		if line := documents[tt.document].Line(tt.path); line != tt.line {
			t.Errorf("document %d, %s: line %d, want %d", tt.document, tt.path, line, tt.line)
		}
	}
}

func TestJSONObjectsHaveLines(t *testing.T) {
	documents := yamltext.Documents([]byte("{\"a\": 1}\n{\"b\":\n\t{\"c\": 2}}"))
	if len(documents) != 2 {
		t.Fatalf("%d documents", len(documents))
	}
	if line := documents[1].Line(yamltext.Path{"b", "c"}); line != 3 {
		t.Errorf("line %d", line)
	}
}

func TestSyntaxErrorsAndRepeatedKeysHaveLines(t *testing.T) {
	documents := yamltext.Documents([]byte("a: 1\n---\nb: [1,\nc: }\n---\nd:\n  e: 1\n  f: 2\n  e: 3\n"))
	_, err := documents[1].Decode()
	wrong, is := err.(*yamltext.SyntaxError) //nolint:errorlint // it is not wrapped
	if !is || wrong.Line != 3 && wrong.Line != 4 || !strings.HasPrefix(wrong.Reason, "invalid YAML: ") {
		t.Errorf("%#v", err)
	}
	repeated := documents[2].Repeated()
	if len(repeated) != 1 || repeated[0].Line != 9 || repeated[0].Path.String() != "d.e" ||
		repeated[0].Reason != "the key is already set in line 7" {
		t.Errorf("%+v", repeated)
	}
}

// Content on the line of a separator would vanish without a word.
func TestContentAfterASeparatorIsAnError(t *testing.T) {
	for text, want := range map[string]int{
		"--- {a: 1}\n": 1, "a: 1\n---b: 2\nc: 3\n": 2, "a: 1\n--- \"b\"": 2, "a: 1\n--- # a comment\nb: 2\n": 0,
		"---\r\na: 1\r\n": 0, "a: |\n  --- b\n": 0,
	} {
		line := 0
		for _, d := range yamltext.Documents([]byte(text)) {
			_, err := d.Decode()
			if wrong := (*yamltext.SyntaxError)(nil); errors.As(err, &wrong) {
				line = wrong.Line
			}
		}
		if line != want {
			t.Errorf("%q: an error in line %d, want %d", text, line, want)
		}
	}
}

type network struct {
	Name  string         `json:"name"`
	CIDRs []netip.Prefix `json:"cidrs,omitempty"`
	MTU   int            `json:"mtu,omitempty"`
	On    bool           `json:"set"`
	VNI   uint32         `json:"vni"`
	Share float64        `json:"share"`
	Sub   *network       `json:"sub,omitempty"`
	Not   bool           `json:"not"`
}

func TestCheckNamesPathAndExpectation(t *testing.T) {
	checker := yamltext.Checker{
		Renamed: map[string]string{"subnetCIDR": "cidrs"}, Omitted: []string{"not"},
		Expected: map[reflect.Type]string{reflect.TypeFor[netip.Prefix](): "a prefix"},
	}
	for text, want := range map[string]string{
		`[{name: a, mtu: 1500, cidrs: [10.0.0.0/8], set: true, vni: 3, share: 0.5, sub: {name: b}}]`: "",
		`{}`:                       ": expected a list, not keys and values",
		`[7]`:                      "[0]: expected keys and values, not 7",
		`[{nam: a}]`:               "[0].nam: unknown key; did you mean name?",
		`[{subnetCIDR: a}]`:        "[0].subnetCIDR: unknown key; did you mean cidrs?",
		`[{zzzzzzzzz: a}]`:         "[0].zzzzzzzzz: unknown key; known are cidrs, mtu, name, set, share, sub, vni",
		`[{not: true}]`:            "[0].not: unknown key; known are cidrs, mtu, name, set, share, sub, vni",
		`[{name: [a]}]`:            "[0].name: expected a text, not a list",
		`[{mtu: big}]`:             `[0].mtu: expected an integer, not the text "big"`,
		`[{mtu: 1.5}]`:             "[0].mtu: expected an integer, not 1.5",
		`[{set: "yes!"}]`:          `[0].set: expected true or false, not the text "yes!"`,
		`[{vni: -1}]`:              "[0].vni: expected a positive integer, not -1",
		`[{share: x}]`:             `[0].share: expected a number, not the text "x"`,
		`[{cidrs: [10.0.0/8]}]`:    `[0].cidrs[0]: expected a prefix, not "10.0.0/8"`,
		`[{sub: {sub: {mtu: x}}}]`: `[0].sub.sub.mtu: expected an integer, not the text "x"`,
		`[{name: null}]`:           "",
	} {
		v, err := yamltext.Documents([]byte(text))[0].Decode()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, p := range checker.Check(v, reflect.TypeFor[[]network](), nil) {
			got += p.Path.String() + ": " + p.Reason
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

var ofGo = regexp.MustCompile(`Go (struct|value)|cannot unmarshal|map\[|interface \{|json: |yaml: `)

// FuzzDocuments reads any text: lines are within the text, and errors do not name types of Go.
func FuzzDocuments(f *testing.F) {
	for _, text := range []string{
		"a: 1\n---\nb: 2\n", "{\"a\": [1]}{}", "&a [*a]", "a: &x {<<: *x}", "? [a]\n: 1", "a: 1\na: 2", "--- x\n...\n",
		"\t", "1: 2\ntrue: 3", "{a: 1}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := bytes.Count(text, []byte("\n")) + 1
		for _, d := range yamltext.Documents(text) {
			v, err := d.Decode()
			if wrong, is := err.(*yamltext.SyntaxError); is && (wrong.Line < 1 || wrong.Line > lines+1 || ofGo.MatchString(wrong.Reason)) { //nolint:errorlint // it is not wrapped
				t.Errorf("%q: %+v", text, wrong)
			}
			problems := append(d.Repeated(), yamltext.Checker{}.Check(v, reflect.TypeFor[[]network](), nil)...)
			for _, p := range problems {
				if line := d.Line(p.Path); line < 1 || line > lines || ofGo.MatchString(p.Reason) {
					t.Errorf("%q: line %d of %d: %+v", text, line, lines, p)
				}
			}
		}
	})
}
