package ctltest

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Sample returns the replies of an agent with one pod, one failed pod and one pending object.
func Sample(now time.Time) Replies {
	ago := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }
	return Replies{
		State:        sampleState(ago),
		Attachments:  sampleAttachments(ago),
		Events:       sampleEvents(ago),
		Transactions: sampleTransactions(ago),
		Objects:      sampleObjects(ago),
		Why:          sampleWhy(),
		Addresses:    sampleAddresses(ago),
		Devices:      sampleDevices(ago),
		Policy:       samplePolicy(),
		Counters:     sampleCounters(),
		Settings:     &operatorv1.SettingsReply{Yaml: "coolDown: 30s\nlog:\n  level: \"info\"\n"},
		Resync:       &operatorv1.ResyncReply{Event: 3},
		Garbage:      sampleGarbage(),
		Configure:    &operatorv1.ConfigureReply{Event: 4, Dropped: []string{"vpp.route/x: no such VRF"}},
		Packets:      samplePackets(now),
	}
}

type agoFunc func(time.Duration) *timestamppb.Timestamp

func sampleState(ago agoFunc) *operatorv1.StateReply {
	return &operatorv1.StateReply{
		Node: "n1", Version: "weft v0.1.0 (3f2a9c1d0b4e)", Started: ago(51*time.Hour + 20*time.Minute), Ready: true,
		Conditions: []*operatorv1.Condition{
			{Name: "started", Ok: true, Message: "resynced"},
			{Name: "dataplane", Ok: true, Message: "connected"},
		},
		Attachments: 1, Events: 2, Queue: 1, Running: "add pod default/c eth0 (weft, sandbox c0ffee000003)",
		Dataplane: "weft-vswitch 25.10", Objects: map[string]uint32{"applied": 20, "pending": 1},
	}
}

func sampleAttachments(ago agoFunc) *operatorv1.AttachmentsReply {
	nic := &operatorv1.InterfaceInfo{
		Name: "eth0", Type: "tap", Object: "weft-1-eth0", Mac: "02:00:00:00:00:01", Mtu: 1500,
		Addresses: []string{"10.1.0.2/32", "2001:db8::2/128"},
	}
	extra := &operatorv1.InterfaceInfo{Name: "memif1", Type: "memif", Network: "blue", Object: "weft-1-memif1"}
	return &operatorv1.AttachmentsReply{Attachments: []*operatorv1.AttachmentInfo{
		{
			Attachment: &weftv1.Attachment{
				Network:     "weft",
				ContainerId: "c0ffee000001aaaaaaaaaaaaaaaaaaaa",
				IfName:      "eth0",
			},
			Pod: &weftv1.Pod{Namespace: "default", Name: "a", Uid: "uid-a"},
			Annotations: map[string]string{
				"contivpp.io/custom-if": "memif1/memif/blue", "contivpp.io/ip-pools": "[\"a\",\n \"b\x1b[31m\"]",
			},
			AnnotationsFrom: "runtime",
			Netns:           "/run/netns/a",
			Created:         ago(3*time.Minute + 5*time.Second),
			Interfaces:      []*operatorv1.InterfaceInfo{nic, extra},
		},
		{
			Attachment:      &weftv1.Attachment{Network: "weft", ContainerId: "plain", IfName: "eth0"},
			AnnotationsFrom: "none",
			Netns:           "/run/netns/plain", Created: ago(59 * time.Second),
		},
	}}
}

// ownedBy returns the main interface of a pod as the owner of an object.
func ownedBy(name string) []*operatorv1.ObjectOwner {
	return []*operatorv1.ObjectOwner{
		{Pod: &weftv1.Pod{Namespace: "default", Name: name}, ContainerId: "c0ffee", Interface: "eth0"},
	}
}

