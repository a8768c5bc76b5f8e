package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/weft"
)

const editedNetwork = `
apiVersion: contivpp.io/v1
kind: CustomNetwork
metadata: {name: e2e-edited}
spec: {type: L2, cidrs: [10.77.0.0/24, "fd77::/112"]}
`

// An edit of a running pod's annotation gives it an interface, by which it reaches a pod of the other node, and takes it
// away again. The API server refuses an edit that cannot work, and events say what happened.
func TestEditsOfARunningPodChangeItsInterfaces(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	s.apply(editedNetwork)
	s.createOn("a", "n1", "", "{}")
	s.createOn("b", "n2", "t1/tap/e2e-edited", "{}")
	s.ready("a")
	b := s.ready("b")

	if err := s.annotate("a", "t1/tub/e2e-edited"); err == nil || !strings.Contains(err.Error(), "tap, veth or memif") {
		t.Errorf("an edit to an unknown type: %v", err)
	}
	s.must(s.annotate("a", "t1/tap/e2e-edited"))
	a := s.ready("a")
	hasT1 := func(wanted bool) func(context.Context) error {
		return func(ctx context.Context) error {
			links, err := s.c.Exec(ctx, a, "links")
			if err != nil {
				return err
			}
			if has := strings.Contains("\n"+links, "\nt1 "); has != wanted {
				return fmt.Errorf("the pod has the links %s", links)
			}
			return nil
		}
	}
	s.must(cluster.Eventually(t.Context(), "a has t1", hasT1(true)))
	for _, address := range s.on(b, "t1") {
		s.must(cluster.Eventually(t.Context(), "a reaches "+address.String(), func(ctx context.Context) error {
			_, err := s.c.Exec(ctx, a, "ping", address.String(), "100")
			return err
		}))
	}
	s.must(s.annotate("a", ""))
	s.must(cluster.Eventually(t.Context(), "a has no t1", hasT1(false)))
	s.must(cluster.Eventually(t.Context(), "events of both edits", func(ctx context.Context) error {
		list, err := s.c.Client.CoreV1().Events(s.name).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=a,reason=WeftInterfacesChanged",
		})
		if err != nil {
			return err
		}
		if len(list.Items) != 2 {
			return fmt.Errorf("%d events", len(list.Items))
		}
		return nil
	}))
}

// annotate replaces the requested interfaces of a pod.
func (s *space) annotate(name, interfaces string) error {
	_, err := s.c.Kubectl(s.t.Context(), nil, "annotate", "pod", "-n", s.name, name, "--overwrite",
		"contivpp.io/custom-if="+weft.CustomInterfaces(interfaces))
	return err
}
