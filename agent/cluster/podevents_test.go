package cluster

import (
	"slices"
	"testing"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/wire"
)

func TestOnlyEditsThatTakeEffectInANewPodAreReported(t *testing.T) {
	const custom = pod.AnnotationCustom
	selecting := []pod.Interface{{Name: "net1", Definition: "lab/blue"}}
	for name, tt := range map[string]struct {
		was, is    map[string]string
		interfaces []pod.Interface
		multus     bool
		want       []string
	}{
		"an interface is added": {
			map[string]string{custom: "t1/tap"}, map[string]string{custom: "t1/tap, t2/tap"}, nil, false,
			[]string{custom},
		},
		"all interfaces are removed": {
			map[string]string{custom: "t1/tap"}, map[string]string{}, nil, false, []string{custom},
		},
		"nothing is changed": {
			map[string]string{custom: "t1/tap"}, map[string]string{custom: "t1/tap"}, nil, false, nil,
		},
		"a foreign annotation": {nil, map[string]string{"other.io/x": "y"}, nil, false, nil},
		"the interface for Services is set": {
			nil, map[string]string{pod.AnnotationEndpoint: "t1"}, nil, false, nil,
		},
		"the interface for Services is removed": {
			map[string]string{pod.AnnotationEndpoint: "t1"}, map[string]string{}, nil, false, nil,
		},
		"a network is selected": {
			nil, map[string]string{pod.AnnotationNetworks: "blue"}, nil, false, []string{pod.AnnotationNetworks},
		},
		"another network is selected": {
			map[string]string{pod.AnnotationNetworks: "blue"}, map[string]string{pod.AnnotationNetworks: "red"},
			selecting, false, []string{pod.AnnotationNetworks},
		},
		"Multus handles the selection": {
			nil, map[string]string{pod.AnnotationNetworks: "blue"}, nil, true, nil,
		},
		"an older agent did not store the selection": {
			nil, map[string]string{pod.AnnotationNetworks: "blue"}, selecting, false, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := &PodEvents{Multus: tt.multus}
			got := a.edited(&pod.Attachment{Annotations: tt.was, Interfaces: tt.interfaces}, tt.is)
			if !slices.Equal(got, tt.want) {
				t.Errorf("reported are %v, want %v", got, tt.want)
			}
		})
	}
}

const container = "0123456789abcdef0123"

func TestAFailureIsToldInTheWordsOfThePodsAuthor(t *testing.T) {
	key := pod.Key{Network: "weft", ContainerID: container, IfName: "eth0"}
	route := &kvscheduler.OpRecord{
		Ref: "linux.route/weft/" + container + "/eth0/0.0.0.0/0", Verb: "create",
		Err: "create linux.route/weft/" + container + "/eth0/0.0.0.0/0: other0 has it already",
	}
	undone := &eventloop.Record{Failure: eventloop.Failure{Undone: true}}
	stuck := &eventloop.Record{Failure: eventloop.Failure{Stuck: []string{"a", "b"}}}
	for _, tt := range []struct {
		name string
		text string
		rec  *eventloop.Record
		op   *kvscheduler.OpRecord
		want string
	}{
		{
			"an operation of the transaction", "commit: ...", undone, route,
			"interface eth0: making a route in the pod failed: other0 has it already; everything of it was undone",
		}, {
			"what a handler refuses", "pod shop/a eth0 (weft, sandbox 0123456789ab): pool default is exhausted",
			undone, nil,
			"interface eth0: pod shop/a eth0 (weft): pool default is exhausted; everything of it was undone",
		}, {
			"what a handler refuses of another interface",
			"pod shop/a eth0 (weft, sandbox 0123456789ab): interface x1: address 10.5.0.7 is in no pool",
			undone, nil,
			"interface x1: address 10.5.0.7 is in no pool; everything of it was undone",
		}, {
			"what is refused before it is an event", "new pods are paused: upgrade", nil, nil,
			"interface eth0: new pods are paused: upgrade",
		}, {
			"what is left behind", "commit: no reply", stuck, nil,
			"interface eth0: commit: no reply; 2 of its objects could not be undone yet",
		}, {
			"a kind without a word of its own", "", nil, &kvscheduler.OpRecord{
				Ref:  "vpp.new/x",
				Verb: "update",
				Err:  "no",
			},
			"interface eth0: changing vpp.new failed: no",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := new(PodEvents).failureText(podmanager.Outcome{Key: key, Text: tt.text, Record: tt.rec}, tt.op)
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Operations that were skipped, or undone, are consequences of the failed one, and may be recorded before it.
func TestOnlyTheOperationThatFailedIsTold(t *testing.T) {
	for name, tt := range map[string]struct {
		op   kvscheduler.OpRecord
		want bool
	}{
		"failed":           {kvscheduler.OpRecord{Err: "no reply", Outcome: "unknown"}, true},
		"done":             {kvscheduler.OpRecord{Outcome: "applied"}, false},
		"skipped":          {kvscheduler.OpRecord{Err: "not begun", Outcome: "skipped"}, false},
		"undo that failed": {kvscheduler.OpRecord{Err: "no reply", Why: "undo", Outcome: "unknown"}, false},
	} {
		if got := hasFailed(tt.op); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestEachKindOfObjectHasAWordForThePodsAuthor(t *testing.T) {
	for _, kind := range wire.Kinds() {
		if words[kind] == "" {
			t.Errorf("%s has none", kind)
		}
	}
}
