package admission_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
)

// Operations.
const (
	create = admission.Create
	update = admission.Update
	remove = admission.Delete
)

// attempt is a named request; message is a part of the denial of an attack.
type attempt struct {
	name, message string
	request
}

const owned = `metadata: {ownerReferences: [{apiVersion: v1, kind: Node, name: n2, uid: u}]}`

// announces creates the NodeNetwork of n2 with prefixes of a network.
func announces(t testing.TB, network string, cidrs ...string) request {
	return request{
		node:      "n2",
		operation: create,
		resource:  "nodenetworks",
		object: object(t, "nodenetworks", "n2", fmt.Sprintf(
			`{%s, spec: {nodeID: 2, addresses: [192.0.2.2, "2001:db8::2"], networks: [{name: %s, cidrs: ["%s"]}]}}`,
			owned,
			network, strings.Join(cidrs, `", "`))),
	}
}

// endsAt creates the NodeNetwork of n2 with a tunnel endpoint.
func endsAt(t testing.TB, address string) request {
	return request{
		node:      "n2",
		operation: create,
		resource:  "nodenetworks",
		object: object(t, "nodenetworks", "n2", fmt.Sprintf(
			`{%s, spec: {nodeID: 2, addresses: ["%s"]}}`, owned, address)),
	}
}

// claims creates an IPBlock of n2. Of is "pool: p" or "network: n".
func claims(t testing.TB, name, cidr, of string) request {
	return request{node: "n2", operation: create, resource: "ipblocks", object: object(t, "ipblocks", name, fmt.Sprintf(
		`{%s, spec: {cidr: "%s", %s, node: n2}}`, owned, cidr, of))}
}

// changes updates the spec of a block.
func changes(t testing.TB, node, before, after string) request {
	return request{node: node, operation: update, resource: "ipblocks",
		old:    object(t, "ipblocks", "10.9.2.0-26", "{spec: {cidr: 10.9.2.0/26, "+before+"}}"),
		object: object(t, "ipblocks", "10.9.2.0-26", "{spec: {cidr: 10.9.2.0/26, "+after+"}}")}
}

// with returns the request with a change.
func (r request) with(set func(*request)) request {
	set(&r)
	return r
}

func many(n int, format string) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf(format, i/256, i%256))
	}
	return list
}

// requestOfN3 is an address request of node n3.
const requestOfN3 = "requested: [{address: 10.9.2.8, node: n3}]"

