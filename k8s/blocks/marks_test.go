package blocks_test

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/k8s/blocks"
)

// A node has only the blocks that the low mark demands, and releases each empty one above the high mark.
func TestANodeHasTheBlocksThatItsMarksDemand(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		bits := rapid.IntRange(26, 30).Draw(r, "length of blocks")
		size := 1 << (32 - bits)
		l := newLab(t, pool("10.1.0.0/16", bits))
		low := rapid.IntRange(1, 40).Draw(r, "low")
		l.marks = blocks.Marks{
			Low:       low,
			High:      low + rapid.IntRange(0, 40).Draw(r, "high above low"),
			Grace:     time.Minute,
			MaxBlocks: 1000,
		}
		n := l.node("n1")
		l.step(n)
		var pods []netip.Addr
		for _, burst := range rapid.SliceOfN(rapid.IntRange(1, low), 1, 20).Draw(r, "bursts") {
			pods = append(pods, l.lease(n, burst)...) // of no more than the mark: none of them waits for a block
			l.step(n)
			if want, have := (len(pods)+low+size-1)/size, l.blocksOf(n); have != want {
				r.Fatalf("%d blocks of %d for %d pods and %d free addresses, want %d", have, size, len(pods), low, want)
			}
		}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(pods)-1), 0, 2*len(pods)).Draw(r, "ends") {
			if i < len(pods) {
				n.local.Release(pods[i])
				pods = append(pods[:i], pods[i+1:]...)
			}
		}
		for range 3 { // the addresses rest; the grace passes; nothing more changes
			l.now = l.now.Add(2 * time.Minute)
			l.step(n)
		}
		judgeLevel(r, l, n, pods)
		l.sound(n)
	})
}

// judgeLevel checks that there are enough free addresses, and no empty block above the high mark.
func judgeLevel(r *rapid.T, l *lab, n *node, pods []netip.Addr) {
	held := l.store.Of(n.local.Name)
	size := 1 << (32 - l.pools[0].Bits)
	free := len(held)*size - len(pods)
	if free < l.marks.Low {
		r.Fatalf("%d free addresses in the end, want %d", free, l.marks.Low)
	}
	for _, b := range held {
		prefix := netip.MustParsePrefix(string(b.Spec.CIDR))
		used := 0
		for _, a := range pods {
			if prefix.Contains(a) {
				used++
			}
		}
		if used == 0 && free-size >= l.marks.High {
			r.Fatalf("block %s is empty and kept, with %d free addresses beside it", prefix, free-size)
		}
	}
}
