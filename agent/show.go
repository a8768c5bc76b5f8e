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
	group := ""
	fs.SortFlags = false
	fs.VisitAll(func(f *pflag.Flag) {
		key := fileKey(f.Name)
		head, rest, nested := strings.Cut(key, ".")
		if nested && head != group {
			fmt.Fprintf(&b, "%s:\n", head)
		}
		group = ""
		if nested {
			group, key = head, "  "+rest
		}
		fmt.Fprintf(&b, "%s: %s\n", key, yamlValue(f))
	})
	return b.String()
}

func yamlValue(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "string":
		return fmt.Sprintf("%q", f.Value.String())
	case "pools":
		return asJSON(f.Value)
	}
	return f.Value.String()
}