// validRequests are requests of correct agents.
func validRequests(t testing.TB) []attempt {
	podif := func(node, uid string) string {
		return fmt.Sprintf(
			`{metadata: {namespace: a, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: %s}]}, node: %s, podUID: %s}`,
			uid, node, uid)
	}
	event := object(t, "events", "e",
		`{metadata: {namespace: a}, source: {component: weft-agent, host: n2}, reportingComponent: weft-agent, reportingInstance: n2, involvedObject: {kind: Pod, namespace: a, name: p}}`)
	mine := announces(t, "default", "10.244.2.0/24")
	return []attempt{
		{"announce a podCIDR", "", mine},
		{
			"announce an IPv6 podCIDR, a block and loans", "",
			announces(t, "default", "fd00:244:2::/64", "10.9.2.0/26", "10.9.3.7/32", "fd00:9::7/128"),
		},
		{"announce the widest prefixes", "", announces(t, "default", "10.244.0.0/16", "fd00:244::/48")},
		{"announce 256 blocks", "", announces(t, "default", many(256, "10.9.%d.%d/32")...)},
		{"announce addresses of machines in a custom network", "", announces(t, "blue", "192.0.2.0/28")},
		{
			"announce nothing", "",
			request{
				node:      "n2",
				operation: create,
				resource:  "nodenetworks",
				object:    object(t, "nodenetworks", "n2", `{spec: {}}`),
			},
		},
		{"announce a change", "", mine.with(func(r *request) { r.operation, r.old = update, r.object })},
		{
			"write the status", "",
			mine.with(func(r *request) { r.operation, r.old, r.sub = update, r.object, "status" }),
		},
		{
			"delete the NodeNetwork", "",
			mine.with(func(r *request) { r.operation, r.old, r.object = remove, r.object, nil }),
		},
		{"claim a block", "", claims(t, "10.9.2.0-26", "10.9.2.0/26", "pool: pods")},
		{
			"claim an IPv6 block", "",
			claims(t, "fd00-0009-0000-0000-0000-0000-0000-0100-120", "fd00:9::100/120", "pool: six"),
		},
		{"claim a block of a network", "", claims(t, "blue.10.5.0.16-28", "10.5.0.16/28", "network: blue")},
		{
			"claim an IPv6 block of a network", "",
			claims(t, "blue.fd00-0005-0000-0000-0000-0000-0000-0040-122", "fd00:5::40/122", "network: blue"),
		},
		{"claim a block of no node", "", changes(t, "n2", "pool: pods", "pool: pods, node: n2")},
		{"give a block back", "", changes(t, "n2", "pool: pods, node: n2", "pool: pods")},
		{"offer addresses", "", changes(t, "n2", "pool: pods, node: n2", "pool: pods, node: n2, offered: [10.9.2.7]")},
		{
			"borrow", "",
			changes(t, "n1", "pool: pods, node: n2, offered: [10.9.2.7]",
				"pool: pods, node: n2, offered: [10.9.2.7], borrowed: [{address: 10.9.2.7, node: n1}]"),
		},
		{
			"give a loan back", "",
			changes(t, "n1", "pool: pods, node: n2, offered: [10.9.2.7], borrowed: [{address: 10.9.2.7, node: n1}]",
				"pool: pods, node: n2, offered: [10.9.2.7]"),
		},
		{
			"request an address", "",
			changes(t, "n1", "pool: pods, node: n2",
				"pool: pods, node: n2, requested: [{address: 10.9.2.7, node: n1, namespace: shop, pod: web-0}]"),
		},
		{
			"request another address of a block with a request", "",
			changes(t, "n1", "pool: pods, node: n2, "+requestOfN3,
				"pool: pods, node: n2, requested: [{address: 10.9.2.8, node: n3}, {address: 10.9.2.7, node: n1}]"),
		},
		{
			"offer a requested address", "",
			changes(t, "n2", "pool: pods, node: n2, "+requestOfN3,
				"pool: pods, node: n2, offered: [10.9.2.8], "+requestOfN3),
		},
		{"refuse a request", "", changes(t, "n2", "pool: pods, node: n2, "+requestOfN3, "pool: pods, node: n2")},
		{
			"borrow a requested address", "",
			changes(t, "n3", "pool: pods, node: n2, offered: [10.9.2.8], "+requestOfN3,
				"pool: pods, node: n2, offered: [10.9.2.8], borrowed: [{address: 10.9.2.8, node: n3, namespace: shop, pod: web-0}]"),
		},
		{"withdraw a request", "", changes(t, "n3", "pool: pods, node: n2, "+requestOfN3, "pool: pods, node: n2")},
		{
			"give a loan of an unclaimed block back", "",
			changes(t, "n3", "pool: pods, offered: [10.9.2.8], borrowed: [{address: 10.9.2.8, node: n3}]",
				"pool: pods, offered: [10.9.2.8]"),
		},
		{
			"claim an unclaimed block that is lent", "",
			changes(t, "n2", "pool: pods, offered: [10.9.2.8], borrowed: [{address: 10.9.2.8, node: n3}]",
				"pool: pods, node: n2, offered: [10.9.2.8], borrowed: [{address: 10.9.2.8, node: n3}]"),
		},
		{
			"publish the owners of addresses", "",
			changes(t, "n2", "pool: pods, node: n2", "pool: pods, node: n2").with(func(r *request) {
				r.sub = "status"
			}),
		},
		{
			"delete a block", "",
			claims(t, "10.9.2.0-26", "10.9.2.0/26", "pool: pods").with(func(r *request) {
				r.operation, r.old, r.object = remove, r.object, nil
			}),
		},
		{
			"publish the interfaces of a pod", "",
			request{
				node:      "n2",
				operation: create,
				resource:  "podinterfaces",
				object:    object(t, "podinterfaces", "p", podif("n2", "u")),
			},
		},
		{
			"take over a pod that moved", "",
			request{
				node:      "n2",
				operation: update,
				resource:  "podinterfaces",
				object:    object(t, "podinterfaces", "p", podif("n2", "u")),
				old:       object(t, "podinterfaces", "p", podif("n1", "v")),
			},
		},
		{"write an event", "", request{node: "n2", operation: create, resource: "events", object: event}},
		{"count an event", "", request{node: "n2", operation: update, resource: "events", object: event, old: event}},
		{
			"write an event on a Service", "",
			advises(t, "weft-controller", "weft-controller", "kind: Service, namespace: a"),
		},
		{
			"write an event on a NetworkPolicy", "",
			advises(t, "weft-controller", "weft-controller", "kind: NetworkPolicy, namespace: a"),
		},
		{"update objects with finalizers of another component", "", mine.with(func(r *request) {
			r.operation, r.object = update, finalized(r.object, "example.com/backup")
			r.old = r.object
		})},
		{
			"add the finalizer of a network", "",
			restricts(t, "{spec: {type: L2}}", "{metadata: {finalizers: [contivpp.io/in-use]}, spec: {type: L2}}"),
		},
		{
			"remove the finalizer of a network", "",
			restricts(t, "{metadata: {finalizers: [a/b, contivpp.io/in-use]}, spec: {type: L2}}",
				"{metadata: {finalizers: [a/b]}, spec: {type: L2}}"),
		},
		{"free a block of a deleted node", "", frees(t, "pool: pods, node: n9", "")},
		{
			"free a block of a deleted node that lends addresses", "",
			frees(t, "pool: pods, node: n9, offered: [10.9.2.7], "+lentToN1+", "+requestOfN3,
				"pool: pods, offered: [10.9.2.7], "+lentToN1),
		},
		{
			"return a loan of a deleted node", "",
			frees(t, "pool: pods, node: n2, offered: [10.9.2.7], borrowed: [{address: 10.9.2.7, node: n9}]",
				"pool: pods, node: n2, offered: [10.9.2.7]"),
		},
	}
}

