package agent

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// String is the configuration as a file that would give it again.
func (c Config) String() string {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	shown := c
	shown.Flags(fs) // binding sets the defaults ...
	shown = c       // ... so the values are put back
	var b strings.Builder
	var open []string // the keys that the last one stood below
	fs.SortFlags = false
	fs.VisitAll(func(f *pflag.Flag) {
		path := strings.Split(fileKey(f.Name), ".")
		above, key := path[:len(path)-1], path[len(path)-1]
		for depth, group := range above {
			if depth >= len(open) || open[depth] != group {
				fmt.Fprintf(&b, "%s%s:\n", indent(depth), group)
				open = nil
			}
		}
		open = above
		fmt.Fprintf(&b, "%s%s: %s\n", indent(len(above)), key, yamlValue(f))
	})
	return b.String()
}

func indent(depth int) string { return strings.Repeat("  ", depth) }

func yamlValue(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "string":
		return fmt.Sprintf("%q", f.Value.String())
	case "pools":
		return asJSON(f.Value)
	}
	return f.Value.String()
}
