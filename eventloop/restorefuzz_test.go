package eventloop_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/weftnet/weft/eventloop"
)

// FuzzRestore restores arbitrary records. The history is sorted, has no duplicate number, and numbers continue after
// it.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(
		`[{"seq":1,"event":"add shop/cart-0","type":"AddPod","handlers":[{"name":"ipam","changes":["a/b"]}]},{"seq":2}]`))
	f.Add([]byte(`[{"seq":18446744073709551615},{"seq":7},{"seq":3},{"seq":7},{"seq":0}]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var records []eventloop.Record
		if json.Unmarshal(raw, &records) != nil {
			return
		}
		w := newWorld(t)
		w.Restore(records)
		w.run(t)
		rec := w.must(t, &addPod{pod: "p", sandbox: "a"})
		got := seqs(w.History(0))
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) || got[len(got)-1] != rec.Seq {
			t.Errorf("the history is %v after record %d", got, rec.Seq)
		}
		if all := w.History(math.MaxUint64); len(all) != 0 {
			t.Errorf("%d records are said to follow the highest number", len(all))
		}
	})
}
