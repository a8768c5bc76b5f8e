package endpoints

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/k8s/networkstatus"
	"github.com/weftnet/weft/pod"
)

const slicesOfServer = "endpointslices.discovery.k8s.io"

// service makes a dual-stack Service that asks for the pods with the label app=name, at their port http.
func service(name string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "here", Name: name, UID: types.UID("uid-of-" + name),
			Annotations: map[string]string{AnnotationSelector: "app=" + name},
			Labels:      map[string]string{"team": "blue"},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.7", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports: []corev1.ServicePort{
				{Name: "web", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("http")},
			},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// backend makes a ready pod with the label app, the number i, and the interface t1 beside eth0, on which it serves.
func backend(app string, i int, change ...func(*corev1.Pod)) *corev1.Pod {
	name := fmt.Sprintf("%s-%d", app, i)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "here", Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{"app": app},
			Annotations: map[string]string{pod.AnnotationEndpoint: "t1", networkstatus.Annotation: status(i)},
		},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
			Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		}}},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			PodIPs:     []corev1.PodIP{{IP: fmt.Sprintf("10.1.0.%d", i)}, {IP: fmt.Sprintf("fd00:1::%x", i)}},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// status is the network status of the pod with number i.
func status(i int) string {
	return fmt.Sprintf(
		`[{"name": "weft", "interface": "eth0", "ips": ["10.1.0.%[1]d", "fd00:1::%[1]x"], "default": true, "dns": {}},
		{"name": "default", "interface": "t1", "ips": ["10.2.0.%[1]d", "fd00:2::%[1]x"], "dns": {}},
		{"name": "default", "interface": "v4", "ips": ["10.4.0.%[1]d"], "dns": {}}, {"name": "stub", "interface": "s1", "dns": {}}]`, i)
}

func notReady(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func leaving(p *corev1.Pod) {
	now := metav1.Now()
	p.DeletionTimestamp = &now
}

// lines formats endpoints, sorted: family, ports of the slice, address, conditions.
func lines(list []*discovery.EndpointSlice) (all []string) {
	for _, s := range list {
		var ports []string
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprintf("%s=%d/%s", *p.Name, *p.Port, *p.Protocol))
		}
		for _, e := range s.Endpoints {
			c := e.Conditions
			all = append(all,
				fmt.Sprintf("%s %s %s %s ready=%t serving=%t terminating=%t", s.AddressType, strings.Join(ports, ","),
					e.TargetRef.Name, strings.Join(e.Addresses, ","), *c.Ready, *c.Serving, *c.Terminating))
		}
	}
	slices.Sort(all)
	return all
}

type lab struct {
	*k8stest.Server
	t      *testing.T
	client *client.Client
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{Server: k8stest.New(t), t: t}
	var err error
	if l.client, err = client.New(l.Connection()); err != nil {
		t.Fatal(err)
	}
	return l
}

// start runs a keeper until the returned function is called, or the test ends.
func (l *lab) start() (stop func()) {
	l.t.Helper()
	k := NewKeeper(l.client, slog.New(slog.NewTextHandler(l.t.Output(), nil)))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- k.Run(ctx)
	}()
	stop = func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			l.t.Errorf("the keeper ended with %v", err)
		}
	}
	l.t.Cleanup(stop)
	return stop
}

// of reads the slices of a Service from the API server.
func (l *lab) of(service string) (list []*discovery.EndpointSlice) {
	l.t.Helper()
	all, err := l.client.EndpointSlices("").List(l.t.Context(), metav1.ListOptions{
		LabelSelector: discovery.LabelServiceName + "=" + service,
	})
	if err != nil {
		l.t.Fatal(err)
	}
	for i := range all.Items {
		list = append(list, &all.Items[i])
	}
	return list
}

func (l *lab) eventually(what string, is func() bool) {
	l.t.Helper()
	k8stest.Eventually(l.t, what, is)
}

// becomes waits until a Service has these endpoints.
func (l *lab) becomes(service string, want ...string) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("%s has %q", service, want), func() bool {
		return slices.Equal(lines(l.of(service)), want)
	})
}

// events lists the Events on Services.
func (l *lab) events() (all []string) {
	l.t.Helper()
	list, err := l.client.Events("").List(l.t.Context(), metav1.ListOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, e := range list.Items {
		all = append(all, fmt.Sprintf("%s %s %s: %s", e.Type, e.Reason, e.InvolvedObject.Name, e.Message))
	}
	return all
}
