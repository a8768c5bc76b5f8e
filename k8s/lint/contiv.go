package lint

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftnet/weft/internal/yamltext"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/pod"
)

// contivDomain ends the groups of Contiv-VPP that Weft does not have.
const contivDomain = "contiv.vpp"

// contivKinds are the kinds of Contiv-VPP that Weft does not have, with what replaces them. docs/migration.md has the
// same.
var contivKinds = map[string]string{
	"contivpp.io/ServiceFunctionChain": "connect the pods of the chain by networks, one for each hop, and delete the object (docs/migration.md)",
	"contivpp.io/CustomConfiguration": "use files in externalConfig, or weftctl configure, with Weft's own keys, and delete the object " +
		"(docs/migration.md)",
	"nodeconfig.contiv.vpp/NodeConfig": "use the agent's configuration, which is the same on all nodes, and IPPools with nodeSelector, and delete " +
		"the object (docs/migration.md)",
	"telemetry.contiv.vpp/TelemetryReport": "use weftctl status, weftctl audit and the metrics, and delete the object (docs/migration.md)",
}

// withoutEffect are annotations of pods that Weft does not act on, with what replaces them.
var withoutEffect = map[string]string{
	pod.AnnotationMicroservice:                 "there is no etcd and no ligato agent, so it has no effect: the program can read interfaces.json",
	"cni.projectcalico.org/vppInterfacesSpec":  "Calico/VPP reads it, Weft does not: set rxQueues, txQueues, ringSize and mode in " + pod.AnnotationOptions,
	"cni.projectcalico.org/vppExtraMemifPorts": "Calico/VPP reads it, Weft does not: a memif of Weft has its own address",
	"cni.projectcalico.org/vppVcl":             "Calico/VPP reads it, Weft does not, and has no equivalent",
	"userspace/configuration-data":             "userspace-cni reads it, Weft does not: the program can read interfaces.json",
	"userspace/mapped-dir":                     "userspace-cni reads it, Weft does not: the container has MEMIF_SOCKET",
}

// contivSocket is the path of the memif socket in containers of Contiv-VPP.
const contivSocket = "/run/vpp/memif.sock"

// noteForeign notes the settings of a pod for other programs, which Weft does not read.
func (t *template) noteForeign() {
	for _, name := range slices.Sorted(maps.Keys(t.annotations)) {
		if why, known := withoutEffect[name]; known {
			t.note(t.annotation(name), "annotation %s: %s", name, why)
		}
	}
	for _, at := range t.socketUsers {
		t.note(at, "the path %s was Contiv-VPP's: read MEMIF_SOCKET, or set devices.memif.mountPath: /run/vpp",
			contivSocket)
	}
}

// usersOf lists the texts in a value that contain contivSocket.
func usersOf(v any, at yamltext.Path) (users []yamltext.Path) {
	switch v := v.(type) {
	case string:
		if strings.Contains(v, contivSocket) {
			return []yamltext.Path{at}
		}
	case []any:
		for i, item := range v {
			users = append(users, usersOf(item, at.With(i))...)
		}
	case map[string]any:
		for _, key := range []string{"command", "args", "env", "value"} {
			users = append(users, usersOf(v[key], at.With(key))...)
		}
	}
	return users
}

// customResourceDefinition reports the CRDs of Contiv-VPP.
func customResourceDefinition(o *object) bool {
	group := o.text("spec", "group")
	plural := o.text("spec", "names", "plural")
	_, ours := schemas()[plural]
	namespaced := o.text("spec", "scope") != "Cluster"
	switch {
	case strings.HasSuffix(group, contivDomain), group == v1.Group && !ours:
		o.say(spec("names"), errors.New("the CRD is Contiv-VPP's, and Weft has no such kind: delete it"))
	case group == v1.Group && namespaced && plural != "podinterfaces":
		o.say(spec("scope"),
			errors.New("the CRD is Contiv-VPP's and cannot be upgraded in place: save the objects, delete it, and install Weft's "+
				"(docs/migration.md)"))
	default:
		return false
	}
	return true
}

// configMap reports the configuration of Contiv-VPP.
func configMap(o *object) bool {
	data, _, _ := unstructured.NestedMap(o.fields, "data")
	if _, has := data["contiv.conf"]; !has {
		return false
	}
	o.say(yamltext.Path{"data", "contiv.conf"},
		errors.New("contiv.conf is of Contiv-VPP, and Weft does not read it: set the keys of the agent that replace it "+
			"(docs/migration.md)"))
	return true
}
