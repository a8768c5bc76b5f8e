package kvscheduler_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func TestNeighboursAreFoundInBothDirectionsUpToTheDepth(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("a/1", thing{}), put("b/1", thing{Needs: "a/1 c/none"}), put("c/1", thing{Needs: "b/1"}),
		put("c/far", thing{}),
		put("b/near", thing{Near: "a7"}), put("a/7", thing{Bucket: "a7"}), put("c/alone", thing{Near: "a8"}))
	for _, tc := range []struct {
		around string
		depth  int
		want   string
		edges  int
	}{
		{"a/1", 0, "[a/1]", 0},
		{"a/1", 1, "[a/1 b/1]", 1},
		{"a/1", 2, "[a/1 b/1 c/1 c/none]", 3},
		{"b/near", 1, "[b/near a/7]", 1},
		{"c/alone", 1, "[c/alone a/any of a8]", 1},
	} {
		refs, edges, omitted := w.s.Neighbours([]ref{key(tc.around)}, tc.depth, 0)
		if fmt.Sprint(refs) != tc.want || len(edges) != tc.edges || omitted != 0 {
			t.Errorf("%s, depth %d: %v, %d relations %v", tc.around, tc.depth, refs, len(edges), edges)
		}
	}
	_, edges, _ := w.s.Neighbours([]ref{key("b/1")}, 1, 0)
	var lines []string
	for _, e := range edges {
		lines = append(lines, fmt.Sprintf("%s %s %t", e.From, e.To, e.Met))
	}
	if want := []string{"b/1 a/1 true", "b/1 c/none false", "c/1 b/1 false"}; !slices.Equal(lines, want) {
		t.Errorf("relations %q, want %q", lines, want)
	}
	if refs, _, omitted := w.s.Neighbours([]ref{key("a/1")}, 2, 3); len(refs) != 3 || omitted != 1 {
		t.Errorf("%v, %d omitted", refs, omitted)
	}
}
