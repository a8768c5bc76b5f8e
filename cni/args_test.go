package cni

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
)

func TestParseArgs(t *testing.T) {
	const pod = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0.x"
	tests := []struct{ name, args, want string }{
		{"none, for a container without Kubernetes", "", ""},
		{"a pod", pod, ""},
		{"a pod with a UID", pod + ";K8S_POD_UID=0b1c", ""},
		{"an unknown key with IgnoreUnknown", pod + ";IgnoreUnknown=1;A=b", ""},
		{"an unknown key without IgnoreUnknown", pod + ";A=b", "unknown args"},
		{"two equals signs", pod + ";IP=a=b", "invalid pair"},
		{"no equals sign", pod + ";IP", "invalid pair"},
		{"a separator at the end", pod + ";", "invalid pair"},
		{"a name in upper case", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=Cart", "K8S_POD_NAME"},
		{"a namespace with a dot", "K8S_POD_NAMESPACE=sh.op;K8S_POD_NAME=cart", "K8S_POD_NAMESPACE"},
		{"a name too long", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + strings.Repeat("a", 254), "K8S_POD_NAME"},
		{"a UID that is a path", pod + ";K8S_POD_UID=../x", "K8S_POD_UID"},
		{"a namespace alone", "K8S_POD_NAMESPACE=shop", "required together"},
		{"an invalid boolean", "IgnoreUnknown=perhaps", "IgnoreUnknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseArgs(tt.args)
			if got := textOfError(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestErrorsOfArgsContainNoValues(t *testing.T) {
	for _, args := range []string{
		"TOKEN=hush", "A=b;TOKEN=hush", `TOKEN="hush`, "TOKEN==hush", "TOKEN=hush=", "TOKEN=\x01hush",
	} {
		if _, err := parseArgs(args); err == nil || !strings.Contains(err.Error(), "TOKEN") ||
			strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func FuzzArgs(f *testing.F) {
	f.Add("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_UID=0b1c", "eth0", "/run/netns/a")
	f.Add("CommonArgs=1;=;;", "a b", "x")
	f.Fuzz(func(t *testing.T, text, ifName, netns string) {
		c := &call{
			plugin:  &plugin{},
			CmdArgs: &skel.CmdArgs{ContainerID: "c1", IfName: ifName, Netns: netns},
			conf:    private.defaults(),
		}
		if c.validateEnvironment() == nil && (strings.ContainsAny(ifName, " \t\n%") || !strings.HasPrefix(netns, "/")) {
			t.Errorf("accepted %q in %q", ifName, netns)
		}
		args, err := parseArgs(text)
		if err != nil {
			return
		}
		for _, part := range []string{args.pod().GetNamespace(), args.pod().GetName(), args.pod().GetUid()} {
			if len(part) > maxSubdomain || strings.ContainsAny(part, "/\\ ;\n\x00_") || strings.Contains(part, "..") {
				t.Errorf("accepted %q of %q", part, text)
			}
		}
	})
}
