package blocks_test

import (
	"testing"
	"time"

	"github.com/weftnet/weft/k8s/blocks/blockstest"
)

func TestTheStoreInMemoryConforms(t *testing.T) {
	blockstest.Conform(t, blockstest.NewStore())
}

func TestTheNodeOfTheTestsConforms(t *testing.T) {
	l := newLab(t)
	n := l.node("n1").local
	blockstest.ConformGiver(t, blockstest.Giver{
		Local: n, Lease: n.Lease, Release: n.Release, Wait: func(d time.Duration) { l.now = l.now.Add(d) },
	})
}
