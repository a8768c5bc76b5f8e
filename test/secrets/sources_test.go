package secrets_test

import (
	"strings"
)

// These are kept in the agent's state, which only root can read, and not shown.
const (
	unknownAnnotation = "an unknown annotation of Weft"
	secretFile        = "the content of a file"
)

// tolerated are places where weft-cni gets data that it does not use; the call succeeds.
var tolerated = map[string]func(in *input, marker string){
	"an annotation of another program": func(in *input, m string) {
		in.annotations["kubectl.kubernetes.io/last-applied-configuration"] = m
	},
	unknownAnnotation:               func(in *input, m string) { in.annotations["contivpp.io/token"] = m },
	"an unknown annotation of NPWG": func(in *input, m string) { in.annotations["k8s.v1.cni.cncf.io/token"] = m },
	"unknown CNI_ARGS":              func(in *input, m string) { in.args = append(in.args, "TOKEN="+m) },
	"the infra container of CNI_ARGS": func(in *input, m string) {
		in.args = append(in.args, "K8S_POD_INFRA_CONTAINER_ID="+m)
	},
	"a variable of the environment": func(in *input, m string) {
		in.environ = append(in.environ, "REGISTRY_PASSWORD="+m)
	},
	"a variable that looks like Weft's": func(in *input, m string) { in.environ = append(in.environ, "WEFT_TOKEN="+m) },
	"the args of a configuration": func(in *input, m string) {
		in.conf["args"] = map[string]any{"token": m, "cni": map[string]any{"labels": m}}
	},
	"an unknown capability": func(in *input, m string) { in.runtime["token"] = m },
	"a capability of another plugin": func(in *input, m string) {
		in.runtime["example.org/other"] = map[string]any{"servers": []string{m}}
	},
	"a key of the specification": func(in *input, m string) { in.conf["cni.dev/token"] = m },
	"the keys of an IPAM plugin": func(in *input, m string) {
		in.conf["ipam"] = map[string]any{"type": "weft-ipam", "token": m}
	},
}

// refused are places where invalid data makes a call fail; the error has the key and not the value.
var refused = map[string]func(in *input, marker string){
	"an unknown key":                         func(in *input, m string) { in.conf["tokne"] = m },
	"unknown CNI_ARGS without IgnoreUnknown": func(in *input, m string) { in.args = []string{"TOKEN=" + m} },
	"a pair of CNI_ARGS with two signs": func(in *input, m string) {
		in.args = []string{"IgnoreUnknown=1", "TOKEN==" + m}
	},
	"a pair of CNI_ARGS with a quote": func(in *input, m string) { in.args = []string{`TOKEN="` + m} },
	"an unknown option": func(in *input, m string) {
		in.annotations["contivpp.io/custom-if"] = "x1/tap"
		in.annotations["contivpp.io/custom-if-options"] = `{"x1":{"password":"` + m + `"}}`
	},
	"options that are not JSON": func(in *input, m string) {
		in.annotations["contivpp.io/custom-if"] = "x1/tap"
		in.annotations["contivpp.io/custom-if-options"] = `{"x1":{"mtu":1400,"password":"` + m + `}`
	},
	"a key with a value of another type": func(in *input, m string) { in.conf["runtimeConfig"] = m },
	"a duplicate key": func(in *input, m string) {
		in.raw = `{"cniVersion":"1.1.0","name":"weft","args":"` + m + `","args":"` + m + `"}`
	},
	"stdin that is truncated JSON": func(in *input, m string) {
		in.raw = `{"cniVersion":"1.1.0","name":"weft","args":"` + m
	},
	"stdin that is not JSON": func(in *input, m string) { in.raw = m },
}

// remembered are places in the runtime's cached result of ADD, for CHECK and DEL.
var remembered = map[string]func(prev map[string]any, marker string){
	"an unknown key of prevResult": func(prev map[string]any, m string) { prev["token"] = m },
	"an interface of another plugin": func(prev map[string]any, m string) {
		prev["interfaces"] = append(prev["interfaces"].([]any), map[string]any{"name": "cali1", "token": m})
	},
}

// external are files of external configuration with an unknown or invalid part.
var external = map[string]string{
	"an unknown field":              `vpp.route/weft:pods/ip4/192.0.2.0/25: {vrf: weft:pods/ip4, prefix: 192.0.2.0/25, token: MARKER, paths: [{type: unreachable}]}`,
	"an unknown kind":               `vpp.token/x: {token: "MARKER"}`,
	"a value beside an invalid one": `vpp.interface/x: {token: "MARKER", mtu: wide}`,
	"a value of another type":       `vpp.interface/y: {mtu: "MARKER"}`,
	"a memif that waits for its socket": `vpp.interface/m: {type: memif, mtu: 1500, memif: {socket: nowhere, id: 1, mode: ethernet, ringSize: 1024,` +
		` bufferSize: 2048, rxQueues: 1, txQueues: 1, secret: MARKER}}`,
	"an invalid memif": `vpp.interface/n: {type: memif, mtu: 1500, memif: {socket: nowhere, id: 1, mode: dance, ringSize: 3, secret: MARKER}}`,
	secretFile:         `linux.file/DIRECTORY/secret: {type: file, mode: 384, secret: MARKER}`,
	"an invalid file":  `linux.file/x: {path: x, secret: MARKER}`,
	"no key":           `token: "MARKER"`,
	"no YAML":          "a: [\n\"MARKER\"",
	"text":             "MARKER",
}

// waiting is an object that waits for another, so that weftctl explain has something to show.
const (
	waiting     = "vpp.route/weft:pods/ip4/192.0.2.128/25"
	waitingFile = waiting + ": {vrf: weft:pods/ip4, prefix: 192.0.2.128/25, paths: [{interface: nowhere}]}"
)

// environment are variables of the agent, the dataplane and weftctl.
var environment = map[string]string{
	"a variable of the agent":                        "REGISTRY_TOKEN",
	"a variable of the agent that looks like Weft's": "WEFT_PASSPHRASE",
}

// inFile returns an external file with the content, the marker, and the directory.
func inFile(content, marker, dir string) string {
	return strings.NewReplacer("MARKER", marker, "DIRECTORY", dir).Replace(content)
}
