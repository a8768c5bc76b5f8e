package yamltext

import (
	"fmt"
	"slices"
	"strings"
)

// Path leads to a value: keys of mappings (string) and indices of lists (int).
type Path []any

// With returns the path with one more step.
func (p Path) With(step any) Path { return append(slices.Clip(p), step) }

// String returns the path as in kubectl's errors: spec.nodes[1].ips[0], metadata.annotations[contivpp.io/custom-if].
func (p Path) String() string {
	var b strings.Builder
	for _, step := range p {
		switch key, is := step.(string); {
		case !is:
			fmt.Fprintf(&b, "[%v]", step)
		case key == "" || strings.ContainsAny(key, "./[] "):
			fmt.Fprintf(&b, "[%.80s]", key)
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			fmt.Fprintf(&b, "%.80s", key)
		}
	}
	return b.String()
}
