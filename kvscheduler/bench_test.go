package kvscheduler

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// iface is a value of the size that the dataplane's have.
type iface struct {
	Needs string
	MTU   int
}

// still is a backend that does nothing.
type still struct{ list []Actual[*iface, int] }

func (s *still) Create(context.Context, []Item[*iface, int]) {}
func (s *still) Update(context.Context, []Item[*iface, int]) {}
func (s *still) Delete(context.Context, []Item[*iface, int]) {}

func (s *still) Dump(context.Context, View) iter.Seq2[Actual[*iface, int], error] {
	return func(yield func(Actual[*iface, int], error) bool) {
		for _, a := range s.list {
			if !yield(a, nil) {
				return
			}
		}
	}
}

// bench is a scheduler whose state is driven by the benchmark's own goroutine.
type bench struct {
	st *state
	k  named
	b  *still
}

func newBench(tb testing.TB) *bench {
	tb.Helper()
	s := New(Limited(Limits{Records: 10}))
	b := &still{}
	k, err := register(s, Descriptor[*iface, int]{
		Name: "if", Equal: func(a, b *iface) bool { return *a == *b }, Backend: b,
		Deps: func(_ string, v *iface) []Dep {
			if v.Needs == "" {
				return nil
			}
			return []Dep{{On: Ref{Kind: "if", Name: v.Needs}}}
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	st, err := s.prepare()
	if err != nil {
		tb.Fatal(err)
	}
	return &bench{st: st, k: k, b: b}
}

func (b *bench) commit(tb testing.TB, set []Object) *Record {
	tb.Helper()
	rec, err := b.st.commit(context.Background(), &request{txn: Txn{Source: "bench", Set: set}, queued: b.st.now()})
	if err != nil {
		tb.Fatal(err)
	}
	return rec
}

// pods makes objects in chains of four, the shape of a pod's wiring.
func (b *bench) pods(n, mtu int) []Object {
	set := make([]Object, 0, n)
	for i := range n {
		v := &iface{MTU: mtu}
		if i%4 > 0 {
			v.Needs = fmt.Sprint(i - 1)
		}
		set = append(set, b.k.Put(fmt.Sprint(i), v))
	}
	return set
}

func BenchmarkB1Create10k(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		x := newBench(b)
		set := x.pods(10_000, 1500)
		b.StartTimer()
		x.commit(b, set)
	}
}

func BenchmarkB3PlanOnly10k(b *testing.B) {
	x := newBench(b)
	a, err := x.st.admit(Txn{Set: x.pods(10_000, 1500)})
	if err != nil {
		b.Fatal(err)
	}
	var ops []plan.Op
	b.ReportAllocs()
	for b.Loop() {
		ops = x.st.g.Plan(a.dirty, x.st.now()).Ops
	}
	b.ReportMetric(float64(len(ops))*float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

func BenchmarkB4Compare10k(b *testing.B) {
	x := newBench(b)
	set := x.pods(10_000, 1500)
	x.commit(b, set)
	f := &actuals[*iface, int]{
		d:              &Descriptor[*iface, int]{Equal: func(a, b *iface) bool { return *a == *b }},
		metaComparable: true,
	}
	for _, o := range set {
		v := *o.Value.(*iface)
		f.list = append(f.list, Actual[*iface, int]{Name: o.Ref.Name, V: &v})
	}
	b.ReportAllocs()
	for b.Loop() {
		m := resync{run: &run{state: x.st}, dumps: map[Kind]found{"if": f}, began: x.st.g.Clock}
		if dirty := m.compare("if"); len(dirty) > 0 {
			b.Fatalf("%d differ", len(dirty))
		}
	}
}

func BenchmarkB5UpdateOneOf(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := newBench(b)
			x.commit(b, x.pods(n, 1500))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				x.commit(b, []Object{x.k.Put("3", &iface{Needs: "2", MTU: i})})
			}
		})
	}
}

func BenchmarkB9PendingChain(b *testing.B) {
	s := New(Config{})
	k, err := register(s, Descriptor[*[]string, int]{
		Name: "n", Equal: func(a, b *[]string) bool { return a == b },
		Deps: func(_ string, v *[]string) (deps []Dep) {
			for _, on := range *v {
				deps = append(deps, Dep{On: Ref{Kind: "n", Name: on}})
			}
			return deps
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	st, err := s.prepare()
	if err != nil {
		b.Fatal(err)
	}
	var set []Object
	below := []string{"nowhere"}
	for level := range 10 { // four wide, each needs all four below
		needs := below
		var these []string
		for i := range 4 {
			name := fmt.Sprintf("%d-%d", level, i)
			these = append(these, name)
			set = append(set, k.Put(name, &needs))
		}
		below = these
	}
	if _, err := st.admit(Txn{Set: append(set, k.Put("t", &below))}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		a, err := st.admit(Txn{Set: []Object{k.Put("u", &[]string{"t"})}})
		if err != nil {
			b.Fatal(err)
		}
		st.g.Plan(a.dirty, st.now())
		a.unstage()
	}
}

// named is a kind of which a test makes objects.
type named Kind

func register[V, M any](s *Scheduler, d Descriptor[V, M]) (named, error) {
	return named(d.Name), Register(s, d)
}

func (k named) Put(name string, v any) Object {
	return Object{Ref: Ref{Kind: Kind(k), Name: name}, Value: v}
}

func (k named) Del(name string) Object { return Object{Ref: Ref{Kind: Kind(k), Name: name}} }
