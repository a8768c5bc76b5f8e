package picture

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"unicode"
)

// legend explains the drawing.
const legend = "Arrows lead from a dependent to what it depends on. Dashed: unmet. Boxes have the phase as text."

// SVG returns the graph as a picture of its own: no fonts, scripts or links are loaded.
func SVG(g Graph) string {
	nodes, width, height := layout(g)
	width = max(width, 2*margin+advance*float64(max(len(legend), len(g.Title))))
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img" aria-labelledby="title legend" font-family="monospace" font-size="12">
<title id="title">%s</title>
<defs><marker id="arrow" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#444444"/></marker></defs>
<rect width="100%%" height="100%%" fill="#ffffff"/>
<text x="%d" y="24" font-weight="bold" fill="#111111">%s</text>
<text id="legend" x="%d" y="42" fill="#444444">%s</text>
`, width, height, width, height, escaped(g.Title), margin, escaped(g.Title), margin, legend)
	for _, e := range g.Edges {
		drawEdge(&b, &e, nodes[e.From], nodes[e.To])
	}
	for i := range g.Nodes {
		drawNode(&b, nodes[g.Nodes[i].Name])
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func drawNode(b *strings.Builder, n *placed) {
	stroke := 1
	if n.Bold {
		stroke = 3
	}
	title := n.Name + ": " + n.phase()
	if n.Note != "" {
		title += ": " + n.Note
	}
	fmt.Fprintf(b,
		`<g><title>%s</title><rect x="%.1f" y="%.1f" width="%.1f" height="%d" rx="5" fill="%s" stroke="#333333" stroke-width="%d"/>`,
		escaped(title), n.x, n.y, n.width, boxHeight, n.fill(), stroke)
	fmt.Fprintf(b,
		`<text x="%.1f" y="%.1f" fill="#111111">%s</text><text x="%.1f" y="%.1f" fill="#444444">%s</text></g>`+"\n",
		n.x+boxPad, n.y+16, escaped(n.Name), n.x+boxPad, n.y+32, escaped(n.phase()))
}

// drawEdge draws a curve from the left side of the dependent to the right side of what it depends on.
func drawEdge(b *strings.Builder, e *Edge, from, to *placed) {
	if from == nil || to == nil {
		return
	}
	x1 := from.x
	y1 := from.y + boxHeight/2
	x2 := to.x + to.width
	y2 := to.y + boxHeight/2
	bend := columnGap / 2.0
	fmt.Fprintf(b,
		`<path d="M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f" fill="none" stroke="#444444"%s marker-end="url(#arrow)"/>`+
			"\n",
		x1, y1, x1-bend, y1, x2+bend, y2, x2, y2, dashes(e.style()))
	if label := e.label(); label != "" && slices.Contains(from.left, to) {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle" font-size="10" fill="#444444">%s</text>`+"\n",
			(x1+x2)/2, (y1+y2)/2-3, escaped(label))
	}
}

func dashes(style string) string {
	if style == "dashed" {
		return ` stroke-dasharray="7 4"`
	}
	return ""
}

// escaped returns text for XML. Characters that XML does not have are replaced.
func escaped(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == 0xFFFE || r == 0xFFFF {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
	return html.EscapeString(s)
}
