package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

const minimal = `
pools:
  - {name: pods4, prefix: 10.1.0.0/24}
`

// configOf reads a configuration from arguments, environment and file.
func configOf(t *testing.T, file string, args, environ []string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	var c Config
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.Flags(fs)
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	return Read(fs, path, environ)
}

func TestFlagsOverrideTheEnvironmentAndTheFile(t *testing.T) {
	c, err := configOf(t, minimal+"coolDown: 10s\nmtu: 1400\nstateDir: /file\n",
		[]string{"--cool-down=1s"}, []string{"WEFT_COOL_DOWN=5s", "WEFT_MTU=1450"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Addresses.CoolDown != time.Second || c.Pods.MTU != 1450 || c.StateDir != "/file" {
		t.Errorf("got cool-down %v, MTU %d, state directory %s", c.Addresses.CoolDown, c.Pods.MTU, c.StateDir)
	}
}

func TestPoolsAreListsOfMapsOrTexts(t *testing.T) {
	for name, file := range map[string]string{
		"maps":  "pools: [{name: a, prefix: 10.1.0.0/24}, {name: b, prefix: 'fd00::/64'}]",
		"texts": "pools: [a=10.1.0.0/24, 'b=fd00::/64']",
		"marks": "# ours\n---\npools: [a=10.1.0.0/24, 'b=fd00::/64']\n---\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := configOf(t, file, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := (*poolsValue)(&c.Addresses.Pools).String(); got != "a=10.1.0.0/24,b=fd00::/64" {
				t.Errorf("got pools %s", got)
			}
		})
	}
}

func TestPodSettingsAreReadFromFileEnvironmentAndFlags(t *testing.T) {
	const gates = "[http://127.0.0.1:8080/a https://b/ready]"
	for _, tt := range []struct {
		file          string
		args, environ []string
		want          string
	}{
		{"", nil, nil, "false true 1 4 []"},
		{
			"allowIPForwarding: true\nincludeDefaultRoutes: false\npodQueues: 2\nmaxPodQueues: 8\nreadinessGates: ['http://127.0.0.1:8080/a', 'https://b/ready']",
			nil, nil, "true false 2 8 " + gates,
		},
		{"readinessGates: ['http://z/']", nil, []string{
			"WEFT_ALLOW_IP_FORWARDING=true", "WEFT_INCLUDE_DEFAULT_ROUTES=false", "WEFT_POD_QUEUES=2",
			"WEFT_MAX_POD_QUEUES=2", "WEFT_READINESS_GATES=http://127.0.0.1:8080/a,https://b/ready",
		}, "true false 2 2 [http://z/ http://127.0.0.1:8080/a https://b/ready]"},
		{
			"",
			[]string{
				"--allow-ip-forwarding", "--include-default-routes=false", "--pod-queues=3",
				"--readiness-gates=http://127.0.0.1:8080/a,https://b/ready",
			},
			nil, "true false 3 4 " + gates,
		},
	} {
		c, err := configOf(t, minimal+tt.file, tt.args, tt.environ)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.Pods.AllowIPForwarding, c.Pods.IncludeDefaultRoutes, c.Pods.Queues, c.Pods.MaxQueues,
			c.ReadinessGates); got != tt.want {
			t.Errorf("%q %v %v: got %s, want %s", tt.file, tt.args, tt.environ, got, tt.want)
		}
	}
}

