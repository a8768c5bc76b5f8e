package endpoints

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/pod"
)

// crowd generates pods: some are ready, some listen at another port, and some have one family only.
func crowd(r *rapid.T) (pods []*corev1.Pod) {
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(1, 250), 0, 250, rapid.ID[int]).Draw(r, "pods") {
		pods = append(pods, backend("a", i, func(p *corev1.Pod) {
			if rapid.IntRange(0, 9).Draw(r, "kind") == 0 {
				p.Spec.Containers[0].Ports[0].ContainerPort = 9090
			}
			if rapid.IntRange(0, 9).Draw(r, "state") == 0 {
				notReady(p)
			}
			if rapid.IntRange(0, 9).Draw(r, "interface") == 0 {
				p.Annotations[pod.AnnotationEndpoint] = "v4"
			}
		}))
	}
	return pods
}

// placesOf returns the slice of each endpoint.
func placesOf(list []*discovery.EndpointSlice) map[string]string {
	places := map[string]string{}
	for _, s := range list {
		for _, line := range lines([]*discovery.EndpointSlice{s}) {
			places[strings.Join(strings.Fields(line)[:4], " ")] = s.Name
		}
	}
	return places
}

func TestSlicesAreStableUnderRandomChanges(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := service("a")
		var have []*discovery.EndpointSlice
		for range rapid.IntRange(1, 5).Draw(r, "changes") {
			groups, _ := groupsOf(s, crowd(r))
			now := slicesOf(s, groups, have)
			if got, want := lines(now), lines(slicesOf(s, groups, nil)); !slices.Equal(got, want) {
				r.Fatalf("endpoints %q, want %q", got, want)
			}
			names := map[string]bool{}
			for _, x := range now {
				if len(x.Endpoints) > most || names[x.Name] {
					r.Fatalf("slice %s has %d endpoints, or is there twice", x.Name, len(x.Endpoints))
				}
				names[x.Name] = true
			}
			before := placesOf(have)
			for e, place := range placesOf(now) {
				if was := before[e]; was != "" && was != place {
					r.Fatalf("%s was in %s and is in %s", e, was, place)
				}
			}
			if again := slicesOf(s, groups, now); !reflect.DeepEqual(again, now) {
				r.Fatalf("without a change %q became %q", lines(now), lines(again))
			}
			have = now
		}
	})
}

func TestAServiceWithoutBackendsHasAnEmptySliceOfEachFamily(t *testing.T) {
	s := service("a")
	check := func(list []*discovery.EndpointSlice) {
		t.Helper()
		if len(list) != 2 || list[0].Name != "a-weft-ipv4-0" || list[1].Name != "a-weft-ipv6-0" ||
			len(lines(list)) != 0 {
			t.Errorf("slices %v", list)
		}
	}
	none := slicesOf(s, nil, nil)
	check(none)
	groups, _ := groupsOf(s, []*corev1.Pod{backend("a", 1)})
	some := slicesOf(s, groups, none)
	if len(some) != 2 || some[0].Name != none[0].Name {
		t.Errorf("the empty slices are not used: %v", some)
	}
	check(slicesOf(s, nil, some))
}
