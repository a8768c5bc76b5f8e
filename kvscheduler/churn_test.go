package kvscheduler

import (
	"fmt"
	"testing"
)

func TestNothingIsKeptOfAnObjectThatIsGone(t *testing.T) {
	x := newBench(t)
	anyOf := func(bucket string) []Dep { return []Dep{{Any: &Select{Kind: "if", Bucket: bucket}}} }
	x.st.kinds["if"].bucket = func(name string, _ any) string { return name }
	plain := x.st.kinds["if"].deps
	x.st.kinds["if"].deps = func(name string, v any) []Dep {
		if v.(*iface).MTU == 1 {
			return anyOf(v.(*iface).Needs)
		}
		return plain(name, v)
	}
	for i := range 5_000 {
		a := fmt.Sprint("a", i)
		b := fmt.Sprint("b", i)
		c := fmt.Sprint("c", i)
		x.commit(t, []Object{x.k.Put(a, &iface{}), x.k.Put(b, &iface{Needs: a}), x.k.Put(c, &iface{Needs: b, MTU: 1})})
		x.commit(t, []Object{x.k.Put(b, &iface{Needs: fmt.Sprint("never", i)})})
		x.commit(t, []Object{x.k.Del(a), x.k.Del(b), x.k.Del(c)})
	}
	for _, n := range x.st.g.Nodes() {
		if n.Ref != (Ref{}) {
			t.Fatalf("%s is left", n.Ref)
		}
	}
	if skipped := x.st.withSkipped(nil); len(x.st.g.Nodes()) > 64 || len(x.st.sources.owned) > 0 || len(skipped) > 0 {
		t.Errorf("%d nodes, %d owners, %d skipped objects are left", len(x.st.g.Nodes()), len(x.st.sources.owned), len(skipped))
	}
	for range x.st.View().All("if") {
		t.Fatal("the view still shows an object")
	}
}
