package e2e_test

import "slices"

// policyCases is the truth table of the API, in the manner of Kubernetes' end-to-end tests of NetworkPolicy. Each case
// states its expectation by itself, so that it does not depend on the code under test.
func policyCases() []policyCase {
	return slices.Concat(isolationCases(), ingressPeerCases(), egressPeerCases(), portCases(), portsOfPeersCases(),
		addressCases())
}

func permitsAll(contact) bool { return true }

func permitsNone(contact) bool { return false }

// ingressOfA returns the expectation of policies of x/a that permit some ingress.
func ingressOfA(permitted func(c contact) bool) func(contact) bool {
	return func(c contact) bool { return !c.to.is("x/a") || permitted(c) }
}

// egressOfA returns the expectation of policies of x/a that permit some egress.
func egressOfA(permitted func(c contact) bool) func(contact) bool {
	return func(c contact) bool { return !c.from.is("x/a") || permitted(c) }
}

func isolationCases() []policyCase {
	return []policyCase{
		{"no policy", nil, permitsAll},
		{
			"ingress of a namespace is denied", []tablePolicy{{"x", `{podSelector: {}, policyTypes: [Ingress]}`}},
			func(c contact) bool { return c.to.ns != "x" },
		},
		{
			"egress of a namespace is denied", []tablePolicy{{"x", `{podSelector: {}, policyTypes: [Egress]}`}},
			func(c contact) bool { return c.from.ns != "x" },
		},
		{
			"both directions of a namespace are denied",
			[]tablePolicy{{"x", `{podSelector: {}, policyTypes: [Ingress, Egress]}`}},
			func(c contact) bool { return c.from.ns != "x" && c.to.ns != "x" },
		},
		{
			"a policy without types isolates ingress", []tablePolicy{{"x", `{podSelector: {matchLabels: {pod: a}}}`}},
			ingressOfA(permitsNone),
		},
		{
			"egress rules without types isolate both directions",
			[]tablePolicy{{"x", `{podSelector: {matchLabels: {pod: a}}, egress: [{to: [{podSelector: {}}]}]}`}},
			func(c contact) bool { return !c.to.is("x/a") && (!c.from.is("x/a") || c.to.ns == "x") },
		},
		{
			"pods are selected by an expression",
			[]tablePolicy{{"x", `{podSelector: {matchExpressions: [{key: pod, operator: NotIn, values: [a]}]}}`}},
			func(c contact) bool { return !c.to.is("x/b") && !c.to.is("x/c") },
		},
		{"a policy that selects no pod", []tablePolicy{{"x", `{podSelector: {matchLabels: {pod: d}}}`}}, permitsAll},
		{
			"an empty rule permits everything",
			[]tablePolicy{{"x", `{podSelector: {}, ingress: [{}], egress: [{}], policyTypes: [Ingress, Egress]}`}},
			permitsAll,
		},
	}
}

func ingressPeerCases() []policyCase {
	return []policyCase{
		{
			"ingress from a pod of the namespace",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]}`,
				},
			},
			ingressOfA(func(c contact) bool { return c.from.is("x/b") }),
		},
		{
			"ingress from a namespace",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}}]}]}`,
				},
			},
			ingressOfA(func(c contact) bool { return c.from.ns == "y" }),
		},
		{
			"ingress from a namespace by its name",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: e2e-policy-z}}}]}]}`,
				},
			},
			ingressOfA(func(c contact) bool { return c.from.ns == "z" }),
		},
		{
			"ingress from namespaces by an expression",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: ns, operator: In, values: ["y", z]}]}}]}]}`,
				},
			},
			ingressOfA(func(c contact) bool { return c.from.ns != "x" }),
		},
		{
			"ingress from all namespaces",
			[]tablePolicy{{"x", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`}},
			permitsAll,
		},
		{
			"ingress from pods of the own namespace only",
			[]tablePolicy{{"x", `{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`}},
			func(c contact) bool { return c.to.ns != "x" || c.from.ns == "x" },
		},
		{
			"a peer with both selectors selects pods of namespaces",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}, podSelector: {matchLabels: {pod: b}}}]}]}`,
				},
			},
			ingressOfA(func(c contact) bool { return c.from.is("y/b") }),
		},
		{
			"two peers add up",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}}, {podSelector: {matchLabels: {pod: b}}}]}]}`,
				},
			},
			ingressOfA(func(c contact) bool { return c.from.ns == "y" || c.from.is("x/b") }),
		},
		{
			"a peer that matches no pod",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: d}}}]}]}`,
				},
			},
			ingressOfA(permitsNone),
		},
	}
}

