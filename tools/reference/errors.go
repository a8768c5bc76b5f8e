package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// codesOfPlugin maps names of the CNI library, which package cni uses, to those of pod/errors.go.
var codesOfPlugin = map[string]string{
	"ErrInvalidEnvironmentVariables": "CodeInvalidEnvironment", "ErrIOFailure": "CodeIO",
	"ErrDecodingFailure":      "CodeDecode",
	"ErrInvalidNetworkConfig": "CodeInvalidConfig", "ErrInvalidNetNS": "CodeInvalidNetns",
	"ErrTryAgainLater": "CodeTryAgain",
}

// code matches the declaration of a code in pod/errors.go.
var code = regexp.MustCompile(`(?m)^\tCode(\w+) +(?:uint +)?= (\d+)`)

// verb matches a verb of a format.
var verb = regexp.MustCompile(`%(?:\[\d+\])?[-+# 0]*\d*(?:\.\d+)?[a-zA-Z]`)

func errorCodes(root string) (string, error) {
	sources, err := productSources(root)
	if err != nil {
		return "", err
	}
	messages := map[string]map[string]bool{} // by the name of the code
	for _, s := range sources {
		file, err := s.parse()
		if err != nil {
			return "", err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is || len(call.Args) < 2 {
				return true
			}
			name := ""
			switch of := call.Args[0].(type) {
			case *ast.SelectorExpr:
				name = of.Sel.Name
			case *ast.Ident:
				name = of.Name
			}
			name = cmp.Or(codesOfPlugin[name], name)
			if format := constant(call.Args[1], nil); strings.HasPrefix(name, "Code") && format != "" {
				if messages[name] == nil {
					messages[name] = map[string]bool{}
				}
				messages[name][verb.ReplaceAllString(format, "…")] = true
			}
			return true
		})
	}
	declarations, err := os.ReadFile(filepath.Join(root, "pod/errors.go"))
	if err != nil {
		return "", err
	}
	codes := code.FindAllStringSubmatch(string(declarations), -1)
	if len(codes) < 16 || len(messages) < 10 {
		return "", fmt.Errorf("found only %d codes, and messages of %d", len(codes), len(messages))
	}
	var b strings.Builder
	b.WriteString(note +
		"# Error codes\n\nCodes of CNI errors, and messages of the agent and of the plugin with each; `…` is an operand. The CNI specification " +
		"defines the codes below 100. [troubleshooting.md](../troubleshooting.md#error-codes) has the remedies.\n")
	for _, c := range codes {
		fmt.Fprintf(&b, "\n## %s\n\n`%s`, see [its remedy](../troubleshooting.md#code-%[1]s).\n\n", c[2], c[1])
		for _, m := range slices.Sorted(maps.Keys(messages["Code"+c[1]])) {
			fmt.Fprintf(&b, "- `%s`\n", cell(m))
		}
	}
	return strings.ReplaceAll(b.String(), "\n\n\n", "\n\n"), nil
}
