package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkAdmission compares the rules of a new policed pod with and without a hostile namespace: its Services, and
// 1000 policies that select one of its pods. "ratio" is that of the medians; the first compilation after a change of
// Services makes the plan that all pods share, "first" is its time in milliseconds.
func BenchmarkAdmission(b *testing.B) {
	for _, bc := range []struct {
		name string
		make func(*Engine)
	}{
		{"services=100x800", func(e *Engine) { e.SetService(hostile("evil/s", 100, 800)) }},
		{"services=100x10000", func(e *Engine) { e.SetService(hostile("evil/s", 100, 10_000)) }},
		{"services=300x20x1", func(e *Engine) {
			for n := range 300 {
				e.SetService(hostile(fmt.Sprint("evil/s", n), 20, 1))
			}
		}},
		{"policies=1000", func(e *Engine) {
			e.SetPod(podAt("evil/p", true, "10.66.0.1"))
			for n := range 1000 {
				e.SetPolicy(bigPolicy(b, fmt.Sprint("evil/n", n), 100, 3))
			}
		}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			engines := [2]*Engine{victim(b), victim(b)}
			bc.make(engines[1])
			var spent [2][]time.Duration
			var first time.Duration
			id := ID{"shop", "new"}
			for n := 0; b.Loop(); n++ {
				for i, e := range engines {
					began := time.Now()
					e.SetPod(podAt(id.String(), true, fmt.Sprintf("10.1.%d.%d", n/250%250, n%250)))
					e.CompilePod(id)
					took := time.Since(began)
					if n == 0 && i == 1 {
						first = took
					} else if n > 0 || i == 0 {
						spent[i] = append(spent[i], took)
					}
					e.DeletePod(id)
				}
			}
			if len(spent[1]) == 0 {
				spent[1] = append(spent[1], first)
			}
			slices.Sort(spent[0])
			slices.Sort(spent[1])
			ours := spent[1][len(spent[1])/2]
			theirs := spent[0][len(spent[0])/2]
			b.ReportMetric(float64(ours)/float64(theirs), "ratio")
			b.ReportMetric(float64(ours.Microseconds()), "us-hostile")
			b.ReportMetric(float64(theirs.Microseconds()), "us-without")
			b.ReportMetric(float64(first.Microseconds())/1000, "ms-first")
		})
	}
}
