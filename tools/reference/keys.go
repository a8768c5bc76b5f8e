//go:build ignore

// Keys prints the keys of the agent's configuration with their flags, as JSON. The command reference runs it in the
// product's module.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weftnet/weft/agent/config"
)

// key is a key of the agent's configuration.
type key struct {
	Path    string `json:"path"`
	Flag    string `json:"flag"`
	Type    string `json:"type"`
	Default string `json:"default"`
	Usage   string `json:"usage"`
}

func main() {
	all, err := keys()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(all)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// keys returns the keys in the order of the printed configuration. Each flag must be in it.
func keys() (all []key, err error) {
	var problems []error
	var c config.Config
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.Flags(flags)
	var above []string
	camel := regexp.MustCompile(`\.|([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)
	for line := range strings.Lines(c.String()) {
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		name, value, found := strings.Cut(strings.TrimSpace(line), ":")
		if !found {
			continue
		}
		above = above[:min(depth, len(above))]
		path := strings.Join(append(slices.Clone(above), name), ".")
		f := flags.Lookup(strings.ToLower(camel.ReplaceAllString(path, "${1}${3}-${2}${4}")))
		if f == nil && value != "" {
			problems = append(problems, fmt.Errorf("the printed configuration has %s, which is no flag", path))
		}
		if f == nil {
			above = append(above, name)
			continue
		}
		all = append(all, key{path, f.Name, f.Value.Type(), f.DefValue, f.Usage})
	}
	printed := map[string]bool{}
	for _, k := range all {
		printed[k.Flag] = true
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if !printed[f.Name] {
			problems = append(problems, fmt.Errorf("the printed configuration lacks the flag %s", f.Name))
		}
	})
	return all, errors.Join(problems...)
}