// lentToN1 is a loan of node n1.
const lentToN1 = "borrowed: [{address: 10.9.2.7, node: n1}]"

// finalized returns a copy of an object with a finalizer.
func finalized(o *unstructured.Unstructured, finalizer string) *unstructured.Unstructured {
	o = o.DeepCopy()
	o.SetFinalizers(append(o.GetFinalizers(), finalizer))
	return o
}

// restricts updates a network as the controller.
func restricts(t testing.TB, before, after string) request {
	return request{user: controller, operation: update, resource: "customnetworks",
		old: object(t, "customnetworks", "red", before), object: object(t, "customnetworks", "red", after)}
}

// frees changes the spec of a block as the controller, or deletes the block if after is "".
func frees(t testing.TB, before, after string) request {
	r := changes(t, "", before, after)
	r.user = controller
	if after == "" {
		r.operation, r.object = remove, nil
	}
	return r
}

// controllersNetworks and the following are requests with a stolen token of the controller.
func controllersNetworks(t testing.TB) []attempt {
	const message = "only the finalizer contivpp.io/in-use"
	const red = "{metadata: {finalizers: [a/b]}, spec: {type: L2, namespaceSelector: {matchLabels: {tenant: red}}}}"
	return []attempt{
		{
			"open a network to all namespaces", message,
			restricts(t, red, "{metadata: {finalizers: [a/b]}, spec: {type: L2}}"),
		},
		{
			"remove a finalizer of another component", message,
			restricts(t, red, "{spec: {type: L2, namespaceSelector: {matchLabels: {tenant: red}}}}"),
		},
		{
			"give a network an owner", message,
			restricts(t, red,
				strings.Replace(red, "metadata: {",
					"metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u}], ", 1)),
		},
		{
			"label a network", message,
			restricts(t, red, strings.Replace(red, "metadata: {", "metadata: {labels: {a: b}, ", 1)),
		},
	}
}

func controllersBlocks(t testing.TB) []attempt {
	const message = "only remove the node, loans and requests"
	return []attempt{
		{"give a block to another node", message, frees(t, "pool: pods", "pool: pods, node: n1")},
		{
			"lend an address", message,
			frees(t, "pool: pods, node: n2, offered: [10.9.2.7]",
				"pool: pods, node: n2, offered: [10.9.2.7], "+lentToN1),
		},
		{"offer an address", message, frees(t, "pool: pods, node: n2", "pool: pods, node: n2, offered: [10.9.2.7]")},
		{"request an address", message, frees(t, "pool: pods, node: n2", "pool: pods, node: n2, "+requestOfN3)},
		{"change the pool", message, frees(t, "pool: pods, node: n2", "pool: six, node: n2")},
		{
			"add a finalizer", message,
			frees(t, "pool: pods", "pool: pods").with(func(r *request) { r.object = finalized(r.object, "a/b") }),
		},
	}
}

