package main

import (
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Above these values a type, a struct or a package probably has several responsibilities.
const (
	manyMethods  = 25
	manyFiles    = 3
	manyFields   = 12
	manyBooleans = 3
	largePackage = 25
	longLine     = 120
	tab          = 4
)

// dialect are words of comments that a field's maintainers use rarely, because another sentence is clearer.
var dialect = map[string]*regexp.Regexp{
	"none":              regexp.MustCompile(`\b(is|are|has|have) none\b`),
	"whose":             regexp.MustCompile(`\bwhose\b`),
	"those of, that of": regexp.MustCompile(`\b(those|that) of\b`),
	"what as a noun":    regexp.MustCompile(`\bwhat (is|are|was|were|it|the|a|an|they|has|have|does|do|comes?)\b`),
	"nothing":           regexp.MustCompile(`\bnothing\b`),
}

// lengths of a tree's code.
type lengths struct {
	lines     int // without comments and blank lines
	decisions int
}

// measure returns all figures, those of packages after those of the tree.
func (t *tree) measure() (figures []figure) {
	var all lengths
	var packages []figure
	var assignments, long []string
	for _, s := range t.packages {
		var own lengths
		for _, f := range s.files {
			of := t.length(f)
			own.lines += of.lines
			own.decisions += of.decisions
			assignments = append(assignments, t.assignments(f)...)
			long = append(long, t.longLines(f)...)
		}
		all.lines += own.lines
		all.decisions += own.decisions
		packages = append(packages, figure{"decisions a line in " + s.path, own.density(), 2, nil})
	}
	thousand := float64(all.lines) / 1000
	figures = []figure{
		{"lines of the product", float64(all.lines), 0, nil},
		{"decisions a line", all.density(), 3, nil},
		{"assignments of several values per 1,000 lines", float64(len(assignments)) / thousand, 1, assignments},
		{"lines over 120 columns per 1,000 lines", float64(len(long)) / thousand, 1, long},
	}
	figures = append(figures, t.shapes()...)
	figures = append(figures, t.words()...)
	return append(figures, packages...)
}

func (l lengths) density() float64 {
	if l.lines == 0 {
		return 0
	}
	return float64(l.decisions) / float64(l.lines)
}

// length counts the lines with code, and the decisions: if, for, case, && and ||.
func (t *tree) length(f *file) (l lengths) {
	content := []byte(strings.Join(f.lines, "\n"))
	files := token.NewFileSet()
	at := files.AddFile(f.name, -1, len(content))
	var tokens scanner.Scanner
	tokens.Init(at, content, nil, 0)
	isCode := make(map[int]bool)
	for {
		pos, kind, text := tokens.Scan()
		if kind == token.EOF {
			break
		}
		if kind == token.SEMICOLON && text == "\n" {
			continue // the end of a line
		}
		for i := range 1 + strings.Count(text, "\n") {
			isCode[at.Line(pos)+i] = true
		}
		switch kind {
		case token.IF, token.FOR, token.CASE, token.LAND, token.LOR:
			l.decisions++
		}
	}
	l.lines = len(isCode)
	return l
}

func (t *tree) assignments(f *file) (places []string) {
	ast.Inspect(f.File, func(n ast.Node) bool {
		if a, is := n.(*ast.AssignStmt); is && len(a.Lhs) > 1 && len(a.Lhs) == len(a.Rhs) {
			places = append(places, t.at(f, a))
		}
		return true
	})
	return places
}

func (t *tree) longLines(f *file) (places []string) {
	for i, line := range f.lines {
		if utf8.RuneCountInString(line)+(tab-1)*strings.Count(line, "\t") > longLine {
			places = append(places, fmt.Sprintf("%s:%d", f.name, i+1))
		}
	}
	return places
}

// shapes returns the figures of types, structs, packages and exported names.
func (t *tree) shapes() []figure {
	var methods, spread, fields, booleans, large, silent, unused []string
	for _, s := range t.packages {
		if len(s.files) > largePackage {
			large = append(large, fmt.Sprintf("%s has %d files", s.path, len(s.files)))
		}
		of, in := s.methods()
		for name, count := range of {
			if count > manyMethods {
				methods = append(methods, fmt.Sprintf("%s.%s has %d methods", s.path, name, count))
			}
			if len(in[name]) > manyFiles {
				spread = append(spread, fmt.Sprintf("%s.%s has methods in %d files", s.path, name, len(in[name])))
			}
		}
		for _, f := range s.files {
			for name, x := range structs(f) {
				if n := x.Fields.NumFields(); n > manyFields {
					fields = append(fields, fmt.Sprintf("%s: %s has %d fields", t.at(f, x), name, n))
				}
				if n := countBooleans(x); n > manyBooleans {
					booleans = append(booleans, fmt.Sprintf("%s: %s has %d booleans", t.at(f, x), name, n))
				}
			}
			for _, e := range exported(f) {
				place := t.at(f, e.node) + ": " + e.name
				if !e.documented {
					silent = append(silent, place)
				}
				if !t.isUsed(s, e) {
					unused = append(unused, place)
				}
			}
		}
	}
	count := func(name string, places []string) figure {
		return figure{name, float64(len(places)), 0, sorted(places)}
	}
	return []figure{
		count("types with more than 25 methods", methods),
		count("types with methods in more than 3 files", spread),
		count("structs with more than 12 fields", fields),
		count("structs with more than 3 booleans", booleans),
		count("packages with more than 25 files", large),
		count("exported names without a comment", silent),
		count("exported names without a caller in the product", unused),
	}
}

// methods returns the number of methods of each type, and the files that have them.
func (s *source) methods() (count map[string]int, in map[string]map[string]bool) {
	count = make(map[string]int)
	in = make(map[string]map[string]bool)
	for _, f := range s.files {
		for _, d := range f.Decls {
			fn, isFunc := d.(*ast.FuncDecl)
			if !isFunc || fn.Recv == nil {
				continue
			}
			name := receiver(fn.Recv.List[0].Type)
			count[name]++
			if in[name] == nil {
				in[name] = make(map[string]bool)
			}
			in[name][f.name] = true
		}
	}
	return count, in
}

func receiver(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

func structs(f *file) map[string]*ast.StructType {
	all := make(map[string]*ast.StructType)
	ast.Inspect(f.File, func(n ast.Node) bool {
		if spec, isType := n.(*ast.TypeSpec); isType {
			if x, isStruct := spec.Type.(*ast.StructType); isStruct {
				all[spec.Name.Name] = x
			}
		}
		return true
	})
	return all
}

func countBooleans(x *ast.StructType) (n int) {
	for _, f := range x.Fields.List {
		if id, is := f.Type.(*ast.Ident); is && id.Name == "bool" {
			n += max(1, len(f.Names))
		}
	}
	return n
}

// words returns how often comments use each word of the dialect, per 10,000 words.
func (t *tree) words() (figures []figure) {
	words := 0
	places := make(map[string][]string)
	for _, s := range t.packages {
		for _, f := range s.files {
			for _, g := range f.Comments {
				text := g.Text()
				words += len(strings.Fields(text))
				for name, pattern := range dialect {
					for range pattern.FindAllString(text, -1) {
						places[name] = append(places[name], t.at(f, g))
					}
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dialect)) {
		ratio := float64(len(places[name])) * 10000 / float64(max(words, 1))
		figures = append(figures, figure{"comments with " + name + " per 10,000 words", ratio, 1, places[name]})
	}
	return figures
}
