package main

import (
	"slices"
	"strings"
	"testing"
)

// The tree in testdata has one place of each kind.
func TestEachFigureCountsItsPlaces(t *testing.T) {
	tree, err := load("testdata/tree")
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]figure)
	for _, f := range tree.measure() {
		got[f.name] = f
	}
	for name, want := range map[string]string{
		"lines of the product":                                  "42",
		"decisions a line":                                      "0.095",
		"assignments of several values per 1,000 lines":         "23.8",
		"lines over 120 columns per 1,000 lines":                "23.8",
		"types with more than 25 methods":                       "0",
		"structs with more than 12 fields":                      "1",
		"structs with more than 3 booleans":                     "1",
		"exported names without a comment":                      "1",
		"exported names without a caller in the product":        "4",
		"decisions a line in shop":                              "0.12",
		"comments with whose per 10,000 words":                  "",
		"comments with those of, that of per 10,000 words":      "0.0",
		"packages with more than 25 files":                      "0",
		"types with methods in more than 3 files":               "0",
		"decisions a line in shop/shoptest, which is for tests": "none",
	} {
		f, measured := got[name]
		if want == "none" {
			if measured {
				t.Errorf("%s is measured", name)
			}
			continue
		}
		if !measured || want != "" && f.text() != want || want == "" && f.value == 0 {
			t.Errorf("%s: %q, want %q; places %q", name, f.text(), want, f.places)
		}
	}
	unused := got["exported names without a caller in the product"].places
	var names []string
	for _, place := range unused {
		_, name, _ := strings.Cut(place, ": ")
		names = append(names, name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"Forgotten", "Large", "Small", "Unused"}) {
		t.Errorf("unused are %q", unused)
	}
}

func TestAFigureThatGrowsIsAnError(t *testing.T) {
	committed, err := parse(format([]figure{{"lines", 100, 0, nil}, {"density", 0.25, 2, nil}, {"types", 8, 0, nil}}))
	if err != nil {
		t.Fatal(err)
	}
	now := []figure{{"lines", 90, 0, nil}, {"density", 0.254, 2, nil}, {"types", 9, 0, nil}, {"new", 1, 0, nil}}
	fallen, err := compare(committed, now)
	if err == nil || !strings.Contains(err.Error(), "types has grown from 8 to 9") ||
		!strings.Contains(err.Error(), "new is 1 and has no figure yet") || strings.Contains(err.Error(), "density") {
		t.Errorf("error %v", err)
	}
	if len(fallen) != 2 || fallen[0] != "lines has fallen from 100 to 90" {
		t.Errorf("fallen %q", fallen)
	}
}

func TestABadFileIsRefused(t *testing.T) {
	for _, content := range []string{"lines", "x  lines", "1  lines\n2  lines", "1 lines"} {
		if values, err := parse(content); err == nil {
			t.Errorf("%q is %v", content, values)
		}
	}
}
