package picture_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/ctl/picture"
)

// wellFormed decodes a document to its end, and returns its texts.
func wellFormed(t rapid.TB, document string) (texts string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(document))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if text, is := token.(xml.CharData); is {
			texts += string(text) + "\n"
		}
	}
}

func chain() picture.Graph {
	return picture.Graph{
		Title: "weft graph <vrf>",
		Nodes: []picture.Node{
			{Name: "route/r", Phase: "Pending", Bold: true}, {Name: "vrf/a", Phase: "InSync"},
			{Name: "if/\"x\"", Note: "refused & gone"},
		},
		Edges: []picture.Edge{
			{From: "route/r", To: "vrf/a", Label: "vrf", Met: true}, {From: "route/r", To: "if/\"x\"", Label: "out"},
			{From: "vrf/a", To: "if/\"x\"", Met: true},
		},
	}
}

func TestPicturesHavePhasesAndUnmetDependenciesAsText(t *testing.T) {
	svg := picture.SVG(chain())
	texts := wellFormed(t, svg)
	for _, want := range []string{
		"weft graph <vrf>", "route/r", "Pending", "InSync", "absent", `if/"x"`, "out (unmet)", "refused & gone",
	} {
		if !strings.Contains(texts, want) {
			t.Errorf("no %q in %s", want, texts)
		}
	}
	if strings.Contains(svg, "http:") && strings.Count(svg, "http") != 1 { // the namespace
		t.Error("the picture refers to something outside")
	}
	dot := picture.DOT(chain())
	for _, want := range []string{
		`"route/r" -> "if/\"x\"" [label="out (unmet)", style=dashed]`, `label="route/r\nPending"`, `style=solid`,
		`tooltip="refused & gone"`,
	} {
		if !strings.Contains(dot, want) {
			t.Errorf("no %s in %s", want, dot)
		}
	}
}

var boxes = regexp.MustCompile(
	`<g><title>n(\d+): [^<]*</title><rect x="([0-9.]+)" y="([0-9.]+)" width="([0-9.]+)" height="(\d+)"`)

// Boxes never overlap, and each object is right of everything that it depends on.
func TestBoxesDoNotOverlapAndFollowTheirDependencies(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(rt, "nodes")
		g := picture.Graph{}
		for i := range n {
			g.Nodes = append(g.Nodes, picture.Node{Name: fmt.Sprint("n", i)})
			for _, to := range rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 3).Draw(rt, "to") {
				if to < i {
					g.Edges = append(g.Edges, picture.Edge{
						From: fmt.Sprint("n", i),
						To:   fmt.Sprint("n", to),
						Met:  true,
					})
				}
			}
		}
		svg := picture.SVG(g)
		wellFormed(rt, svg)
		type box struct{ x, y, w, h float64 }
		placed := make(map[string]box)
		for _, m := range boxes.FindAllStringSubmatch(svg, -1) {
			number := func(i int) float64 { v, _ := strconv.ParseFloat(m[i], 64); return v }
			placed["n"+m[1]] = box{number(2), number(3), number(4), number(5)}
		}
		if len(placed) != n {
			rt.Fatalf("%d boxes of %d", len(placed), n)
		}
		for a, p := range placed {
			for b, q := range placed {
				if a != b && p.x < q.x+q.w && q.x < p.x+p.w && p.y < q.y+q.h && q.y < p.y+p.h {
					rt.Errorf("%s %v and %s %v overlap", a, p, b, q)
				}
			}
		}
		for _, e := range g.Edges {
			if to := placed[e.To]; placed[e.From].x < to.x+to.w {
				rt.Errorf("%s is not right of %s", e.From, e.To)
			}
		}
	})
}

func TestCyclesAreDrawn(t *testing.T) {
	g := picture.Graph{
		Nodes: []picture.Node{{Name: "a"}, {Name: "b"}, {Name: "a"}},
		Edges: []picture.Edge{
			{From: "a", To: "b"}, {From: "b", To: "a"}, {From: "a", To: "a"}, {From: "a", To: "gone"},
		},
	}
	wellFormed(t, picture.SVG(g))
}

func FuzzNames(f *testing.F) {
	f.Add("a/b", "Failed", "x\x00<\xff")
	f.Add("\"\\\n", "", "&")
	f.Fuzz(func(t *testing.T, name, phase, note string) {
		g := picture.Graph{
			Title: note,
			Nodes: []picture.Node{{Name: name, Phase: phase, Note: note}},
			Edges: []picture.Edge{{From: name, To: name, Label: note}},
		}
		wellFormed(t, picture.SVG(g))
		for i, line := range strings.Split(strings.TrimSuffix(picture.DOT(g), "\n"), "\n") {
			if strings.Count(strings.NewReplacer(`\\`, "", `\"`, "").Replace(line), `"`)%2 != 0 {
				t.Errorf("line %d has an open string: %s", i, line)
			}
		}
	})
}
