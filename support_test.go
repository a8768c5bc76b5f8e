package weft_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/pod"
)

// The versions and limits in docs/support.md are those of the tests and of the code.
func TestSupportMatrixHasTheVersionsAndLimitsOfTheCode(t *testing.T) {
	page, err := os.ReadFile("docs/support.md")
	if err != nil {
		t.Fatal(err)
	}
	for row, want := range map[string]string{
		"Kubernetes": minor(t, "test/e2e/pins/kubernetes/go.mod", "k8s.io/kubernetes") + ",",
		"container runtime": "containerd " +
			minor(t, "test/e2e/pins/containerd/go.mod", "github.com/containerd/containerd/v2"),
		"Multus":                      version(t, "test/chain/go.mod", "gopkg.in/k8snetworkplumbingwg/multus-cni.v4"),
		"interfaces of a pod besides": fmt.Sprintf("| %d |", pod.MaxCustomInterfaces),
		"memif devices of a node":     fmt.Sprintf("at most %d |", devicemanager.MostDevices),
		"MTU": fmt.Sprintf("%d to %d; %d with IPv6", pod.MinMTU(false), pod.MaxMTU,
			pod.MinMTU(true)),
		"veths on VPP, for each of its": fmt.Sprintf("| %d |", vpp.MaxVethsPerThread),
	} {
		line := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(row) + `.*$`).FindString(string(page))
		if !strings.Contains(line, want) {
			t.Errorf("docs/support.md: the row %q is %q, expected %q in it", row, line, want)
		}
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range regexp.MustCompile("`make ([a-z0-9-]+)").FindAllStringSubmatch(string(page), -1) {
		if !regexp.MustCompile(`(?m)^` + target[1] + `:`).Match(makefile) {
			t.Errorf("docs/support.md names make %s, which does not exist", target[1])
		}
	}
}

// version returns the version of a module, without the v.
func version(t *testing.T, file, module string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(module) + ` v([0-9.]+)`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s does not require %s", file, module)
	}
	return string(found[1])
}

// minor returns the version of a module without its patch.
func minor(t *testing.T, file, module string) string {
	t.Helper()
	all := version(t, file, module)
	return all[:strings.LastIndexByte(all, '.')]
}