func controllersBlocksOfNodes(t testing.TB) []attempt {
	const belongs, lent = "the block belongs to node n2, which exists", "node n1 exists and has borrowed an address"
	return []attempt{
		{"delete a block of an existing node", belongs, frees(t, "pool: pods, node: n2", "")},
		{"free a block of an existing node", belongs, frees(t, "pool: pods, node: n2", "pool: pods")},
		{
			"return a loan of an existing node", lent,
			frees(t, "pool: pods, node: n9, offered: [10.9.2.7], "+lentToN1,
				"pool: pods, node: n9, offered: [10.9.2.7]"),
		},
	}
}

// holdsBack lets each request add a finalizer, with which the object would stay when its node is deleted.
func holdsBack(requests ...request) (list []attempt) {
	for _, r := range requests {
		list = append(list, attempt{
			"add a finalizer", "adds no finalizers",
			r.with(func(r *request) { r.object = finalized(r.object, "example.com/stay") }),
		})
	}
	return list
}

// Messages of policies.
const (
	noNode     = "the token names no node"
	badPrefix  = "pods have no unspecified, loopback"
	shortened  = "a prefix of pods' addresses is a /16 or longer"
	badAddress = "an address of a node is neither"
	notOwnIP   = "an address of a NodeNetwork is an InternalIP of its Node"
	blockSize  = "a block is a /20 to /30"
	blockName  = "the name of a block is derived from its network and CIDR"
	blockOwner = "a block may have only its node as owner"
	notOwned   = "may change a block of another node only to request"
)

// attacks are requests with a stolen token of n2's agent, by the policy that denies them.
func attacks(t testing.TB) map[string][]attempt {
	return map[string][]attempt{
		"weft-nodenetworks": append(foreignOrInvalidAnnouncements(t),
			holdsBack(announces(t, "default", "10.244.2.0/24"))...),
		"weft-nodenetworks-nodes": nodeAddresses(t),
		"weft-ipblocks": slices.Concat(foreignBlocks(t), invalidBlocks(t),
			holdsBack(claims(t, "10.9.2.0-26", "10.9.2.0/26", "pool: pods"),
				changes(t, "n2", "pool: pods, node: n2",
					"pool: pods, node: n2"))), "weft-ipblocks-pools": outsideOfPools(t),
		"weft-ipblocks-networks": outsideOfNetworks(t), "weft-podinterfaces": foreignPods(t),
		"weft-events":            foreignEvents(t),
		"weft-ipamclaims":        changedClaims(t),
		"weft-controller-events": controllersEvents(t), "weft-controller-networks": controllersNetworks(t),
		"weft-controller-ipblocks": controllersBlocks(t), "weft-controller-ipblocks-nodes": controllersBlocksOfNodes(t),
	}
}

