package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// latencies are the times that a call took, in the order in which it was made.
type latencies []time.Duration

// quantile is the smallest time that at least the share q of all did not exceed (nearest rank); 0 without any.
func (l latencies) quantile(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	rank := int(q*float64(len(l)) + 0.999999) // rounded up, but not by what floating point adds
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// columns are what the report shows of a contender.
func (c *contender) columns() []time.Duration {
	return []time.Duration{c.add.quantile(0.5), c.add.quantile(0.99), c.del.quantile(0.5), c.del.quantile(0.99)}
}

// report prints the table, and what share of the second one's time the first takes, and of the first one's the third.
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
	ours, theirs := one.columns(), other.columns()
	for i := range ours {
		fmt.Fprintf(w, "%.2f\t", float64(ours[i])/float64(theirs[i]))
	}
	fmt.Fprintln(w)
}

func milliseconds(t time.Duration) float64 { return float64(t) / float64(time.Millisecond) }
