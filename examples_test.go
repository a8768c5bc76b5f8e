package weft_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/weftnet/weft/ctl"
	"github.com/weftnet/weft/k8s/api/npwg"
	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// referencePlugins are the programs of github.com/containernetworking/plugins.
var referencePlugins = []string{
	"bandwidth", "bridge", "dhcp", "dummy", "firewall", "host-device", "host-local", "ipvlan", "loopback", "macvlan",
	"portmap", "ptp", "sbr", "static",
	"tap", "tuning", "vlan", "vrf",
}

// A runtime that searches bin before the directory of the CNI plugins would execute an example instead of a plugin of
// that name.
func TestNoExampleHasTheNameOfACNIPlugin(t *testing.T) {
	examples, err := os.ReadDir("memif/examples")
	if err != nil || len(examples) == 0 {
		t.Fatal(examples, err)
	}
	for _, e := range examples {
		if slices.Contains(referencePlugins, e.Name()) {
			t.Errorf("memif/examples/%s has the name of a CNI plugin", e.Name())
		}
	}
}

// promise is a line about the traffic of an example, which test/e2e checks on a cluster.
var promise = regexp.MustCompile(`(?m)^# check: (?:(?:no )?ping (?:\S+ of )?(\S+) from (\S+)|\S+ of (\S+) has \S+)$`)

// examples/README.md explains the lines. test/e2e applies the files.
func TestExamplesAreValidAndPromiseTraffic(t *testing.T) {
	files, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(files) < 9 {
		t.Fatal(files, err)
	}
	table, err := os.ReadFile("examples/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		manifest, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range checkManifest(manifest) {
			t.Errorf("%s: %v", file, err)
		}
		if name := filepath.Base(file); !strings.Contains(string(table), fmt.Sprintf("\n| [%s](%s) |", name, name)) {
			t.Errorf("examples/README.md does not list %s", name)
		}
		promises := promise.FindAllStringSubmatch(string(manifest), -1)
		if n := strings.Count(string(manifest), "# check"); n == 0 || n != len(promises) {
			t.Errorf("%s has %d lines \"# check\", %d of them valid", file, n, len(promises))
		}
		for _, p := range promises {
			for _, pod := range p[1:] {
				label, isLabel := strings.CutPrefix(pod, "app=")
				if named := strings.Contains(string(manifest), "\n  name: "+pod+"\n") ||
					strings.Contains(string(manifest), "metadata: {name: "+pod+"}"); pod != "" &&
					!named && !(isLabel && strings.Contains(string(manifest), "labels: {app: "+label+"}")) &&
					!isAddress(pod) {
					t.Errorf("%s: %s: there is no pod %s", file, p[0], pod)
				}
			}
		}
	}
}

func isAddress(text string) bool {
	return regexp.MustCompile(`^[0-9a-f]*[.:][0-9a-f.:]+$`).MatchString(text)
}

// kinds decodes objects of Kubernetes and Weft, and refuses unknown and repeated fields.
var kinds = func() runtime.Decoder {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(v1.AddToScheme(s))
	utilruntime.Must(npwg.AddToScheme(s))
	utilruntime.Must(npwg.AddClaimsToScheme(s))
	return serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer()
}()

// checkManifest decodes each object of a manifest, and has weftctl lint check all of it.
func checkManifest(manifest []byte) (errs []error) {
	for document := range bytes.SplitSeq(manifest, []byte("\n---\n")) {
		if _, _, err := kinds.Decode(document, nil, nil); err != nil {
			errs = append(errs, err)
		}
	}
	var out, complaints bytes.Buffer
	if code := ctl.Main(context.Background(), ctl.Env{In: bytes.NewReader(manifest), Out: &out, Err: &complaints},
		[]string{"lint", "-"}); code != 0 {
		errs = append(errs, fmt.Errorf("weftctl lint: %s%s", out.String(), complaints.String()))
	}
	return errs
}