// foreignOrInvalidAnnouncements write NodeNetworks of other nodes, or invalid NodeNetworks.
func foreignOrInvalidAnnouncements(t testing.TB) []attempt {
	mine := announces(t, "default", "10.244.2.0/24")
	return []attempt{
		{"without a node in the token", noNode, mine.with(func(r *request) { r.node = "" })},
		{
			"announce as another node", "may write only its own NodeNetwork",
			mine.with(func(r *request) { r.node = "n3" }),
		},
		{
			"change another node's", "may write only its own NodeNetwork",
			mine.with(func(r *request) { r.node, r.operation, r.old = "n3", update, r.object }),
		},
		{
			"write another node's status", "may write only its own NodeNetwork",
			mine.with(func(r *request) { r.node, r.operation, r.old, r.sub = "n3", update, r.object, "status" }),
		},
		{
			"delete another node's", "may write only its own NodeNetwork",
			mine.with(func(r *request) { r.node, r.operation, r.old, r.object = "n3", remove, r.object, nil }),
		},
		{"owned by another node", "a NodeNetwork may have only its node as owner", mine.with(func(r *request) {
			r.object = object(t, "nodenetworks", "n2",
				strings.ReplaceAll("{"+owned+", spec: {}}", "name: n2", "name: n3"))
		})},
		{"the metadata service", badPrefix, announces(t, "default", "169.254.169.254/32")},
		{
			"the metadata service on a custom network", badPrefix,
			announces(t, "blue", "10.5.0.16/28", "169.254.169.254/32"),
		},
		{"half of the Internet", shortened, announces(t, "default", "128.0.0.0/1")},
		{"the other half", shortened, announces(t, "default", "0.0.0.0/1")},
		{"all addresses", shortened, announces(t, "default", "0.0.0.0/0")},
		{"all IPv6 addresses", shortened, announces(t, "default", "::/0")},
		{"a Service range of the usual size", shortened, announces(t, "default", "10.96.0.0/12")},
		{"a short prefix behind a good one", shortened, announces(t, "default", "10.244.2.0/24", "10.0.0.0/15")},
		{"a short IPv6 prefix", shortened, announces(t, "default", "fd00::/47")},
		{"text", shortened, announces(t, "default", "everything")},
		{"loopback", badPrefix, announces(t, "default", "127.0.0.1/32")},
		{"IPv6 loopback", badPrefix, announces(t, "default", "::1/128")},
		{"unspecified", badPrefix, announces(t, "default", "0.0.0.0/32")},
		{"multicast", badPrefix, announces(t, "default", "239.1.0.0/16")},
		{"IPv6 multicast", badPrefix, announces(t, "default", "ff02::/64")},
		{"IPv6 link-local", badPrefix, announces(t, "default", "fe80::/64")},
		{"broadcast", badPrefix, announces(t, "default", "255.255.255.0/24")},
		{
			"by an update", badPrefix,
			announces(t, "default", "169.254.0.0/16").with(func(r *request) {
				r.operation, r.old = update, mine.object
			}),
		},
		{"a link-local tunnel endpoint", badAddress, endsAt(t, "169.254.169.254")},
		{"a loopback tunnel endpoint", badAddress, endsAt(t, "::1")},
		{"a multicast tunnel endpoint", badAddress, endsAt(t, "239.1.1.1")},
		{"an invalid tunnel endpoint", badAddress, endsAt(t, "here")},
	}
}

// nodeAddresses announce addresses that belong to nodes.
func nodeAddresses(t testing.TB) []attempt {
	mine := announces(t, "default", "10.244.2.0/24")
	return []attempt{
		{"another node's address as tunnel endpoint", notOwnIP, endsAt(t, "192.0.2.3")},
		{"another node's IPv6 address as tunnel endpoint", notOwnIP, endsAt(t, "2001:db8::3")},
		{"its ExternalIP as tunnel endpoint", notOwnIP, endsAt(t, "203.0.113.9")},
		{"the Internet as tunnel endpoint", notOwnIP, endsAt(t, "8.8.8.8")},
		{"route another node", "the prefixes have an InternalIP of node n3", announces(t, "default", "192.0.2.3/32")},
		{
			"route another node by IPv6", "the prefixes have an InternalIP of node n3",
			announces(t, "default", "2001:db8::3/128"),
		},
		{"route all nodes", "the prefixes have an InternalIP of node n", announces(t, "default", "192.0.0.0/16")},
		{
			"by an update", "the prefixes have an InternalIP of node n",
			announces(t, "default", "192.0.2.0/30").with(func(r *request) { r.operation, r.old = update, mine.object }),
		},
	}
}

