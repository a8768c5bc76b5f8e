package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// exportedName is an exported constant, variable, type, function or method.
type exportedName struct {
	name       string
	node       *ast.Ident
	documented bool
	isMethod   bool
	group      []*ast.Ident // the constants that are declared together with it
}

// libraries are packages for programs outside of this repository, and commands.
var libraries = []string{"memif", "cmd"}

// standard are methods that the standard library finds by an assertion to an interface, which product code need not
// name.
var standard = map[string]bool{
	"As": true, "Error": true, "Format": true, "GoString": true, "Is": true, "IsZero": true, "LogValue": true,
	"MarshalJSON": true, "MarshalText": true, "String": true, "Unwrap": true, "UnmarshalJSON": true,
	"UnmarshalText": true,
}

// exported returns the exported names of a file. Methods of unexported types are not exported.
func exported(f *file) (names []exportedName) {
	for _, d := range f.Decls {
		switch x := d.(type) {
		case *ast.FuncDecl:
			isMethod := x.Recv != nil
			if x.Name.IsExported() && (!isMethod || ast.IsExported(receiver(x.Recv.List[0].Type))) {
				names = append(names, exportedName{x.Name.Name, x.Name, x.Doc != nil, isMethod, nil})
			}
		case *ast.GenDecl:
			for _, spec := range x.Specs {
				names = append(names, ofSpec(x, spec)...)
			}
		}
	}
	return names
}

// ofSpec returns the exported names of one line of a declaration. A comment above a group documents its members.
func ofSpec(d *ast.GenDecl, spec ast.Spec) (names []exportedName) {
	switch x := spec.(type) {
	case *ast.TypeSpec:
		if x.Name.IsExported() {
			names = append(names, exportedName{
				x.Name.Name, x.Name, d.Doc != nil || x.Doc != nil || x.Comment != nil, false, nil,
			})
		}
	case *ast.ValueSpec:
		for _, id := range x.Names {
			if id.IsExported() {
				names = append(names, exportedName{
					id.Name, id, d.Doc != nil || x.Doc != nil || x.Comment != nil, false, constants(d),
				})
			}
		}
	}
	return names
}

// constants returns the constants of a declaration.
func constants(d *ast.GenDecl) (names []*ast.Ident) {
	if d.Tok != token.CONST {
		return nil
	}
	for _, spec := range d.Specs {
		names = append(names, spec.(*ast.ValueSpec).Names...)
	}
	return names
}

// isUsed reports whether product code may use a name. The callers of libraries, and of methods that an interface has,
// also one of the standard library, are not all seen. A constant counts as used if product code uses another one of its
// group, because a group lists all values of a protocol or type.
func (t *tree) isUsed(s *source, e exportedName) bool {
	for _, library := range libraries {
		if s.path == library || strings.HasPrefix(s.path, library+"/") {
			return true
		}
	}
	if e.isMethod && (t.methods[e.name] || standard[e.name]) {
		return true
	}
	return slices.ContainsFunc(append(e.group, e.node), func(id *ast.Ident) bool {
		key := keyOf(s.info.Defs[id])
		return key == "" && id == e.node || t.used[key]
	})
}