func TestInvalidConfigurationIsReported(t *testing.T) {
	for _, tc := range []struct{ name, file, want string }{
		{
			"an unknown key with the nearest known one", minimal + "colDown: 3s",
			`unknown key "colDown", did you mean "coolDown"?`,
		},
		{
			"an unknown nested key", minimal + "dataplane: {sokket: /x}",
			`unknown key "dataplane.sokket", did you mean "dataplane.socket"?`,
		},
		{"an unknown key unlike any", minimal + "zzz: 1", `unknown key "zzz"`},
		{"a value of the wrong type", minimal + "mtu: big", `agent.yaml:4: mtu: expected an integer, not "big"`},
		{"a value out of range", minimal + "coolDown: 2h", "coolDown: 2h0m0s is not within 0s to 1h0m0s"},
		{"more queues than maxPodQueues", minimal + "podQueues: 5", "podQueues: 5 is not within 1 to 4"},
		{"more queues than the limit", minimal + "maxPodQueues: 17", "maxPodQueues: 17 is not within 1 to 16"},
		{"an MTU too small for IPv6", "pools: ['a=fd00::/64']\nmtu: 1000", "mtu: 1000 is not within 1280 to 9600"},
		{"an MTU too large", minimal + "mtu: 9601", "mtu: 9601 is not within 576 to 9600"},
		{"an unknown type of dataplane", minimal + "dataplane: {type: ovs}", `dataplane.type: "ovs" is not one of`},
		{"a relative path", minimal + "socket: run/agent.sock", `socket: "run/agent.sock" is not an absolute path`},
		{
			"a relative mount path", minimal + "devices: {memif: {mountPath: run/memif}}",
			`devices.memif.mountPath: "run/memif" is not an absolute path of a directory`,
		},
		{
			"a mount over the whole file system", minimal + "devices: {memif: {mountPath: /}}",
			`devices.memif.mountPath: "/" is not`,
		},
		{"no pool", "mtu: 1500", "pools: at least one is required"},
		{"a pool with host bits", "pools: [a=10.1.0.5/24]", "did you mean 10.1.0.0/24?"},
		{"pools that overlap", "pools: [a=10.1.0.0/16, b=10.1.2.0/24]", "overlap"},
		{"a second document", minimal + "---\nmtu: 1400", "more than one YAML document"},
		{"a duplicate name of a pool", "pools: [a=10.1.0.0/24, a=10.2.0.0/24]", `duplicate name "a"`},
		{"a pool that is too small", "pools: [a=10.1.0.0/31]", "too small"},
		{"a duplicate key", minimal + "mtu: 1\nmtu: 2", "already set"},
		{
			"an invalid network", minimal + "networks: [{name: blue, type: L4}]",
			`network "blue": type "L4" is neither L2 nor L3`,
		},
		{
			"an unknown key of a network", minimal + "networks: [{name: blue, typ: L2}]",
			`agent.yaml:4: networks[0].typ: unknown key; did you mean type?`,
		},
		{
			"a field of a network that only a cluster sets",
			minimal + "networks: [{name: blue, type: L2, closed: true}]", `networks[0].closed: unknown key`,
		},
		{
			"a duplicate network", minimal + "networks: [{name: blue, type: L2}, {name: blue, type: L2}]",
			`duplicate name "blue"`,
		},
		{"a pool without a prefix", "pools: [{name: a}]", "prefix is missing"},
		{"an invalid type of interface", minimal + "podInterface: memif", "podInterface"},
		{"a prefix with host bits", minimal + "ipMasqExclude: [10.0.0.1/8]", "did you mean 10.0.0.0/8?"},
		{
			"two client ranges of a family",
			minimal + "kubernetes: {serviceClientRanges: [100.64.0.0/10, 10.9.0.0/16]}",
			"kubernetes.serviceClientRanges: 100.64.0.0/10 and 10.9.0.0/16: only one range of a family is possible",
		},
		{"an invalid prefix", minimal + "ipMasqExclude: [ten]", "ipMasqExclude"},
		{"a gate with an invalid URL", minimal + "readinessGates: ['http://[::1']", "readinessGates: parse"},
		{
			"a gate without a host", minimal + "readinessGates: ['http:///ready']",
			`readinessGates: "http:///ready" is not a URL with http or https and a host`,
		},
		{
			"a gate of another scheme", minimal + "readinessGates: ['http://a/', 'tcp://a:1']",
			`"tcp://a:1" is not a URL with http or https`,
		},
		{
			"a gate with a password", minimal + "readinessGates: ['https://me:sesame@a/']",
			"https://me:xxxxx@a/ has a user",
		},
		{
			"an invalid boolean", minimal + "allowIPForwarding: perhaps",
			`allowIPForwarding: expected true or false, not "perhaps"`,
		},
		{"a misspelt key with capitals", minimal + "allowIPForward: true", `did you mean "allowIPForwarding"?`},
		{"an invalid link name", minimal + "hostLink: a/b", "hostLink"},
		{"a reserved link name", minimal + "tunnelLink: default", "not lo, all or default"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := configOf(t, tc.file, nil, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}

// ofGo matches texts that name types or functions of Go.
var ofGo = regexp.MustCompile(
	`Go (struct|value)|cannot unmarshal|map\[|interface \{|json: |yaml: |strconv\.|netip\.|time: |pod\.Network|config\.Pool`)

func TestErrorsOfTheFileSpeakYAML(t *testing.T) {
	for file, want := range map[string]string{
		minimal +
			"networks:\n- {name: a, type: L2}\n- name: b\n  subnetCIDR: 10.0.0.0/8\n": "agent.yaml:7: networks[1].subnetCIDR: unknown key; did you mean cidrs?",
		minimal +
			"networks: [{name: a, type: L2, mtu: big}]": `agent.yaml:4: networks[0].mtu: expected an integer, not the text "big"`,
		minimal +
			"networks: [{name: a, type: L2, cidrs: 10.0.0.0/8}]": `agent.yaml:4: networks[0].cidrs: expected a list, not the text "10.0.0.0/8"`,
		minimal +
			"networks: [{name: a, type: L2, cidrs: [10.0.0/8]}]": `agent.yaml:4: networks[0].cidrs[0]: expected a prefix such as 10.1.0.0/16, not "10.0.0/8"`,
		minimal +
			"networks:\n- {name: a, type: L2}\n- {name: b, type: L4}": `agent.yaml:6: networks[1]: network "b": type "L4" is neither L2 nor L3`,
		minimal +
			"networks: {a: L2}": "agent.yaml:4: networks: expected a list, not keys and values",
		minimal +
			"networks: L2": `agent.yaml:4: networks: expected a list, not the text "L2"`,
		"pools: [{name: a, cidr: 10.0.0.0/8}]":                 "agent.yaml:1: pools[0].cidr: unknown key; did you mean prefix?",
		"pools: [{name: a, prefix: 10}]":                       "agent.yaml:1: pools[0].prefix: expected a prefix such as 10.1.0.0/16, not 10",
		"pools: [{name: a, prefix: 10.0.0.0/8, blocks: true}]": "agent.yaml:1: pools[0].blocks: unknown key",
		"pools: [7]":     "agent.yaml:1: pools[0]: expected keys and values, not 7",
		"pools: [a=ten]": `agent.yaml:1: pools: pool a: "ten" is not a prefix such as 10.1.0.0/16`,
		minimal +
			"namespacePools: {shop: a}": `agent.yaml:4: namespacePools.shop: expected a list, not the text "a"`,
		minimal +
			"\ncoolDown: 10": `agent.yaml:5: coolDown: expected a duration such as 30s or 5m, not "10"`,
		minimal +
			"coolDown: soon": `agent.yaml:4: coolDown: expected a duration`,
		minimal +
			"coolDown: 2h": "agent.yaml:4: coolDown: 2h0m0s is not within 0s to 1h0m0s",
		minimal +
			"coolDown: [1]": "agent.yaml:4: coolDown: expected a duration",
		minimal +
			"podQueues: 1.5": `agent.yaml:4: podQueues: expected an integer, not "1.5"`,
		minimal +
			"mtu: {a: 1}": "agent.yaml:4: mtu: expected an integer",
		minimal +
			"ipMasqExclude: [ten]": `agent.yaml:4: ipMasqExclude: "ten" is not a prefix such as 10.0.0.0/8`,
		minimal +
			"dataplane:\n  typ: vpp": `agent.yaml:5: unknown key "dataplane.typ", did you mean "dataplane.type"?`,
		minimal +
			"mtu: 1400\nmtu: 1400": "agent.yaml:5: mtu: the key is already set in line 4",
		minimal +
			"a: [": "agent.yaml:4: invalid YAML: ",
		"- a":    "agent.yaml:1: expected keys and values, not a list",
		"[a]: b": "agent.yaml:1: invalid YAML: ",
		minimal +
			"http: {listen: nowhere}": "agent.yaml:4: http.listen: ",
		minimal +
			"---\nmtu: 1400": "agent.yaml:5: more than one YAML document",
	} {
		_, err := configOf(t, file, nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) || ofGo.MatchString(err.Error()) {
			t.Errorf("%s\ngives %v\nwant  %s", file, err, want)
		}
	}
}

func TestErrorsOfStructuredVariablesAndFlagsNameTheSource(t *testing.T) {
	for variable, want := range map[string]string{
		"WEFT_NETWORKS=[{name: a, typ: L2}]":    "WEFT_NETWORKS: networks: [0].typ: unknown key; did you mean type?",
		"WEFT_NETWORKS={":                       "WEFT_NETWORKS: networks: invalid YAML: ",
		"WEFT_NETWORKS=--- [{name: a}]":         "move the content after --- to the next line",
		"WEFT_NETWORKS=[]\n---\n[{name: a}]":    "WEFT_NETWORKS: networks: 2 documents, want one",
		"WEFT_MTU=1":                            "WEFT_MTU: mtu: 1 is not within 576 to 9600",
		"WEFT_NETWORKS=[{name: a, type: L4}]":   `WEFT_NETWORKS: networks[0]: network "a": type "L4"`,
		"WEFT_COOL_DOWN=soon":                   `WEFT_COOL_DOWN: cool-down: expected a duration such as 30s or 5m, not "soon"`,
		"WEFT_POOLS=[{name: a, prefix: [10]}]":  "WEFT_POOLS: pools: [0].prefix: expected a prefix",
		"WEFT_NAMESPACE_POOLS={shop: {a: b}}":   "WEFT_NAMESPACE_POOLS: namespace-pools: shop: expected a list",
		"WEFT_IP_MASQ_EXCLUDE=10.0.0.0/8,eight": "WEFT_IP_MASQ_EXCLUDE: ip-masq-exclude: \"eight\" is not a prefix",
	} {
		_, err := configOf(t, minimal, nil, []string{variable})
		if err == nil || !strings.Contains(err.Error(), want) || ofGo.MatchString(err.Error()) {
			t.Errorf("%s gives %v, want %s", variable, err, want)
		}
	}
}

func TestNetworksAndPoolsOfNamespacesAreRead(t *testing.T) {
	c, err := configOf(t, `
pools: [{name: a, prefix: 10.1.0.0/24}, {name: b, prefix: 10.2.0.0/24, disabled: true, namespaces: [shop]}]
networks:
  - {name: blue, type: L2, cidrs: [10.5.0.0/24, "fd05::/64"], mtu: 1400, antiSpoof: true}
  - {name: red, type: L3, cidrs: [10.5.0.0/24], namespaces: [shop], antiSpoof: false}
  - {name: green, type: L2, cidrs: [10.5.0.0/24]}
  - {name: own, type: L2}
namespacePools: {shop: [b]}
nodePools: [a]
podInterface: veth
`, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.TrimSuffix(
		fmt.Sprintln(c.Addresses.Networks, c.Addresses.NamespacePools, c.Addresses.NodePools, c.Pods.Interface,
			c.Addresses.Pools[1].Prefix),
		"\n")
	want := "[{blue L2 [10.5.0.0/24 fd05::/64] 1400 0 [] true  [] [] [] {[]  [] []} [] [] [] []  false false} {red L3 [10.5.0.0/24] 0 0 [shop] false  [] [] [] {[]  [] []} [] [] [] []  false false} {green L2 [10.5.0.0/24] 0 0 [] true  [] [] [] {[]  [] []} [] [] [] []  false false} {own L2 [] 0 0 [] false  [] [] [] {[]  [] []} [] [] [] []  false false}] map[shop:[b]] [a] veth 10.2.0.0/24"
	if got != want || !c.Addresses.Pools[1].Disabled {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAllProblemsAreReported(t *testing.T) {
	_, err := configOf(t, "mtu: 1\nlog: {level: loud, format: xml}", nil, nil)
	for _, want := range []string{"pools", "mtu", "log.level", "log.format"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing in %v", want, err)
		}
	}
}

func TestUnknownEnvironmentVariablesAreIgnored(t *testing.T) {
	if _, err := configOf(t, minimal, nil, []string{"WEFT_SOCKETS=/x", "PATH=/bin"}); err != nil {
		t.Errorf("unknown variables are not ignored: %v", err)
	}
}

func TestPrintedConfigurationIsReadBack(t *testing.T) {
	want, err := configOf(t,
		minimal+"coolDown: 7s\nlog: {level: debug}\ndataplane: {type: vpp}\ngcGrace: 3s\nnodePools: [pods4]\n"+
			"allowIPForwarding: true\nincludeDefaultRoutes: false\nreadinessGates: ['http://127.0.0.1:8080/a', 'https://b/']\n"+
			"ipMasq: false\nipMasqExclude: [192.0.2.0/24, 'fd00::/8']\n"+
			"networks: [{name: blue, type: L2, cidrs: [10.5.0.0/24]}]\nnamespacePools: {shop: [pods4]}", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := configOf(t, want.String(), nil, nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, want)
	}
	if got.String() != want.String() {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestRuntimeSocketIsAPathAutoOrNone(t *testing.T) {
	for socket, valid := range map[string]bool{
		Auto:          true,
		NoRuntime:     true,
		"/run/x.sock": true,
		"x.sock":      false,
		"":            false,
	} {
		if err := validateRuntime(socket); (err == nil) != valid {
			t.Errorf("%q: %v", socket, err)
		}
	}
}

func TestInvalidHTTPAddressIsRejected(t *testing.T) {
	for address, invalid := range map[string]bool{
		"": false, "127.0.0.1:9465": false, "[::1]:0": false, ":9465": false, "node:80": false,
		"127.0.0.1": true, "127.0.0.1:http": true, "127.0.0.1:70000": true, "::1:9465": true,
	} {
		err := (&HTTP{Listen: address}).validate()
		if (err != nil) != invalid || err != nil && !strings.Contains(err.Error(), "http.listen") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