// foreignBlocks write blocks of other nodes.
func foreignBlocks(t testing.TB) []attempt {
	claim := claims(t, "10.9.2.0-26", "10.9.2.0/26", "pool: pods")
	lent := "pool: pods, node: n2, offered: [10.9.2.7], borrowed: [{address: 10.9.2.7, node: n3}]"
	return []attempt{
		{"without a node in the token", noNode, claim.with(func(r *request) { r.node = "" })},
		{"claim for another node", notOwned, claim.with(func(r *request) { r.node = "n3" })},
		{"take another node's", notOwned, changes(t, "n3", "pool: pods, node: n2", "pool: pods, node: n3")},
		{
			"delete another node's", notOwned,
			claim.with(func(r *request) { r.node, r.operation, r.old, r.object = "n3", remove, r.object, nil }),
		},
		{
			"borrow an address that is not offered", notOwned,
			changes(t, "n3", "pool: pods, node: n2", "pool: pods, node: n2, borrowed: [{address: 10.9.2.7, node: n3}]"),
		},
		{"take another node's loan", notOwned, changes(t, "n1", lent, strings.ReplaceAll(lent, "n3", "n1"))},
		{
			"offer for another node", notOwned,
			changes(t, "n3", "pool: pods, node: n2", "pool: pods, node: n2, offered: [10.9.2.9]"),
		},
		{
			"give a block with a foreign owner back", blockOwner,
			changes(t, "n2", "pool: pods, node: n2", "pool: pods").with(func(r *request) {
				r.object.SetOwnerReferences([]metav1.OwnerReference{
					{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "u"},
				})
			}),
		},
		{"owned by another node", blockOwner, claim.with(func(r *request) {
			r.object = object(t, "ipblocks", "10.9.2.0-26",
				strings.ReplaceAll("{"+owned, "name: n2", "name: n3")+
					", spec: {cidr: 10.9.2.0/26, pool: pods, node: n2}}")
		})},
		{
			"borrow an address that another node requested", notOwned,
			changes(t, "n1", "pool: pods, node: n2, offered: [10.9.2.8], "+requestOfN3,
				"pool: pods, node: n2, offered: [10.9.2.8], "+requestOfN3+
					", borrowed: [{address: 10.9.2.8, node: n1}]"),
		},
		{
			"request for another node", notOwned,
			changes(t, "n1", "pool: pods, node: n2", "pool: pods, node: n2, "+requestOfN3),
		},
		{
			"remove another node's request", notOwned,
			changes(t, "n1", "pool: pods, node: n2, "+requestOfN3, "pool: pods, node: n2"),
		},
		{
			"request another block's address", "request only addresses of the block, and only for itself",
			changes(t, "n3", "pool: pods, node: n2",
				"pool: pods, node: n2, requested: [{address: 10.9.3.8, node: n3}]"),
		},
		{
			"request on behalf of another node", "request only addresses of the block, and only for itself",
			changes(t, "n2", "pool: pods, node: n2", "pool: pods, node: n2, "+requestOfN3),
		},
		{
			"take back a lent address", "addresses of the block are borrowed",
			changes(t, "n2", lent, "pool: pods, node: n2"),
		},
	}
}

// invalidBlocks create invalid blocks, or make a block invalid.
func invalidBlocks(t testing.TB) []attempt {
	return []attempt{
		{"a single address", blockSize, claims(t, "8.8.8.8-32", "8.8.8.8/32", "pool: ghost")},
		{"half of the Internet", blockSize, claims(t, "128.0.0.0-1", "128.0.0.0/1", "pool: ghost")},
		{"all addresses", blockSize, claims(t, "0.0.0.0-0", "0.0.0.0/0", "pool: ghost")},
		{"a short prefix", blockSize, claims(t, "10.0.0.0-19", "10.0.0.0/19", "pool: ghost")},
		{
			"a short IPv6 prefix", blockSize,
			claims(t, "fd00-0009-0000-0000-0000-0000-0000-0000-115", "fd00:9::/115", "pool: ghost"),
		},
		{"text", blockSize, claims(t, "everything", "everything", "pool: ghost")},
		{
			"around the metadata service", badPrefix,
			claims(t, "169.254.169.192-26", "169.254.169.192/26", "pool: ghost"),
		},
		{"loopback", badPrefix, claims(t, "127.0.0.0-26", "127.0.0.0/26", "pool: ghost")},
		{
			"multicast", badPrefix,
			claims(t, "224.0.0.0-26", "224.0.0.0/26", "network: ghost").with(func(r *request) {
				r.object.SetName("ghost.224.0.0.0-26")
			}),
		},
		{
			"IPv6 link-local", badPrefix,
			claims(t, "fe80-0000-0000-0000-0000-0000-0000-0000-122", "fe80::/122", "pool: ghost"),
		},
		{"broadcast", badPrefix, claims(t, "255.255.255.192-26", "255.255.255.192/26", "pool: ghost")},
		{"another name", blockName, claims(t, "mine", "10.9.2.0/26", "pool: pods")},
		{"the name of another block", blockName, claims(t, "10.9.3.0-26", "10.9.2.0/26", "pool: pods")},
		{"a name without its network", blockName, claims(t, "10.5.0.16-28", "10.5.0.16/28", "network: blue")},
		{"the name of another network", blockName, claims(t, "red.10.5.0.16-28", "10.5.0.16/28", "network: blue")},
		{"a short IPv6 name", blockName, claims(t, "fd00-9--100-120", "fd00:9::100/120", "pool: six")},
		{
			"another IPv6 name", blockName,
			claims(t, "fd00-0009-0000-0000-0000-0000-0000-0200-120", "fd00:9::100/120", "pool: six"),
		},
		{
			"another IPv6 length", blockName,
			claims(t, "fd00-0009-0000-0000-0000-0000-0000-0100-122", "fd00:9::100/120", "pool: six"),
		},
		{
			"of a pool and a network", "either a pool or a network",
			claims(t, "blue.10.9.2.0-26", "10.9.2.0/26", "pool: pods, network: blue"),
		},
		{"of neither", "either a pool or a network", claims(t, "10.9.2.0-26", "10.9.2.0/26", "status: x")},
		{
			"of another pool later", "the pool, network and CIDR of a block cannot be changed",
			changes(t, "n2", "pool: ghost, node: n2", "pool: pods, node: n2"),
		},
		{
			"of another pool when it is claimed", "the pool, network and CIDR of a block cannot be changed",
			changes(t, "n2", "pool: ghost", "pool: pods, node: n2"),
		},
		{
			"offer another block's addresses", "offers only its own addresses",
			changes(t, "n2", "pool: pods, node: n2", "pool: pods, node: n2, offered: [10.9.3.7]"),
		},
		{
			"lend when it is created", "none is borrowed when the block is claimed",
			claims(t, "10.9.2.0-26", "10.9.2.0/26",
				"pool: pods, offered: [10.9.2.7], borrowed: [{address: 10.9.2.7, node: n3}]"),
		},
	}
}