func sampleEvents(ago agoFunc) []*operatorv1.EventRecord {
	return []*operatorv1.EventRecord{
		{
			Seq:          1,
			Event:        "add pod default/a eth0 (weft, sandbox c0ffee000001)",
			Kind:         "update",
			Arrived:      ago(185 * time.Second),
			Queued:       durationpb.New(12 * time.Microsecond),
			Took:         durationpb.New(3456 * time.Microsecond),
			Operations:   20,
			Transactions: []uint64{4},
			Pending:      []string{"vpp.route/one", "vpp.route/two"},
			TakenDown:    []string{"vpp.route/two"},
			Owners:       ownedBy("a"), OwnerNames: map[string]string{"vpp.route/one": "default/a:eth0"},
		},
		{
			Seq:          2,
			Event:        "add pod default/b eth0 (weft, sandbox c0ffee000002)",
			Kind:         "update",
			Arrived:      ago(61 * time.Second),
			Queued:       durationpb.New(0),
			Took:         durationpb.New(1234 * time.Millisecond),
			Operations:   7,
			Undone:       true,
			Transactions: []uint64{5},
			Owners:       ownedBy("b"),
			Steps: []*operatorv1.EventStep{
				{Number: 5, Name: "handlers", Took: durationpb.New(200 * time.Microsecond)},
				{Number: 9, Name: "commit", Took: durationpb.New(1200 * time.Millisecond), Error: "no such namespace"},
			},
			Handlers: []*operatorv1.EventHandler{
				{Name: "podmanager", Took: durationpb.New(12 * time.Microsecond)},
				{
					Name:    "ipnet",
					Took:    durationpb.New(150 * time.Microsecond),
					Changes: []string{"put linux.netns//run/netns/b", "put vpp.interface/weft-2-eth0"},
				},
			},
			Error: "vpp.interface/weft-2-eth0: create:\n\x1b[31mno such namespace",
		},
		{
			Seq:     3,
			Event:   "add pod default/c eth0 (weft, sandbox c0ffee000003)",
			Arrived: ago(30 * time.Second),
			Queued:  durationpb.New(0),
			Request: map[string]string{"contivpp.io/custom-if": "tap1/tap, memif1/memif/red"},
			Took:    durationpb.New(0), Refused: true, Repeats: 4, Error: "new pods are paused",
		},
	}
}

func sampleTransactions(ago agoFunc) []*operatorv1.TransactionRecord {
	us := func(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Microsecond) }
	return []*operatorv1.TransactionRecord{
		{
			Seq:    4,
			Event:  1,
			Origin: "update",
			Label:  "add pod default/a",
			Start:  ago(185 * time.Second),
			Took:   us(2500),
			Operations: []*operatorv1.Operation{
				{Ref: "linux.netns//run/netns/a", Owners: ownedBy("a"), Verb: "create", Why: "new", Took: us(40)},
				{
					Ref:    "vpp.interface/weft-1-eth0",
					Owners: ownedBy("a"),
					Verb:   "create",
					Why:    "new",
					Level:  1,
					Batch:  1,
					At:     us(45),
					Took:   us(900),
				},
			},
		},
		{
			Seq:    5,
			Event:  2,
			Origin: "update",
			Label:  "add pod default/b",
			Start:  ago(61 * time.Second),
			Took:   us(1_200_000),
			Undone: true,
			Error:  "no such namespace",
			Operations: []*operatorv1.Operation{
				{
					Ref:    "vpp.interface/weft-2-eth0",
					Owners: ownedBy("b"),
					Verb:   "create",
					Why:    "new",
					Level:  1,
					At:     us(20),
					Took:   us(1_199_000),
					Error:  "no such namespace",
				},
				{
					Ref:    "linux.netns//run/netns/b",
					Owners: ownedBy("b"),
					Verb:   "delete",
					Why:    "undo",
					Level:  2,
					Batch:  1,
					At:     us(1_199_100),
					Took:   us(15),
				},
			},
		},
		{
			Seq: 6, Origin: "retry", Label: "retry", Start: ago(time.Second),
			Waiting: []*operatorv1.Waiting{
				{
					Ref:     "vpp.route/weft:pods/ip4/10.1.0.3/32",
					Owners:  ownedBy("b"),
					Missing: []string{"vpp.interface/weft-2-eth0"},
					Lost:    true,
				},
			},
		},
	}
}

