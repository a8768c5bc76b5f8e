package client_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/nodeview/nodeviewtest"
)

// lab is an API server with a node n1.
type lab struct{ *nodeviewtest.Lab }

func newLab(t *testing.T) *lab { return &lab{nodeviewtest.New(t)} }

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
