package pages

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

const sample = `# A ` + "`page`" + `: title, twice

See [this](other.md#part) and ![a picture](a.svg).

## Twice

    weftctl status | grep "ready now"

## Twice

` + "```console" + `
$ kubectl -n weft-system exec pod/a -- weftctl why \
    "$KEY"
the output $ of it
` + "```" + `

| a | [b](c.md) |
|---|---|

<picture><img alt="x" src="d.svg"></picture>
`

func TestParseFindsLinksAnchorsAndBlocks(t *testing.T) {
	p := Parse("p.md", []byte(sample))
	if got := slices.Sorted(maps.Keys(p.Anchors)); strings.Join(got, " ") != "a-page-title-twice twice twice-1" {
		t.Errorf("anchors %q", got)
	}
	want := []Link{{3, "other.md#part"}, {3, "a.svg"}, {17, "c.md"}, {20, "d.svg"}}
	if !slices.Equal(p.Links, want) {
		t.Errorf("links %v, want %v", p.Links, want)
	}
	if len(p.Blocks) != 2 || p.Blocks[0].Fenced || p.Blocks[1].Language != "console" {
		t.Fatalf("blocks %+v", p.Blocks)
	}
	for i, want := range []string{"status", "why $KEY"} {
		commands, err := p.Blocks[i].Commands()
		if err != nil || !p.Blocks[i].IsShell() {
			t.Fatal(i, err)
		}
		var output []string
		for _, c := range commands {
			if arguments, found := Of(c, "weftctl"); found {
				output = append(output, arguments...)
			}
		}
		if got := strings.Join(output, " "); got != want {
			t.Errorf("block %d: arguments of weftctl %q, want %q", i, got, want)
		}
	}
}

func TestCommandsRefusesWhatIsNotAScript(t *testing.T) {
	for _, text := range []string{"weftctl 'status", "weftctl status | ", "# nothing\n"} {
		if _, err := (Block{Text: text}).Commands(); err == nil {
			t.Errorf("%q has no error", text)
		}
	}
}