// outsideOfPools create blocks that are not blocks of their pool.
func outsideOfPools(t testing.TB) []attempt {
	return []attempt{
		{"outside of the pool", "not a block of pool pods", claims(t, "8.8.8.0-26", "8.8.8.0/26", "pool: pods")},
		{"of a Service range", "not a block of pool pods", claims(t, "10.96.0.0-26", "10.96.0.0/26", "pool: pods")},
		{"of another size", "not a block of pool pods", claims(t, "10.9.0.0-24", "10.9.0.0/24", "pool: pods")},
		{
			"outside of the IPv6 pool", "not a block of pool six",
			claims(t, "fd00-0096-0000-0000-0000-0000-0000-0000-120", "fd00:96::/120", "pool: six"),
		},
		{
			"of another IPv6 size", "not a block of pool six",
			claims(t, "fd00-0009-0000-0000-0000-0000-0000-0000-122", "fd00:9::/122", "pool: six"),
		},
		{"of the other family", "not a block of pool six", claims(t, "10.9.2.0-26", "10.9.2.0/26", "pool: six")},
	}
}

// outsideOfNetworks create blocks that are not blocks of their network.
func outsideOfNetworks(t testing.TB) []attempt {
	return []attempt{
		{
			"outside of the network", "not a block of network blue",
			claims(t, "blue.8.8.8.0-28", "8.8.8.0/28", "network: blue"),
		},
		{
			"of another size", "not a block of network blue",
			claims(t, "blue.10.5.0.0-26", "10.5.0.0/26", "network: blue"),
		},
		{
			"of a network without addresses", "not a block of network bridge",
			claims(t, "bridge.10.5.0.0-26", "10.5.0.0/26", "network: bridge"),
		},
	}
}

