// Package picture draws a graph of objects as DOT and as SVG, without Graphviz.
package picture

import (
	"fmt"
	"strings"
	"unicode"
)

// Graph is what is drawn. Names of nodes are unique.
type Graph struct {
	Title string
	Nodes []Node
	Edges []Edge
}

// Node is a box with a name and a phase.
type Node struct {
	Name  string
	Phase string // "" is drawn as absent
	Bold  bool   // the object that the graph is about
	Note  string // shown by viewers on hover
}

// Edge leads from a dependent to what it depends on.
type Edge struct {
	From, To string
	Label    string
	Met      bool // else it is drawn dashed, and labelled "unmet"
}

// palette has the colours of phases. Each box also has the phase as text, so that the picture is readable without
// colours.
var palette = map[string]string{
	"InSync": "#d7f0dd", "Observed": "#dce9f7", "Pending": "#fff2c2", "Drifted": "#ffe0b3", "Failed": "#f9d0d0",
	"Invalid":  "#f9d0d0",
	"Removing": "#e8dcf3", "Unknown": "#e6e6e6",
}

const absent = "absent"

func (n *Node) phase() string {
	if n.Phase == "" {
		return absent
	}
	return n.Phase
}

func (n *Node) fill() string {
	if colour, known := palette[n.Phase]; known {
		return colour
	}
	return "#ffffff"
}

// label returns the text of an edge.
func (e *Edge) label() string {
	if !e.Met {
		return strings.TrimSpace(e.Label + " (unmet)")
	}
	return e.Label
}

// DOT returns the graph in the language of Graphviz. Arrows lead from a dependent to what it depends on.
func DOT(g Graph) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"digraph weft {\n  label=%s;\n  rankdir=RL;\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n",
		quoted(g.Title))
	for _, n := range g.Nodes {
		width := 1
		if n.Bold {
			width = 3
		}
		fmt.Fprintf(&b, "  %s [label=%s, fillcolor=%q, penwidth=%d, tooltip=%s];\n",
			quoted(n.Name), quoted(n.Name+"\n"+n.phase()), n.fill(), width, quoted(n.Note))
	}
	for _, e := range g.Edges {
		fmt.Fprintf(&b, "  %s -> %s [label=%s, style=%s];\n", quoted(e.From), quoted(e.To), quoted(e.label()),
			e.style())
	}
	b.WriteString("}\n")
	return b.String()
}

func (e *Edge) style() string {
	if !e.Met {
		return "dashed"
	}
	return "solid"
}

// quoted returns a string of DOT. Control characters are replaced.
func quoted(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
