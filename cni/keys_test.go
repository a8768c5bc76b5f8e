package cni

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// jsonKeys returns the keys that a struct reads, with those of embedded ones.
func jsonKeys(of reflect.Type) (keys []string) {
	for i := range of.NumField() {
		field := of.Field(i)
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && key == "":
			keys = append(keys, jsonKeys(field.Type)...)
		case key != "" && key != "-":
			keys = append(keys, key)
		}
	}
	return keys
}

// docs/security.md says of each key that the plugin reads who may set it and what it can do. A key that a struct gets
// is missing there.
func TestEachKeyOfAConfigurationIsInTheTableOfTheSecurityPage(t *testing.T) {
	text, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Keys of a network configuration\n")
	if !found {
		t.Fatal("the page has no section of keys")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	documented := make(map[string]bool)
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 4 {
			for _, key := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
				documented[key[1]] = true
			}
		}
	}
	read := map[string]bool{"runtimeConfig": true}
	for _, of := range []reflect.Type{
		reflect.TypeFor[conf](), reflect.TypeFor[runtimeConfig](), reflect.TypeFor[nodeSettings](),
	} {
		for _, key := range jsonKeys(of) {
			read[key] = true
		}
	}
	for _, key := range ownKeys {
		read[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(read)) {
		if !documented[key] {
			t.Errorf("the plugin reads the key %q, which the table does not have", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(documented)) {
		if !read[key] {
			t.Errorf("the table has the key %q, which the plugin does not read", key)
		}
	}
}
