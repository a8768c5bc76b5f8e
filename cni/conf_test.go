package cni

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/weftnet/weft/pod"
)

func TestScanRejectsDuplicateKeysAndExcessiveSize(t *testing.T) {
	tests := []struct {
		name, document, want string
	}{
		{"a key twice", `{"a":1,"b":2,"a":3}`, `key "a" is given twice`},
		{"a key twice in a nested object", `{"a":[{"x":{"b":1,"b":1}}]}`, `key "b" is given twice`},
		{"a key twice, once escaped", `{"a":1,"\u0061":2}`, `key "a" is given twice`},
		{"too deep", strings.Repeat("[", 40) + strings.Repeat("]", 40), "nested deeper than 32"},
		{"too long", `"` + strings.Repeat("a", maxConfBytes) + `"`, "more than 1048576 bytes"},
		{"not closed", `{"a":`, "unexpected"},
		{"the same key in two objects", `{"a":{"b":1},"c":{"b":1},"d":["b","b"]}`, ""},
		{"a value like a key", `{"a":"b","b":"a"}`, ""},
		{"at the depth limit", strings.Repeat("[", 32) + strings.Repeat("]", 32), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := scan([]byte(tt.document))
			if got := textOfError(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func textOfError(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestNearestKey(t *testing.T) {
	for key, want := range map[string]string{
		"Socket": "socket", "log_level": "logLevel", "deletequeue": "deleteQueue", "time-out": "timeout",
		"capability": "capabilities",
	} {
		if got := nearest(key, role{}.keys()); got != want {
			t.Errorf("for %s it is %s, want %s", key, got, want)
		}
	}
}

// Without Multus the agent reads a definition, with the same rule: TestEmptyValuesOfADefinitionAreTheSameAsMissingKeys.
func TestEmptyValuesOfAConfigurationAreTheSameAsMissingKeys(t *testing.T) {
	for _, r := range []role{{}, {ipam: true}} {
		parsed := func(member string) *conf {
			t.Helper()
			outer := member
			inner := ""
			if r.ipam {
				outer = ""
				inner = member
			}
			c, err := private.parse([]byte(`{"type":"bridge"`+outer+`,"ipam":{"type":"weft-ipam"`+inner+`}}`), r)
			if err != nil {
				t.Errorf("%s%s: %v", member, r.where(), err)
			}
			return c
		}
		want := parsed("")
		for _, key := range r.keys() {
			if key == "type" || key == "ipam" {
				continue // required by weft-ipam
			}
			for _, value := range []string{"null", `""`, "[]", "{}", "{ }"} {
				if got := parsed(fmt.Sprintf(",%q:%s", key, value)); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %s%s: %+v, want %+v", key, value, r.where(), got, want)
				}
			}
		}
	}
	for _, ipam := range []string{"null", `""`, "[]", "{}"} {
		if _, err := private.parse([]byte(`{"type":"weft-cni","ipam":`+ipam+`}`), role{}); err != nil {
			t.Errorf("ipam: %s: %v", ipam, err)
		}
	}
}

func TestDelIgnoresInvalidKeysOfTheConfiguration(t *testing.T) {
	c := private.parseForDel([]byte(`{"cniVersion":"1.0.0","name":"weft","socket":"/run/other.sock",
		"timeout":"never","logLevel":7,"mode":"x","deleteQueue":"/q","unknown":{}}`), role{})
	if c.Name != "weft" || c.Socket != "/run/other.sock" || c.DeleteQueue != "/q" {
		t.Errorf("lost a valid value: %+v", c)
	}
	if c.Mode != "primary" || c.LogLevel != "info" || time.Duration(c.Timeout) != time.Minute {
		t.Errorf("took an invalid value: %+v", c)
	}
}

// Without Multus the agent reads the definitions, so it must accept the same keys.
func TestTheAgentAcceptsTheKeysOfThePlugin(t *testing.T) {
	for _, key := range slices.Concat(ownKeys, specKeys) {
		value := map[string]string{
			"network":       `"blue"`,
			"interfaceType": `"tap"`,
			"options":       `{"mtu":1400}`,
			"args":          `{"cni":{}}`,
		}[key]
		if key == "type" || key == "ipam" { // the agent restricts their values
			continue
		}
		if _, err := pod.ParseDefinition(fmt.Sprintf(`{"type":"weft-cni",%q:%s}`, key,
			cmp.Or(value, `"x"`))); err != nil {
			t.Errorf("the agent refuses what the plugin knows: %v", err)
		}
	}
}

func FuzzConf(f *testing.F) {
	f.Add([]byte(
		`{"name":"n","mode":"delegate","network":"blue","interfaceType":"memif","options":{"mtu":1400},"deviceID":"memif-1","pciBusID":"memif-1"}`))
	f.Add([]byte(
		`{"cniVersion":"1.1.0","name":"weft","type":"weft-cni","timeout":"1s","runtimeConfig":{"ips":["1.1.1.1"]}}`))
	f.Add([]byte(
		`{"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.1.1.1/24","interface":9}],"interfaces":[null]},"cniVersion":"1.0.0"}`))
	f.Add([]byte(`{"ipam":{"type":3},"dns":[]}`))
	f.Add([]byte(`[{}]`))
	f.Add([]byte(`{"name":"x","mode":"bridge","mtu":1400,"ipam":{"type":"weft-ipam","socket":"/s","logFile":""}}`))
	f.Fuzz(func(t *testing.T, stdin []byte) {
		for _, r := range []role{{}, {ipam: true}} {
			fuzzConf(t, stdin, r)
		}
	})
}

func fuzzConf(t *testing.T, stdin []byte, r role) {
	lenient := private.parseForDel(stdin, r)
	if err := lenient.validate(); err != nil {
		t.Fatalf("a DEL would work with %v", err)
	}
	c, err := private.parse(stdin, r)
	if err != nil {
		return
	}
	if !json.Valid(stdin) || !filepath.IsAbs(c.Socket) || c.Timeout <= 0 {
		t.Fatalf("accepted %s as %+v", stdin, c)
	}
	if prev, err := c.prevResult(); err == nil && prev != nil {
		r.checkRequest(prev)
	}
}

// Some members are valid only together with others, and one is invalid.
func TestDelReadsItsConfigurationDeterministically(t *testing.T) {
	for range 100 {
		c := private.parseForDel(
			[]byte(`{"name":"weft","network":"blue","interfaceType":"veth","mode":"delegate","logLevel":"loud"}`),
			role{})
		if c.Mode != modeDelegate || c.Network != "blue" || c.InterfaceType != "veth" ||
			c.LogLevel != private.defaults().LogLevel {
			t.Fatalf("mode %q, network %q, interfaceType %q, logLevel %q", c.Mode, c.Network, c.InterfaceType,
				c.LogLevel)
		}
	}
}

func TestLimitsOfTheConfiguration(t *testing.T) {
	path := func(n int) string { return "/" + strings.Repeat("s", n-1) }
	for members, want := range map[string]string{
		`"socket":"` + path(maxSocketPath) + `"`:                    "",
		`"socket":"` + path(maxSocketPath+1) + `"`:                  "is not an absolute path of at most 107 bytes",
		`"socket":"agent.sock"`:                                     `socket "agent.sock" is not an absolute path`,
		`"timeout":"3m20s","dialTimeout":"10s"`:                     "",
		`"timeout":"3m21s"`:                                         "timeout 3m21s is not above 0",
		`"timeout":"0s"`:                                            "timeout 0s is not above 0",
		`"timeout":"soon"`:                                          `invalid duration "soon"`,
		`"dialTimeout":"11s"`:                                       "dialTimeout 11s is not above 0",
		`"dialTimeout":"-1s"`:                                       "dialTimeout -1s is not above 0",
		`"deleteQueue":"queue"`:                                     `deleteQueue "queue" is not an absolute path`,
		`"logLevel":"trace"`:                                        `invalid logLevel "trace", use one of debug, info, warn, error`,
		`"logFile":"cni.log"`:                                       `logFile "cni.log" is not an absolute path`,
		`"logFile":"/dev/null"`:                                     `logFile "/dev/null" is not a regular file`,
		`"options":{"mtu":1400}`:                                    "need mode delegate",
		`"mode":"delegate","options":{"mtu":1400}`:                  "",
		`"runtimeConfig":7`:                                         "runtimeConfig: expected an object, not a number",
		`"cni.dev/valid-attachments":{}`:                            "expected a list, not an object",
		`"ipam":{"type":"weft-ipam","pool":"p4","pools":["p6",""]}`: "",
	} {
		_, err := private.parse([]byte(`{"cniVersion":"1.1.0","name":"weft",`+members+`}`), role{})
		if got := textOfError(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", members, got, want)
		}
	}
}

func TestLimitsOfTheConfigurationOfWeftIPAM(t *testing.T) {
	for members, want := range map[string]string{
		`"pool":"p4"`:              "",
		`"pools":["p4","p6"]`:      "",
		`"pools":["p4",""]`:        "pools contains an empty name",
		`"pool":"p4","pools":[""]`: "mutually exclusive",
		`"routes":[null]`:          "routes contains null",
		`"routes":[{"dst":"x"}]`:   "invalid CIDR address",
		`"network":"blue"`:         `unknown key "network" in ipam`,
		`"cni.dev/x":1`:            "",
	} {
		_, err := private.parse([]byte(`{"cniVersion":"1.1.0","name":"weft","ipam":{"type":"weft-ipam",`+members+`}}`),
			role{ipam: true})
		if got := textOfError(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", members, got, want)
		}
	}
}

func TestIPAMPluginsOfWeftCNI(t *testing.T) {
	for members, want := range map[string]string{
		`"ipam":{"type":"host-local"}`:                                                      "",
		`"ipam":{"type":"weft-ipam"},"mode":"chained"`:                                      "",
		`"ipam":{"type":"host-local"},"mode":"chained"`:                                     "remove ipam",
		`"ipam":{"type":"weft-cni"}`:                                                        `did you mean "weft-ipam"?`,
		`"ipam":{"type":"."}`:                                                               "is a path",
		`"ipam":{"type":".."}`:                                                              "is a path",
		`"ipam":{"type":"bin\\host-local"}`:                                                 "is a path",
		`"ipam":{"type":"dhcp"}`:                                                            "needs mode delegate",
		`"ipam":{"type":"dhcp"},"mode":"delegate"`:                                          "needs mode delegate",
		`"ipam":{"type":"dhcp"},"mode":"delegate","network":"default"`:                      "needs mode delegate",
		`"ipam":{"type":"dhcp"},"mode":"delegate","network":"blue","interfaceType":"memif"`: "needs mode delegate",
		`"ipam":{"type":"dhcp"},"mode":"delegate","network":"blue"`:                         "",
		`"ipam":{"type":"dhcp"},"mode":"delegate","network":"blue","interfaceType":"veth"`:  "",
	} {
		c, err := private.parse([]byte(`{"cniVersion":"1.1.0","name":"weft",`+members+`}`), role{})
		if got := textOfError(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", members, got, want)
		}
		if err == nil &&
			((&call{
				plugin:  &plugin{},
				CmdArgs: &skel.CmdArgs{},
				conf:    c,
			}).ipamPlugin() == nil) != (c.IPAM.Type == ipamName) {
			t.Errorf("%s: the agent allocates addresses for weft-ipam only", members)
		}
	}
}

// A DEL must not execute a program that its ADD did not execute.
func TestDelExecutesNoInvalidIPAMPlugin(t *testing.T) {
	for _, members := range []string{
		`"ipam":{"type":"../../bin/sh"}`, `"ipam":{"type":"weft-cni"}`, `"ipam":{"type":"host-local"},"mode":"chained"`,
		`"ipam":7`,
	} {
		c := &call{
			plugin:  &plugin{},
			CmdArgs: &skel.CmdArgs{},
			conf:    private.parseForDel([]byte(`{"name":"weft",`+members+`}`), role{}),
		}
		if p := c.ipamPlugin(); p != nil {
			t.Errorf("%s: it executes %q", members, p.name)
		}
	}
	c := &call{
		plugin:  &plugin{role: role{ipam: true}},
		CmdArgs: &skel.CmdArgs{},
		conf:    private.parseForDel([]byte(`{"name":"weft","ipam":{"type":"weft-ipam"}}`), role{ipam: true}),
	}
	if c.ipamPlugin() != nil {
		t.Error("weft-ipam executes itself")
	}
}

func TestAConfigurationWithoutAVersionIsOfTheOldest(t *testing.T) {
	for name, parse := range map[string]func() (*conf, error){
		"strict":  func() (*conf, error) { return private.parse([]byte(`{"name":"weft"}`), role{}) },
		"for DEL": func() (*conf, error) { return private.parseForDel([]byte(`{"name":"weft"}`), role{}), nil },
	} {
		if c, err := parse(); err != nil || c.CNIVersion != "0.1.0" {
			t.Errorf("%s: version %q, %v", name, c.CNIVersion, err)
		}
	}
}