func egressPeerCases() []policyCase {
	return []policyCase{
		{
			"egress to a namespace",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {ns: "y"}}}]}]}`,
				},
			},
			egressOfA(func(c contact) bool { return c.to.ns == "y" }),
		},
		{
			"egress to pods of namespaces",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}, podSelector: {matchLabels: {pod: c}}}]}]}`,
				},
			},
			egressOfA(func(c contact) bool { return c.to.name == "c" }),
		},
		{
			"the policies of both ends must permit",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {ns: "y"}}}]}]}`,
				},
				{
					"y",
					`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: z}}}]}]}`,
				},
			},
			func(c contact) bool {
				return (c.from.ns != "x" || c.to.ns == "y") && (!c.to.is("y/a") || c.from.ns == "z")
			},
		},
	}
}

func portCases() []policyCase {
	return []policyCase{
		{
			"a port without protocol is one of TCP",
			[]tablePolicy{{"x", `{podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{port: 80}]}]}`}},
			ingressOfA(func(c contact) bool { return c.at("tcp/80") }),
		},
		{
			"a port of UDP",
			[]tablePolicy{
				{"x", `{podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{protocol: UDP, port: 81}]}]}`},
			},
			ingressOfA(func(c contact) bool { return c.at("udp/81") }),
		},
		{
			"a port of SCTP",
			[]tablePolicy{
				{"x", `{podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{protocol: SCTP, port: 80}]}]}`},
			},
			ingressOfA(func(c contact) bool { return c.at("sctp/80") }),
		},
		{
			"a protocol without port",
			[]tablePolicy{{"x", `{podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{protocol: UDP}]}]}`}},
			ingressOfA(func(c contact) bool { return c.protocol == "udp" }),
		},
		{
			"a range of ports",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{port: 81, endPort: 90}, {protocol: SCTP, port: 1, endPort: 80}]}]}`,
				},
			},
			ingressOfA(func(c contact) bool { return c.at("tcp/81") || c.at("sctp/80") }),
		},
		{
			"named ports of ingress",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {}, ingress: [{ports: [{port: serve-81-tcp}, {protocol: UDP, port: serve-80-udp}]}]}`,
				},
			},
			func(c contact) bool { return c.to.ns != "x" || c.at("tcp/81") || c.at("udp/80") },
		},
		{
			"a named port of another protocol",
			[]tablePolicy{{"x", `{podSelector: {}, ingress: [{ports: [{protocol: UDP, port: serve-80-tcp}]}]}`}},
			func(c contact) bool { return c.to.ns != "x" },
		},
	}
}

func portsOfPeersCases() []policyCase {
	return []policyCase{
		{
			"named ports of egress are those of the peers",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}}], ports: [{protocol: SCTP, port: serve-81-sctp}]}]}`,
				},
			},
			egressOfA(func(c contact) bool { return c.at("sctp/81") }),
		},
		{
			"egress to a port",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{ports: [{port: 80}, {protocol: UDP, port: 80}]}]}`,
				},
			},
			egressOfA(func(c contact) bool { return c.at("tcp/80") || c.at("udp/80") }),
		},
		{
			"peers and ports of a rule belong together",
			[]tablePolicy{{"x", `{podSelector: {matchLabels: {pod: a}}, ingress: [
				{from: [{namespaceSelector: {matchLabels: {ns: "y"}}}], ports: [{port: 80}]},
				{from: [{namespaceSelector: {matchLabels: {ns: z}}}], ports: [{port: 81}]}]}`}},
			ingressOfA(func(c contact) bool {
				return c.from.ns == "y" && c.at("tcp/80") || c.from.ns == "z" && c.at("tcp/81")
			}),
		},
		{
			"two policies add up",
			[]tablePolicy{
				{"x", `{podSelector: {}, policyTypes: [Ingress]}`},
				{"x", `{podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{port: 80}]}]}`},
				{"x", `{podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{port: 81}]}]}`},
			},
			func(c contact) bool { return c.to.ns != "x" || c.to.is("x/a") && c.protocol == "tcp" },
		},
	}
}

func addressCases() []policyCase {
	return []policyCase{
		{
			"ingress from an IPv4 address",
			[]tablePolicy{
				{"x", `{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{ipBlock: {cidr: IPV4(y/b)}}]}]}`},
			},
			ingressOfA(func(c contact) bool { return c.from.is("y/b") && !c.ipv6 }),
		},
		{
			"ingress from all addresses with exceptions",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [IPV4(y/b), IPV4(z/c)]}}, {ipBlock: {cidr: "::/0", except: ["IPV6(x/b)"]}}]}]}`,
				},
			},
			ingressOfA(func(c contact) bool {
				if c.ipv6 {
					return !c.from.is("x/b")
				}
				return !c.from.is("y/b") && !c.from.is("z/c")
			}),
		},
		{
			"an exception holds for its own block only",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [IPV4(y/b)]}}, {ipBlock: {cidr: IPV4(y/b)}}]}]}`,
				},
			},
			ingressOfA(func(c contact) bool { return !c.ipv6 }),
		},
		{
			"egress to an IPv6 address and a port",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: "IPV6(z/a)"}}], ports: [{port: 80}]}]}`,
				},
			},
			egressOfA(func(c contact) bool { return c.to.is("z/a") && c.ipv6 && c.at("tcp/80") }),
		},
		{
			"egress to all addresses with an exception",
			[]tablePolicy{
				{
					"x",
					`{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [IPV4(x/b)]}}]}]}`,
				},
			},
			egressOfA(func(c contact) bool { return !c.ipv6 && !c.to.is("x/b") }),
		},
	}
}
