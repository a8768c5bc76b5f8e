package planning

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

const manifestHead = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, annotations: {contivpp.io/custom-if: x1/tap/bleu}}\n"

func TestManifestIsOnePodWithDevicesByItsLimits(t *testing.T) {
	m, err := parseManifest([]byte(manifestHead + `spec:
  initContainers: [{name: init, resources: {limits: {contivpp.io/memif: 1}}}]
  containers: [{name: a, resources: {limits: {contivpp.io/memif: "2", cpu: 500m}}}, {name: b}, {name: c, resources: {limits: {contivpp.io/memif: 0}}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	grants, err := m.grants()
	if err != nil || len(grants) != 2 || grants[0].Container != "init" || len(grants[1].Allocation.Devices) != 2 {
		t.Error(grants, err)
	}
	if id := m.id(); id.String() != "default/web" {
		t.Error(id)
	}
	for document, text := range map[string]string{
		"":   "no apiVersion",
		"[]": "manifest: ",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}": "apps/v1 Deployment, not v1 Pod",
		"apiVersion: v1\nkind: Pod":                                    "metadata.name is missing",
		manifestHead + "spec: {hostNetwork: true}":                     "hostNetwork",
		strings.Repeat("#", maxManifest+1):                             "at most",
		manifestHead + "---\n" + manifestHead:                          "it has 2 Pods: give one",
		manifestHead +
			"---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\nspec: {devices: 7}": "ResourceClaim c: ",
	} {
		if _, err := parseManifest([]byte(document)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%.40q: %v", document, err)
		}
	}
	for _, limit := range []string{"-1", "1k", "1.5", "99999999"} {
		m, err := parseManifest([]byte(manifestHead +
			"spec: {containers: [{name: a, resources: {limits: {contivpp.io/memif: " + limit + "}}}]}"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.grants(); err == nil || !strings.Contains(err.Error(), "is not a number of devices") {
			t.Errorf("limit %s: %v", limit, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifestHead))
	f.Add([]byte(manifestHead +
		"spec: {resourceClaims: [{name: c, resourceClaimName: c}]}\n---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\n" +
		"spec: {devices: {requests: [{name: r, exactly: {deviceClassName: memif.contivpp.io, count: 99}}]}}"))
	f.Add([]byte(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"resources":{"limits":{"contivpp.io/memif":3}}}]}}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		m, err := parseManifest(document)
		if err != nil {
			return
		}
		grants, err := m.grants()
		for _, g := range grants {
			if len(g.Allocation.Devices) == 0 || len(g.Allocation.Devices) > maxDevices {
				t.Errorf("%d devices", len(g.Allocation.Devices))
			}
		}
		claimed, _, _ := m.claimed()
		for _, g := range claimed {
			if _, err := g.Allocation.Claim.Parameters.Request(); err != nil {
				t.Errorf("%+v: %v", g.Allocation.Claim, err)
			}
		}
		if id := m.id(); err == nil && (id.Name == "" || id.Namespace == "") {
			t.Errorf("pod %q", id)
		}
	})
}

func TestNearestNetworkIsNamed(t *testing.T) {
	known := []string{"blue", "red", "default", "stub", "green-field"}
	for name, want := range map[string]string{
		"bleu":       "blue",
		"Red":        "red",
		"green":      "green-field",
		"blue":       "",
		"":           "",
		"unlike-any": "",
		"defualt":    "default",
	} {
		if got := nearest(name, known); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// planPod plans the ADD of manifestHead with an agent that answers like this.
func planPod(t *testing.T, c Config, planErr, commitErr error) *operatorv1.PlanReply {
	t.Helper()
	s := server(t, nil)
	c.Scheduler = s.graph.scheduler
	c.Down = s.graph.down
	if c.Served == nil {
		c.Served = func() (bool, error) { return false, nil }
	}
	c.Networks = func() []string { return []string{"blue"} }
	c.PlanPod = func(context.Context, pod.ID, map[string]string, []pod.Grant) (*podmanager.Planned, error) {
		return &podmanager.Planned{
			Attachment: &pod.Attachment{Interfaces: []pod.Interface{{Name: "eth0", Type: pod.TypeTap}}},
		}, planErr
	}
	c.Plan = func(context.Context, eventloop.Change) (Transactions, error) { return Transactions{}, commitErr }
	reply, err := New(c).PlanPod(t.Context(), &operatorv1.PlanPodRequest{Manifest: []byte(manifestHead)})
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func TestPlanOfAPodHasTheErrorOfItsAdd(t *testing.T) {
	if r := planPod(t, Config{}, nil, nil); r.Error != "" || len(r.Interfaces) != 1 {
		t.Errorf("a pod that can be added: %v", r)
	}
	r := planPod(t, Config{}, pod.Errorf(pod.CodeUnknownNetwork, "unknown network %q", "bleu"), nil)
	if r.Code != uint32(pod.CodeUnknownNetwork) || r.Error != `unknown network "bleu"` ||
		!strings.Contains(fmt.Sprint(r.Notes), `did you mean "blue"?`) {
		t.Errorf("an unknown network: %v", r)
	}
	if r := planPod(t, Config{}, nil, errors.New("x waits for y")); r.Code != uint32(pod.CodeRefused) ||
		r.Error != "commit: x waits for y" {
		t.Errorf("a commit that fails: %v", r)
	}
	paused := Config{Served: func() (bool, error) { return false, pod.Errorf(pod.CodeTryAgain, "new pods are paused") }}
	if r := planPod(t, paused, nil, nil); r.Code != uint32(pod.CodeTryAgain) || len(r.Interfaces) != 1 {
		t.Errorf("paused: %v", r)
	}
	starting := Config{Served: func() (bool, error) { return true, errors.New("the dataplane is awaited") }}
	if r := planPod(t, starting, nil, nil); !strings.Contains(r.Error, "the dataplane is awaited") ||
		len(r.Interfaces) != 0 {
		t.Errorf("starting: %v", r)
	}
}

// The plan of an edit keeps what it was made from: the last known state, and claims that do not exist yet.
func TestPlanOfAnEditSaysWhatItAssumes(t *testing.T) {
	s := New(Config{
		Down: func() error { return errors.New("no socket") },
		PlanEdit: func(_ context.Context, id pod.ID, annotations map[string]string) (*podmanager.Planned, error) {
			if id.String() != "default/web" || annotations[pod.AnnotationCustom] != "x1/tap/bleu" {
				t.Errorf("the edit of %s to %v is planned", id, annotations)
			}
			return &podmanager.Planned{
				Attachment: &pod.Attachment{Interfaces: []pod.Interface{{Name: "eth0"}, {Name: "x1"}}},
				Notes:      []string{"made: x1 on network bleu"},
			}, nil
		},
		Plan: func(context.Context, eventloop.Change) (Transactions, error) { return Transactions{}, nil },
	})
	r, err := s.PlanPod(t.Context(), &operatorv1.PlanPodRequest{Manifest: []byte(manifestHead), Edit: true})
	if err != nil || r.Error != "" || len(r.Interfaces) != 2 {
		t.Fatal(r, err)
	}
	notes := strings.Join(r.Notes, "\n")
	for _, part := range []string{"the dataplane is not connected (no socket)", "made: x1 on network bleu"} {
		if !strings.Contains(notes, part) {
			t.Errorf("notes %q, want %q", notes, part)
		}
	}
}
