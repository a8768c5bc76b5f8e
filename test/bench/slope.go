package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/weftnet/weft/test/node"
)

// measureSlope adds pods one at a time to a node that keeps them, and prints how the time of an ADD depends on the
// number of pods there.
func measureSlope(ctx context.Context, b *bench, programs string) error {
	o := node.Options{CoolDown: time.Second, Networks: networks(), Pools: []node.Pool{pool4}}
	return withNode(ctx, programs, o, func(n *node.Node) error {
		runtime, err := n.Runtime(os.Stderr)
		if err != nil {
			return err
		}
		c := &contender{name: "weft-cni", node: n, runtime: runtime}
		for i := range b.pods {
			pod, err := n.NewPod(fmt.Sprintf("slope%d", i))
			if err != nil {
				return err
			}
			added, err := c.timeAdd(ctx, pod)
			if err != nil {
				return err
			}
			c.add = append(c.add, added)
			<-time.After(settleTime)
		}
		fmt.Fprintf(b.out, "slope: ADD, %d pods: %.3f ms a pod, median of the differences\n", b.pods, c.add.slope())
		for begin, tenth := 0, max(len(c.add)/10, 1); begin < len(c.add); begin += tenth {
			part := c.add[begin:min(begin+tenth, len(c.add))]
			fmt.Fprintf(b.out, "  from pod %d: p50 %.1f ms\n", begin+1, milliseconds(part.quantile(0.5)))
		}
		return nil
	})
}

// slope returns the median slope of all pairs (Theil-Sen), milliseconds a pod: single slow ADDs do not change it.
func (l latencies) slope() float64 {
	var slopes []float64
	for i := range l {
		for j := range i {
			slopes = append(slopes, milliseconds(l[i]-l[j])/float64(i-j))
		}
	}
	if len(slopes) == 0 {
		return 0
	}
	slices.Sort(slopes)
	return slopes[len(slopes)/2]
}
