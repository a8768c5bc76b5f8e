package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// latencies are the durations of calls, in the order of the calls.
type latencies []time.Duration

// quantile returns the q-quantile by nearest rank; 0 without values.
func (l latencies) quantile(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	rank := int(q*float64(len(l)) + 0.999999) // round up, but not because of floating-point error
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// columns are the table's columns for a contender.
func (c *contender) columns() []time.Duration {
	return []time.Duration{c.add.quantile(0.5), c.add.quantile(0.99), c.del.quantile(0.5), c.del.quantile(0.99)}
}

// report prints the table, and the ratios of the first to the second contender, and of the third to the first.
func (b *bench) report(title string, contenders []*contender) error {
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\tADD p50\tADD p99\tDEL p50\tDEL p99\t\n", title)
	for _, c := range contenders {
		fmt.Fprintf(w, "%s\t", c.name)
		for _, t := range c.columns() {
			fmt.Fprintf(w, "%.1f ms\t", milliseconds(t))
		}
		fmt.Fprintln(w)
	}
	for _, pair := range [][2]int{{0, 1}, {2, 0}} {
		if max(pair[0], pair[1]) < len(contenders) {
			reportRatio(w, contenders[pair[0]], contenders[pair[1]])
		}
	}
	return w.Flush()
}

func reportRatio(w io.Writer, one, other *contender) {
	fmt.Fprintf(w, "%s / %s\t", one.name, other.name)
	ours := one.columns()
	theirs := other.columns()
	for i := range ours {
		fmt.Fprintf(w, "%.2f\t", float64(ours[i])/float64(theirs[i]))
	}
	fmt.Fprintln(w)
}

func milliseconds(t time.Duration) float64 { return float64(t) / float64(time.Millisecond) }
