package policy

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// FuzzPolicy converts any spec and compiles it: no text makes the engine panic, and a spec without selected pods has no
// effect.
func FuzzPolicy(f *testing.F) {
	f.Add([]byte(onlyFromWeb), "red, x/nad")
	f.Add([]byte(denyAll), "")
	f.Add(
		[]byte(
			`{podSelector: {matchExpressions: [{key: a, operator: In, values: [b]}]}, egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}], ports: [{port: web, protocol: UDP}, {port: 1, endPort: 9}]}]}`),
		",,/")
	f.Fuzz(func(t *testing.T, spec []byte, networks string) {
		o := &networkingv1.NetworkPolicy{}
		if yaml.Unmarshal(spec, &o.Spec) != nil {
			return
		}
		o.Namespace = "a"
		o.Name = "p"
		o.Annotations = map[string]string{AnnotationFor: networks}
		main, errMain := OfNetworkPolicy(o)
		multi, errMulti := OfMultiNetworkPolicy(o, &o.Spec)
		if (errMain == nil) != (errMulti == nil) {
			t.Fatalf("%v, %v", errMain, errMulti)
		}
		e := NewEngine(Config{})
		e.SetPod(podAt("a/p", true, "10.0.0.1", "app=db"))
		e.SetPod(podAt("b/p", true, "10.0.0.2", "app=db"))
		e.SetPolicy(main)
		e.SetPolicy(multi)
		for _, c := range e.Compile() {
			if c.Namespace != "a" {
				t.Errorf("a policy of namespace a changes %s", c.ID)
			}
		}
		e.DeletePolicy(main.Ref)
		e.DeletePolicy(multi.Ref)
		if e.Compile(); len(e.Lists()) != 0 || len(e.membership.groups) != 0 {
			t.Errorf("something is left: %v", e.Lists())
		}
	})
}
