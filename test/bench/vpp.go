package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/weftnet/weft/test/node"
)

// The pods of the comparison of weft-vswitch with VPP.
var addedOnBoth = []contender{
	{name: "veth"},
	{name: "veth and memif", extra: "m0/memif/many", memifs: 1},
	{name: "veth and 5 veths", extra: "x0/veth/many, x1/veth/many, x2/veth/routed, x3/veth/routed, x4/veth/stub"},
	{
		name:   "veth and 5 memifs",
		extra:  "x0/memif/many, x1/memif/many, x2/memif/routed, x3/memif/routed, x4/memif/stub",
		memifs: 5,
	},
}

// mostOfSwitch is the maximum ratio of VPP's ADD latency to weft-vswitch's.
const mostOfSwitch = 3

// compareWithVPP measures the same pods on weft-vswitch and then on the VPP of WEFT_VPP.
func (b *bench) compareWithVPP(ctx context.Context, programs string) error {
	ours, err := b.addAll(ctx, programs, "weft-vswitch", true)
	if err != nil {
		return err
	}
	theirs, err := b.addAll(ctx, programs, "VPP", false)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%d pods, one at a time\tADD p50\tADD p99\tDEL p50\tDEL p99\t\n", b.pods)
	for i, c := range ours {
		for _, c := range []*contender{c, theirs[i]} {
			fmt.Fprintf(w, "%s\t", c.name)
			for _, t := range c.columns() {
				fmt.Fprintf(w, "%.1f ms\t", milliseconds(t))
			}
			fmt.Fprintln(w)
		}
		reportRatio(w, theirs[i], c)
	}
	fmt.Fprintf(w, "aim of ADD p50: at most %d\t\n", mostOfSwitch)
	return w.Flush()
}

// addAll adds and deletes the pods on a new node.
func (b *bench) addAll(ctx context.Context, programs, name string, embedded bool) (measured []*contender, err error) {
	n, err := node.New(programs, node.Options{
		CoolDown: time.Second, Networks: networks(), PodInterface: "veth", Memifs: 100, Embedded: embedded,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.StartAgent(ctx); err != nil {
		return nil, err
	}
	runtime, err := n.Runtime(os.Stderr)
	if err != nil {
		return nil, err
	}
	for _, c := range addedOnBoth {
		c.name = c.name + " on " + name
		c.node = n
		c.runtime = runtime
		measured = append(measured, &c)
	}
	for i := range b.pods {
		for _, c := range measured {
			if err := c.measure(ctx, fmt.Sprint(i)); err != nil {
				return nil, err
			}
		}
	}
	return measured, nil
}