func sampleObjects(ago agoFunc) *operatorv1.ObjectsReply {
	return &operatorv1.ObjectsReply{Objects: []*operatorv1.Object{
		{
			Ref: "vpp.vrf/weft:pods/ip4", Phase: "applied", Since: ago(51 * time.Hour),
			Desired: []byte(`{"id":1}`), Applied: []byte(`{"id":1}`),
		},
		{
			Ref:     "vpp.route/weft:pods/ip4/10.1.0.3/32",
			Owners:  ownedBy("b"),
			Phase:   "pending",
			Since:   ago(10 * time.Second),
			Missing: []string{"vpp.interface/weft-2-eth0"}, Desired: []byte(`{"vrf":"weft:pods/ip4"}`),
		},
		{
			Ref:     "linux.route/x",
			Phase:   "failed",
			Since:   ago(70 * time.Second),
			Error:   "file exists",
			Attempt: 3,
			RetryAt: ago(-8 * time.Second),
		},
	}}
}

func sampleAddresses(ago agoFunc) *operatorv1.AddressesReply {
	return &operatorv1.AddressesReply{
		Pools: []*operatorv1.Pool{
			{Name: "default4", Prefix: "10.1.0.0/24", Free: 250, Leased: 1, Used: 1, Cooling: 1},
			{Name: "default6", Prefix: "2001:db8::/48", Free: math.MaxUint64},
		},
		Leases: []*operatorv1.Lease{
			{Pool: "default4", Address: "10.1.0.1", State: "internal", Holder: "node", Since: ago(51 * time.Hour)},
			{
				Pool:      "default4",
				Address:   "10.1.0.2",
				State:     "used",
				Holder:    "weft/c0ffee000001/eth0",
				Since:     ago(185 * time.Second),
				Pod:       &weftv1.Pod{Namespace: "default", Name: "a"},
				Interface: "eth0",
			},
			{
				Pool:    "default4",
				Address: "10.1.0.4",
				State:   "cooling",
				Holder:  "weft/c0ffee000004/eth0",
				Since:   ago(9 * time.Second),
				FreeAt:  ago(-21 * time.Second),
			},
		},
	}
}

func samplePolicy() *operatorv1.PolicyReply {
	rule := func(allow bool, remote, protocol, ports, origin string) *operatorv1.PolicyRule {
		return &operatorv1.PolicyRule{Allow: allow, Remote: remote, Protocol: protocol, Ports: ports, Origin: origin}
	}
	const isolated = "NetworkPolicy shop/db ingress: no rule allows it"
	return &operatorv1.PolicyReply{Interfaces: []*operatorv1.PolicyRules{{
		Interface: "eth0",
		Ingress: []*operatorv1.PolicyRule{
			rule(true, "10.1.0.1/32", "any", "", "the pod's own node"),
			rule(true, "10.1.1.5/32", "TCP", "5432", "NetworkPolicy shop/db ingress[0]"),
			rule(false, "0.0.0.0/0", "any", "", isolated), rule(false, "::/0", "any", "", isolated),
		},
		Egress: []*operatorv1.PolicyRule{
			rule(true, "0.0.0.0/0", "any", "", "no policy selects the pod"),
			rule(true, "::/0", "any", "", "no policy selects the pod"),
		},
		Counts: []*operatorv1.PolicyCount{
			{Direction: "ingress", Allow: true, Origin: "NetworkPolicy shop/db ingress[0]", Packets: 12, Bytes: 888},
			{Direction: "ingress", Origin: isolated, Packets: 3, Bytes: 222}, {
				Direction: "egress",
				Allow:     true,
				Origin:    "no policy selects the pod",
			},
		},
	}}}
}