// changedClaims write other things than the addresses of an IPAMClaim that has none.
func changedClaims(t testing.TB) []attempt {
	assigns := func(node, old, changed string) request {
		return request{
			node: node, operation: update, resource: "ipamclaims", sub: "status",
			object: object(t, "ipamclaims", "db-0", changed), old: object(t, "ipamclaims", "db-0", old),
		}
	}
	const free = "{spec: {network: blue, interface: t1}}"
	const one = "{spec: {network: blue, interface: t1}, status: {ips: [10.5.0.7/24]}}"
	return []attempt{
		{"without a node in the token", noNode, assigns("", free, one)},
		{
			"other addresses of a claim", "does not change the addresses of an IPAMClaim",
			assigns("n2", one, "{spec: {network: blue, interface: t1}, status: {ips: [10.5.0.8/24]}}"),
		},
		{
			"three addresses", "has one or two addresses",
			assigns("n2", free, "{spec: {network: blue, interface: t1}, status: {ips: [10.5.0.7, 10.5.0.8, 10.5.0.9]}}"),
		},
		{
			"no address", "has one or two addresses",
			assigns("n2", free, "{spec: {network: blue, interface: t1}, status: {ips: [all]}}"),
		},
		{
			"add a finalizer", "adds no finalizers",
			assigns("n2", free,
				"{metadata: {finalizers: [a/b]}, spec: {network: blue, interface: t1}, status: {ips: [10.5.0.7]}}"),
		},
	}
}

// foreignPods write PodInterfaces of other nodes' pods.
func foreignPods(t testing.TB) []attempt {
	return []attempt{
		{
			"without a node in the token", noNode,
			request{
				operation: create,
				resource:  "podinterfaces",
				object:    object(t, "podinterfaces", "p", `{node: "", podUID: u}`),
			},
		},
		{
			"publish the interfaces of another node's pod", "only of its own pods",
			request{
				node:      "n3",
				operation: create,
				resource:  "podinterfaces",
				object:    object(t, "podinterfaces", "p", `{node: n2, podUID: u}`),
			},
		},
		{
			"add a finalizer", "adds no finalizers",
			request{node: "n2", operation: create, resource: "podinterfaces", object: object(t, "podinterfaces", "p",
				`{metadata: {finalizers: [a/b]}, node: n2, podUID: u}`)},
		},
		{
			"owned by another pod", "only their pod as owner",
			request{node: "n2", operation: create, resource: "podinterfaces", object: object(t, "podinterfaces", "p",
				`{metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: q, uid: u}]}, node: n2, podUID: u}`)},
		},
	}
}

// foreignEvents write events of other components.
func foreignEvents(t testing.TB) []attempt {
	return []attempt{
		{
			"without a node in the token", noNode,
			request{
				operation: create,
				resource:  "events",
				object:    object(t, "events", "e", `{involvedObject: {kind: Pod}}`),
			},
		},
		{
			"as another node", "only with itself as source",
			request{node: "n3", operation: create, resource: "events", object: object(t, "events", "e",
				`{metadata: {namespace: a}, source: {component: weft-agent, host: n2}, reportingComponent: weft-agent, reportingInstance: n2, involvedObject: {kind: Pod, namespace: a}}`)},
		},
		{
			"change a foreign event", "only events of its own node",
			request{node: "n2", operation: update, resource: "events", object: object(t, "events", "e",
				`{metadata: {namespace: a}, source: {component: weft-agent, host: n2}, reportingComponent: weft-agent, reportingInstance: n2, involvedObject: {kind: Pod, namespace: a}}`),
				old: object(t, "events", "e",
					`{metadata: {namespace: a}, source: {component: kubelet, host: n2}, involvedObject: {kind: Pod, namespace: a}}`)},
		},
	}
}

// advises creates an event of the controller in namespace a.
func advises(t testing.TB, source, reporting, on string) request {
	return request{
		user:      controller,
		operation: create,
		resource:  "events",
		object: object(t, "events", "e", fmt.Sprintf(
			`{metadata: {namespace: a}, source: {component: %s}, reportingComponent: %s, involvedObject: {%s, name: o}}`,
			source, reporting, on)),
	}
}

// controllersEvents are requests with a stolen token of the controller.
func controllersEvents(t testing.TB) []attempt {
	const ownName, kinds = "only with itself as source", "only on Services, NetworkPolicies and StatefulSets"
	return []attempt{
		{"from kubelet", ownName, advises(t, "kubelet", "weft-controller", "kind: Service, namespace: a")},
		{"reported by kubelet", ownName, advises(t, "weft-controller", "kubelet", "kind: Service, namespace: a")},
		{"on a pod", kinds, advises(t, "weft-controller", "weft-controller", "kind: Pod, namespace: a")},
		{
			"on a Service of another namespace", kinds,
			advises(t, "weft-controller", "weft-controller", "kind: Service, namespace: b"),
		},
	}
}
