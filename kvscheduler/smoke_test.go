package kvscheduler_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func TestObjectsComeInOrderOfTheirDependencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		rec := w.put(put("a/1", thing{Needs: "c/1"}), put("c/1", thing{Needs: "b/1"}), put("b/1", thing{}))
		want := []string{"1 create b/1", "2 create c/1", "3 create a/1"}
		if got := ops(rec); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		rec = w.put(del("b/1"))
		want = []string{"0 delete a/1", "1 delete c/1", "2 delete b/1"}
		if got := ops(rec); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		w.noWrong()
	})
}
