package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// metric is a metric as a call in package metrics makes it.
type metric struct {
	kind, help string
	labels     []string
}

// kindOf maps the functions of package metrics that make a metric with a name and a help text to its type.
var kindOf = map[string]string{
	"histograms": "histogram",
	"histogram":  "histogram",
	"counters":   "counter",
	"gauge":      "gauge",
	"describe":   "gauge",
}

func metrics(root string) (string, error) {
	sources, err := productSources(root)
	if err != nil {
		return "", err
	}
	explanations, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	if err != nil {
		return "", err
	}
	all := map[string]metric{}
	for _, s := range sources {
		if filepath.Dir(s.path) != "metrics" {
			continue
		}
		file, err := s.parse()
		if err != nil {
			return "", err
		}
		for _, d := range file.Decls {
			for _, operands := range callsOf(file, d) {
				ast.Inspect(d, func(n ast.Node) bool {
					if name, m := metricOf(n, operands); name != "" {
						all["weft_"+name] = m
					}
					return true
				})
			}
		}
	}
	if len(all) < 40 {
		return "", fmt.Errorf("found only %d metrics", len(all))
	}
	var problems []error
	var b strings.Builder
	b.WriteString(note +
		"# Metrics\n\n[operations.md](../operations.md#metrics) explains them, with bounds of their series and alerts.\n\n" +
		"| metric | type | labels | help |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		if !bytes.Contains(explanations, []byte("`"+name+"`")) {
			problems = append(problems, fmt.Errorf("docs/operations.md does not explain %s", name))
		}
		labels := ""
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, m.kind, labels, cell(m.help))
	}
	return b.String(), errors.Join(problems...)
}

// callsOf returns the constant operands of each call of a function that describes several metrics, by parameter; for
// another declaration one set without operands.
func callsOf(file *ast.File, d ast.Decl) (all []map[string]string) {
	function, is := d.(*ast.FuncDecl)
	if !is || function.Name.Name != "describeTraffic" {
		return []map[string]string{nil}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is || fmt.Sprint(call.Fun) != function.Name.Name {
			return true
		}
		operands := map[string]string{}
		i := 0
		for _, field := range function.Type.Params.List {
			for _, name := range field.Names {
				operands[name.Name] = constant(call.Args[i], nil)
				i++
			}
		}
		all = append(all, operands)
		return true
	})
	return all
}

// metricOf returns the metric that an expression makes, and its name; "" if it makes none.
func metricOf(n ast.Node, operands map[string]string) (name string, m metric) {
	switch n := n.(type) {
	case *ast.CallExpr:
		function, is := n.Fun.(*ast.Ident)
		if !is || kindOf[function.Name] == "" || len(n.Args) < 2 {
			return "", m
		}
		name = constant(n.Args[0], operands)
		m = metric{kind: kindOf[function.Name], help: constant(n.Args[1], operands)}
		if function.Name == "describe" && strings.HasSuffix(name, "_total") {
			m.kind = "counter"
		}
		for _, a := range n.Args[2:] {
			if label := constant(a, operands); label != "" {
				m.labels = append(m.labels, label)
			}
		}
	case *ast.CompositeLit:
		selector, is := n.Type.(*ast.SelectorExpr)
		if !is || !strings.HasSuffix(selector.Sel.Name, "Opts") {
			return "", m
		}
		m.kind = strings.ToLower(strings.TrimSuffix(selector.Sel.Name, "Opts"))
		for _, e := range n.Elts {
			if e, is := e.(*ast.KeyValueExpr); is {
				switch fmt.Sprint(e.Key) {
				case "Name":
					name = constant(e.Value, operands)
				case "Help":
					m.help = constant(e.Value, operands)
				}
			}
		}
	}
	return name, m
}
