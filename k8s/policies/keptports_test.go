package policies

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Each agent has the pods of all nodes. A pod that no node runs has as many named ports as the API server stores in 1.5
// MB.
func TestOfTheNamedPortsOfAPodFewAreKept(t *testing.T) {
	serving := []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}
	var many []corev1.ContainerPort
	for n := range 60_000 {
		many = append(many, corev1.ContainerPort{
			Name:          fmt.Sprintf("a%d", n),
			ContainerPort: int32(n%65535 + 1),
			Protocol:      corev1.ProtocolTCP,
		})
	}
	var same []corev1.ContainerPort
	for n := range 3000 {
		same = append(same, corev1.ContainerPort{Name: "same", ContainerPort: int32(n + 1)})
	}
	for _, tt := range []struct {
		what             string
		containers, init []corev1.ContainerPort
		kept             int
	}{
		{"one", serving, nil, 1},
		{"many", many, nil, maxNamedPorts},
		{"those of containers come first", serving, many, maxNamedPorts},
		{"few of one name", append(same, serving...), nil, maxPortsOfAName + 1},
		{"few of one name in init containers", serving, same, maxPortsOfAName + 1},
		{"without name", []corev1.ContainerPort{{ContainerPort: 80}}, nil, 0},
	} {
		o := &corev1.Pod{}
		o.Spec.Containers = []corev1.Container{{Ports: tt.containers}}
		o.Spec.InitContainers = []corev1.Container{{Ports: tt.init}}
		light := lightenPod(o)
		kept := 0
		for _, list := range [][]corev1.Container{light.Spec.Containers, light.Spec.InitContainers} {
			for _, c := range list {
				kept += len(c.Ports)
			}
		}
		if kept != tt.kept {
			t.Errorf("%s: %d named ports are kept, want %d", tt.what, kept, tt.kept)
		}
		if len(tt.containers) == 1 && tt.kept > 0 && light.Spec.Containers[0].Ports[0].Name != "http" {
			t.Errorf("%s: the port of the container is dropped", tt.what)
		}
	}
}
