package secrets_test

import (
	"strings"
)

// These are kept in the agent's state, which is root's alone, and not shown.
const (
	unknownAnnotation = "an annotation of ours that is unknown"
	secretFile        = "the content of a file"
)

// tolerated are places where weft-cni gets data that it does not use; the call succeeds.
var tolerated = map[string]func(in *input, marker string){
	"an annotation of another program":      func(in *input, m string) { in.annotations["kubectl.kubernetes.io/last-applied-configuration"] = m },
	unknownAnnotation:                       func(in *input, m string) { in.annotations["contivpp.io/token"] = m },
	"an annotation of NPWG that is unknown": func(in *input, m string) { in.annotations["k8s.v1.cni.cncf.io/token"] = m },
	"CNI_ARGS that are unknown":             func(in *input, m string) { in.args = append(in.args, "TOKEN="+m) },
	"the infra container of CNI_ARGS":       func(in *input, m string) { in.args = append(in.args, "K8S_POD_INFRA_CONTAINER_ID="+m) },
	"a variable of the environment":         func(in *input, m string) { in.environ = append(in.environ, "REGISTRY_PASSWORD="+m) },
	"a variable that looks like Weft's":     func(in *input, m string) { in.environ = append(in.environ, "WEFT_TOKEN="+m) },
	"the args of a configuration": func(in *input, m string) {
		in.conf["args"] = map[string]any{"token": m, "cni": map[string]any{"labels": m}}
	},
	"a capability that is unknown": func(in *input, m string) { in.runtime["token"] = m },
	"a capability of others":       func(in *input, m string) { in.runtime["example.org/other"] = map[string]any{"servers": []string{m}} },
	"a key of the specification":   func(in *input, m string) { in.conf["cni.dev/token"] = m },
	"the keys of an IPAM plugin":   func(in *input, m string) { in.conf["ipam"] = map[string]any{"type": "weft-ipam", "token": m} },
}

// refused are places in a call that fails because of what comes there; the key is named and its value is not.
var refused = map[string]func(in *input, marker string){
	"a key that is unknown":               func(in *input, m string) { in.conf["tokne"] = m },
	"CNI_ARGS that are not to be ignored": func(in *input, m string) { in.args = []string{"TOKEN=" + m} },
	"a pair of CNI_ARGS with two signs":   func(in *input, m string) { in.args = []string{"IgnoreUnknown=1", "TOKEN==" + m} },
	"a pair of CNI_ARGS with a quote":     func(in *input, m string) { in.args = []string{`TOKEN="` + m} },
	"an option that is unknown": func(in *input, m string) {
		in.annotations["contivpp.io/custom-if"] = "x1/tap"
		in.annotations["contivpp.io/custom-if-options"] = `{"x1":{"password":"` + m + `"}}`
	},
	"options that are no JSON": func(in *input, m string) {
		in.annotations["contivpp.io/custom-if"] = "x1/tap"
		in.annotations["contivpp.io/custom-if-options"] = `{"x1":{"mtu":1400,"password":"` + m + `}`
	},
	"a key with a value of another type": func(in *input, m string) { in.conf["runtimeConfig"] = m },
	"a key that is given twice": func(in *input, m string) {
		in.raw = `{"cniVersion":"1.1.0","name":"weft","args":"` + m + `","args":"` + m + `"}`
	},
	"stdin that is no JSON":        func(in *input, m string) { in.raw = `{"cniVersion":"1.1.0","name":"weft","args":"` + m },
	"stdin that is something else": func(in *input, m string) { in.raw = m },
}

// remembered are places in what the runtime remembers of ADD, for CHECK and DEL.
var remembered = map[string]func(prev map[string]any, marker string){
	"an unknown key of prevResult": func(prev map[string]any, m string) { prev["token"] = m },
	"an interface of others": func(prev map[string]any, m string) {
		prev["interfaces"] = append(prev["interfaces"].([]any), map[string]any{"name": "cali1", "token": m})
	},
}

// external are files of values for the machine, each with something that does not belong there, or is wrong beside it.
var external = map[string]string{
	"a field that is unknown":    `vpp.route/weft:pods/ip4/192.0.2.0/25: {vrf: weft:pods/ip4, prefix: 192.0.2.0/25, token: MARKER, paths: [{type: unreachable}]}`,
	"a kind that is unknown":     `vpp.token/x: {token: "MARKER"}`,
	"a value beside a wrong one": `vpp.interface/x: {token: "MARKER", mtu: wide}`,
	"a value of another type":    `vpp.interface/y: {mtu: "MARKER"}`,
	"a memif that waits for its socket": `vpp.interface/m: {type: memif, mtu: 1500, memif: {socket: nowhere, id: 1, mode: ethernet, ringSize: 1024,` +
		` bufferSize: 2048, rxQueues: 1, txQueues: 1, secret: MARKER}}`,
	"a memif that is wrong": `vpp.interface/n: {type: memif, mtu: 1500, memif: {socket: nowhere, id: 1, mode: dance, ringSize: 3, secret: MARKER}}`,
	secretFile:              `linux.file/DIRECTORY/secret: {type: file, mode: 384, secret: MARKER}`,
	"a file that is wrong":  `linux.file/x: {path: x, secret: MARKER}`,
	"no key":                `token: "MARKER"`,
	"no YAML":               "a: [\n\"MARKER\"",
	"text":                  "MARKER",
}

// waiting is an object that waits for another, so that there is something to explain.
const (
	waiting     = "vpp.route/weft:pods/ip4/192.0.2.128/25"
	waitingFile = waiting + ": {vrf: weft:pods/ip4, prefix: 192.0.2.128/25, paths: [{interface: nowhere}]}"
)

// environment are variables of the agent, the dataplane and weftctl.
var environment = map[string]string{
	"a variable of the agent":             "REGISTRY_TOKEN",
	"a variable of the agent like Weft's": "WEFT_PASSPHRASE",
}

// inFile is what an external file of that content says, with the marker in its place, of files in that directory.
func inFile(content, marker, dir string) string {
	return strings.NewReplacer("MARKER", marker, "DIRECTORY", dir).Replace(content)
}
