package events_test

import (
	"testing"

	"github.com/weftnet/weft/k8s/nodeview/nodeviewtest"
)

// lab is an API server with a node n1.
type lab struct{ *nodeviewtest.Lab }

func newLab(t *testing.T) *lab { return &lab{nodeviewtest.New(t)} }
