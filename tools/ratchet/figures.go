package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// figure is one measured property of the tree. A lower value is better.
type figure struct {
	name     string
	value    float64
	decimals int
	places   []string // what is counted
}

// text is the value as the file has it.
func (f figure) text() string { return strconv.FormatFloat(f.value, 'f', f.decimals, 64) }

const header = `# What make verify measures in the product: lower is better, and no figure may grow (CONVENTIONS.md, "Density").
# make ratchet writes this file. A commit that lets a figure grow says why in its message.

`

func format(figures []figure) string {
	var b strings.Builder
	b.WriteString(header)
	for _, f := range figures {
		fmt.Fprintf(&b, "%8s  %s\n", f.text(), f.name)
	}
	return b.String()
}

// parse reads the file: a value and a name on each line.
func parse(content string) (map[string]float64, error) {
	values := make(map[string]float64)
	for i, line := range strings.Split(content, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		text, name, found := strings.Cut(line, "  ")
		value, err := strconv.ParseFloat(text, 64)
		if !found || err != nil {
			return nil, fmt.Errorf("line %d is not a value and a name: %q", i+1, line)
		}
		if _, twice := values[name]; twice {
			return nil, fmt.Errorf("line %d: %q has a value already", i+1, name)
		}
		values[name] = value
	}
	return values, nil
}

// compare returns an error that names each figure that has grown or is new. It also returns those that have fallen.
func compare(committed map[string]float64, now []figure) (fallen []string, err error) {
	var grown []error
	for _, f := range now {
		limit, known := committed[f.name]
		value, err := strconv.ParseFloat(f.text(), 64)
		switch {
		case err != nil:
			return nil, err
		case !known:
			grown = append(grown, fmt.Errorf("%s is %s and has no figure yet: make ratchet", f.name, f.text()))
		case value > limit:
			grown = append(grown, fmt.Errorf(
				"%s has grown from %v to %s: find the missing type or package, or run make ratchet and say why in the commit",
				f.name, limit, f.text()))
		case value < limit:
			fallen = append(fallen, fmt.Sprintf("%s has fallen from %v to %s", f.name, limit, f.text()))
		}
	}
	if len(fallen) > 0 {
		fallen = append(fallen, "make ratchet writes the lower figures")
	}
	return slices.Clip(fallen), errors.Join(grown...)
}
