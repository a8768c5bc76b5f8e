package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// evaluate decides about a packet by compiled lists.
func evaluate(lists map[ID]map[string]Lists, k packet) (bool, string) {
	list := lists[k.pod.ID][k.nic.Name][k.direction]
	if list == nil {
		return true, "no list"
	}
	r := list.Decide(k.remote, k.protocol, k.port)
	return r.Action == Allow, r.Origin
}

func TestCompiledRulesAgreeWithTheDocumentationOfTheAPI(t *testing.T) {
	seed := seedOf(t)
	permitted := 0
	denied := 0
	for n := range *policyWorlds {
		d := dice{rand.New(rand.NewPCG(seed, uint64(n)))}
		w := d.world(t)
		e := NewEngine(Config{})
		w.fill(t, e)
		e.Compile()
		lists := e.Lists()
		for range 150 {
			k := d.packet(w)
			if !k.pod.Local {
				continue
			}
			want := w.permits(k)
			if want {
				permitted++
			} else {
				denied++
			}
			if got, why := evaluate(lists, k); got != want {
				t.Fatalf("cluster %d: %s of %s on %s with %s, protocol %d port %d: permitted %t (%s), want %t\n%s",
					n, k.direction, k.pod, k.nic.Name, k.remote, k.protocol, k.port, got, why, want, show(w))
			}
		}
	}
	t.Logf("%d packets permitted, %d denied", permitted, denied)
	if permitted == 0 || denied == 0 {
		t.Error("the clusters do not distinguish packets")
	}
}

func show(w *world) string {
	var pods []string
	for _, p := range w.pods {
		pods = append(pods, fmt.Sprintf("%+v", *p))
	}
	raw, _ := json.MarshalIndent(map[string]any{
		"namespaces": w.namespaces, "pods": pods, "policies": w.policies, "multi": w.multi, "admin": w.admin,
		"baseline": w.baseline,
		"nodes":    w.nodes, "nodeAt": w.nodeAt,
	}, "", " ")
	return string(raw)
}

// change makes a random change to a world and tells an engine.
func (d dice) change(t *testing.T, w *world, e *Engine) {
	switch d.IntN(13) {
	case 12:
		w.clients = d.clients(t)
		e.SetClients(w.clients)
	case 0:
		ns := d.namespace()
		if d.chance(20) {
			delete(w.namespaces, ns)
			e.DeleteNamespace(ns)
			return
		}
		w.namespaces[ns] = d.labels()
		e.SetNamespace(ns, w.namespaces[ns])
	case 1:
		name := fmt.Sprintf("node%d", d.IntN(3))
		if d.chance(40) {
			delete(w.nodes, name)
			delete(w.nodeAt, name)
			e.DeleteNode(name)
			return
		}
		w.nodes[name] = d.labels()
		w.nodeAt[name] = nil
		e.SetNode(name, w.nodes[name], nil)
	case 2, 3, 4:
		if len(w.pods) == 0 || d.chance(40) {
			w.pods = append(w.pods, d.pod(1000+d.IntN(100000)))
			w.setPod(e, w.pods[len(w.pods)-1])
			return
		}
		n := d.IntN(len(w.pods))
		e.DeletePod(w.pods[n].ID)
		w.pods = slices.Delete(w.pods, n, n+1)
	case 5, 6:
		if len(w.pods) > 0 {
			p := pick(d, w.pods...)
			changed := d.pod(0)
			changed.ID = p.ID
			*p = *changed
			w.setPod(e, p)
		}
	case 7, 8:
		p := d.policy(d.IntN(5), false)
		same := func(o *policyObject) bool { return o.Namespace == p.Namespace && o.Name == p.Name }
		w.policies = slices.DeleteFunc(w.policies, same)
		if d.chance(40) {
			e.DeletePolicy(Ref{Network, p.Namespace, p.Name})
			return
		}
		w.policies = append(w.policies, p)
		set(t, e)(OfNetworkPolicy(p))
	case 9:
		p := d.policy(d.IntN(3), true)
		w.multi = slices.DeleteFunc(w.multi, func(o *policyObject) bool {
			return o.Namespace == p.Namespace && o.Name == p.Name
		})
		if d.chance(40) {
			e.DeletePolicy(Ref{Multi, p.Namespace, p.Name})
			return
		}
		w.multi = append(w.multi, p)
		set(t, e)(OfMultiNetworkPolicy(p, &p.Spec))
	case 10:
		p := d.admin(d.IntN(4))
		w.admin = slices.DeleteFunc(w.admin, func(o *adminObject) bool { return o.Name == p.Name })
		if d.chance(40) {
			e.DeletePolicy(Ref{Admin, "", p.Name})
			return
		}
		w.admin = append(w.admin, p)
		set(t, e)(OfAdminNetworkPolicy(p))
	default:
		if w.baseline != nil && d.chance(50) {
			w.baseline = nil
			e.DeletePolicy(Ref{Baseline, "", "default"})
			return
		}
		w.baseline = d.baseline()
		set(t, e)(OfBaselineAdminNetworkPolicy(w.baseline))
	}
}

// namesOf maps pods and interfaces to the names of their lists.
func namesOf(lists map[ID]map[string]Lists) map[string][2]string {
	names := make(map[string][2]string)
	for id, interfaces := range lists {
		for name, l := range interfaces {
			names[id.String()+" "+name] = [2]string{l[0].Name, l[1].Name}
		}
	}
	return names
}

func TestChangesLeadToTheRulesOfACompilationFromScratch(t *testing.T) {
	seed := seedOf(t)
	for n := range *policyWorlds / 5 {
		d := dice{rand.New(rand.NewPCG(seed, uint64(n)))}
		c := Config{}
		if n%2 == 1 { // which rules of a namespace have room on the node depends on the order
			c.Limits = smallLimits(d)
			c.Limits.Node = DefaultLimits.Node
			c.Limits.AllNamespaces = DefaultLimits.AllNamespaces
			c.Limits.AllServices = d.IntN(80)
			c.Limits.Services = d.IntN(30)
			c.Limits.Lookups = 1000
			c.Limits.NamespaceLookups = 400
		}
		w := d.world(t)
		e := NewEngine(c)
		w.fill(t, e)
		follower := make(map[ID]map[string]Lists) // knows changes only
		for step := range 12 {
			for range d.IntN(4) {
				d.change(t, w, e)
			}
			for _, c := range e.Compile() {
				if delete(follower, c.ID); len(c.Interfaces) > 0 {
					follower[c.ID] = c.Interfaces
				}
			}
			e.mustTally(t)
			scratch := NewEngine(c)
			w.fill(t, scratch)
			scratch.Compile()
			want := namesOf(scratch.Lists())
			if got := namesOf(e.Lists()); !maps.Equal(got, want) {
				t.Fatalf("cluster %d, step %d: lists %v, from scratch %v\n%s", n, step, got, want, show(w))
			}
			if got := namesOf(follower); !maps.Equal(got, want) {
				t.Fatalf("cluster %d, step %d: the changes lead to %v, want %v\n%s", n, step, got, want, show(w))
			}
			if len(e.budget.lists) != len(scratch.budget.lists) ||
				len(e.membership.groups) != len(scratch.membership.groups) ||
				len(e.membership.index.unknown) != len(scratch.membership.index.unknown) {
				t.Fatalf("cluster %d, step %d: %d lists and %d groups are kept, want %d and %d", n, step,
					len(e.budget.lists), len(e.membership.groups), len(scratch.budget.lists),
					len(scratch.membership.groups))
			}
		}
	}
}