func sampleDevices(ago agoFunc) *operatorv1.DevicesReply {
	return &operatorv1.DevicesReply{Registered: true, Free: 97, Allocations: []*operatorv1.Allocation{
		{
			Id:        "k3Jd82hsQ01mPz7LwXyB",
			Socket:    1,
			Devices:   []string{"memif-0", "memif-1"},
			Directory: "/run/weft/memif/k3Jd82hsQ01mPz7LwXyB",
			Created:   ago(186 * time.Second),
			Pod:       &weftv1.Pod{Namespace: "default", Name: "a", Uid: "uid-a"},
			Container: "vnf",
		},
		{
			Id:        "Zq9TtR5v3nB8cE1aYf4G",
			Socket:    2,
			Devices:   []string{"memif-2"},
			Directory: "/run/weft/memif/Zq9TtR5v3nB8cE1aYf4G",
			Created:   ago(2 * time.Second),
		},
	}}
}

func sampleCounters() *operatorv1.CountersReply {
	connected := true
	at := &weftv1.Attachment{Network: "weft", ContainerId: "c0ffee000001aaaaaaaaaaaaaaaaaaaa", IfName: "eth0"}
	pod := &weftv1.Pod{Namespace: "default", Name: "a", Uid: "uid-a"}
	return &operatorv1.CountersReply{
		Interfaces: []*operatorv1.InterfaceCounters{
			{Attachment: at, Pod: pod, Interface: "eth0", Type: "tap", Object: "weft-1-eth0",
				RxPackets: 12, RxBytes: 1176, TxPackets: math.MaxUint64, TxBytes: 1078, TxDrops: 1},
			{
				Attachment: at,
				Pod:        pod,
				Interface:  "memif1",
				Type:       "memif",
				Object:     "weft-1-memif1",
				Connected:  &connected,
			},
			{
				Attachment: &weftv1.Attachment{Network: "weft", ContainerId: "plain", IfName: "eth0"},
				Interface:  "eth0",
				Type:       "tap",
				Object:     "weft-2-eth0",
			},
		},
		Errors: []*operatorv1.ErrorCounter{
			{Node: "ip4-input", Reason: "time_expired", Count: 3}, {
				Node:   "l2-fwd",
				Reason: "L2 forward misses",
				Count:  1,
			},
		},
	}
}

func sampleGarbage() *operatorv1.CollectGarbageReply {
	a := &weftv1.Pod{Namespace: "default", Name: "a", Uid: "uid-a"}
	return &operatorv1.CollectGarbageReply{Garbage: []*operatorv1.Garbage{
		{
			Key:     "weft/c0ffee000001/eth0",
			Pod:     a,
			Netns:   "/run/netns/a",
			Reason:  "network namespace is gone",
			Deleted: true,
		},
		{
			Key:    "weft/c0ffee000002/eth0",
			Pod:    a,
			Netns:  "/run/netns/b",
			Reason: "pod is deleted",
			Lacks:  "the container runtime still has the sandbox",
		},
		{Key: "weft/plain/eth0", Netns: "/run/netns/plain", Reason: "network namespace is gone"},
	}}
}

func sampleWhy() *operatorv1.WhyReply {
	const text = "vpp.route/weft:pods/ip4/10.1.0.3/32 of default/b:eth0 waits for vpp.interface/weft-2-eth0: it is Pending"
	return &operatorv1.WhyReply{Found: true, Lines: []string{text}, Reasons: []*operatorv1.Reason{
		{
			Ref:      "vpp.route/weft:pods/ip4/10.1.0.3/32",
			Owners:   ownedBy("b"),
			Phase:    "Pending",
			Text:     text,
			WaitsFor: "vpp.interface/weft-2-eth0",
		},
	}}
}
