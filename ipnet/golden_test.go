package ipnet_test

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: write it with -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got\n%s", path, diff)
	}
}

func TestValuesOfTheNode(t *testing.T) {
	for name, pools := range families {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, pools...).run(t)
			golden(t, "node-"+name, list(t, n.committer.Values()))
		})
	}
}

func TestValuesOfAPod(t *testing.T) {
	for name, pools := range families {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, pools...).run(t)
			before := n.committer.Values()
			a := n.add(t, sandbox("a"))
			values := n.committer.Values()
			maps.DeleteFunc(values, func(key string, _ any) bool { _, was := before[key]; return was })
			golden(t, "pod-"+name, list(t, values)+list(t, map[string]any{"record": a}))

			objects := n.Objects(a)
			if slices.Sort(objects); !slices.Equal(objects, slices.Sorted(maps.Keys(values))) {
				t.Errorf("objects %v, want the keys of the values", objects)
			}
		})
	}
}
