package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/traffic"
)

// throughput measures each way in turn, several rounds.
type throughput struct {
	out      io.Writer
	rounds   int
	duration time.Duration // of one measurement
}

// rates are the results of one way, by round.
type rates struct {
	way      way
	gigabits []float64 // TCP, Gbit/s
	packets  []float64 // small packets that arrived, per second
	offered  []float64 // small packets that were sent, per second
}

// measureTraffic makes a lab on the node, measures and reports.
func (b *bench) measureTraffic(ctx context.Context, n *node.Node, t throughput) (err error) {
	runtime, err := n.Runtime(os.Stderr)
	if err != nil {
		return err
	}
	l := &lab{runtime: runtime}
	defer func() { err = errors.Join(err, l.close(context.WithoutCancel(ctx))) }()
	ways, err := l.build(ctx, n)
	if err != nil {
		return err
	}
	all := make([]*rates, len(ways))
	for i, w := range ways {
		all[i] = &rates{way: w}
	}
	for range t.rounds {
		for _, r := range all {
			if err := t.measure(ctx, r); err != nil {
				return fmt.Errorf("%s: %w", r.way.name, err)
			}
		}
	}
	return t.report(all)
}

// measure adds one measurement of a way.
func (t throughput) measure(ctx context.Context, r *rates) error {
	receipt, err := traffic.Stream(ctx, r.way.path, t.duration)
	if err != nil {
		return err
	}
	count, err := traffic.Flood(ctx, r.way.path, r.way.toLink, t.duration)
	if err != nil {
		return err
	}
	r.gigabits = append(r.gigabits, receipt.Gigabits())
	r.packets = append(r.packets, count.Rate())
	r.offered = append(r.offered, float64(count.Sent)/count.Took.Seconds())
	return ctx.Err()
}

// aims are the minimum shares of the bridge's rates; 0 = none.
var aims = map[string][2]float64{
	"weft-vswitch, tap-tap, L2":            {0.75, 1},
	"weft-vswitch, tap-tap, routed (main)": {0.75, 1},
	"weft-vswitch, veth-veth, L2":          {0.65, 1},
	"weft-vswitch, tap-veth, L2":           {0.65, 1},
}

const method = `
TCP: one connection between two network namespaces over IPv4, MTU 1500, writes and reads of 1 MiB, by goroutines of this
process. 64 bytes: UDP in frames of 64 bytes by sendmmsg on a packet socket, 64 a call; "sent" is what the sender's link
took, "arrived" what the receiver's link counted, whose stack drops them at a socket's filter. Median of %d rounds of %s, the
ways in turn; sender, dataplane and receiver share this machine's processors.
`

// report prints medians and their shares of the bridge's. The bridge is the first way.
func (t throughput) report(all []*rates) error {
	fmt.Fprintf(t.out, method, t.rounds, t.duration)
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\tTCP Gbit/s\tof the bridge\taim\t64 B sent k/s\tarrived k/s\tof the bridge\taim\t\n")
	bridge := all[0]
	for _, r := range all {
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\t%.0f\t%.0f\t%.2f\t%s\t\n", r.way.name,
			median(r.gigabits), median(r.gigabits)/median(bridge.gigabits), aim(r.way.name, 0),
			median(r.offered)/1e3, median(r.packets)/1e3, median(r.packets)/median(bridge.packets), aim(r.way.name, 1))
	}
	return w.Flush()
}

func aim(name string, which int) string {
	if a := aims[name][which]; a != 0 {
		return fmt.Sprintf("%.2f", a)
	}
	return "-"
}

// median returns the median, or the higher of the two middle figures; 0 without figures.
func median(figures []float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(figures))
	return sorted[len(sorted)/2]
}
