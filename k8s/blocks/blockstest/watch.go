package blockstest

import v1 "github.com/weftnet/weft/k8s/api/v1"

// Watch is what a node sees of the blocks. Without functions it has seen all, and there are none.
type Watch struct {
	Own     func() ([]*v1.IPBlock, bool)
	Foreign func(name string) *v1.IPBlock
}

// Blocks returns the blocks of the node; false: the watch has not shown all yet.
func (w Watch) Blocks() ([]*v1.IPBlock, bool) {
	if w.Own == nil {
		return nil, true
	}
	return w.Own()
}

// ForeignBlock returns another node's block, or nil.
func (w Watch) ForeignBlock(name string) *v1.IPBlock {
	if w.Foreign == nil {
		return nil
	}
	return w.Foreign(name)
}
