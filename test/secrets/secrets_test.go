package secrets_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/must"
)

// TestNoSecretLeaves runs all functions of the real programs, with a secret in every input.
func TestNoSecretLeaves(t *testing.T) {
	netnstest.RequireTap(t)
	s := newScene(t)
	s.leaveFiles()
	s.start()
	s.allocate()

	s.refuse()
	in := s.planted()
	in.annotations["contivpp.io/custom-if"] = wanted + "/nowhere"
	if _, ok := s.call("ADD", in); ok {
		t.Error("ADD succeeds with an unknown network")
	}
	in.annotations["contivpp.io/custom-if"] = wanted
	result := s.succeeds("ADD", in)
	s.succeeds("ADD", in)
	s.succeeds("STATUS", in)
	s.configure()
	s.weftctl("why", s.objectOfPod("eth0"))
	s.weftctl("why", s.objectOfPod("m0"))
	s.weftctl("why", "linux.file/"+s.inDirectory(memif.SecretFile))
	s.guess()
	s.see("with a pod", s.everywhere()...)

	maps.Copy(in.conf, map[string]any{
		"prevResult": s.remembering(result),
		"cni.dev/valid-attachments": []any{map[string]any{
			"containerID": s.pod.ContainerID, "ifname": "eth0", "token": s.markers.add("an attachment of a GC"),
		}},
	})
	s.succeeds("GC", in)
	s.succeeds("CHECK", in)
	s.breakPod()
	if _, ok := s.call("CHECK", in); ok {
		t.Error("CHECK succeeds although the pod was changed")
	}
	s.weftctl("resync", "full")
	s.see("after a CHECK that failed", s.everywhere()...)

	must.Succeed(t, s.node.KillAgent())
	s.succeeds("DEL", in)
	if _, ok := s.call("ADD", in); ok {
		t.Error("ADD succeeds without an agent")
	}
	s.see("without an agent", s.state(s.pod.ContainerID))
	s.start()
	s.see("after the pod", s.everywhere()[:3]...)
}

// objectOfPod returns the key of the dataplane's object for an interface of the pod.
func (s *scene) objectOfPod(link string) string {
	s.Helper()
	ref := regexp.MustCompile(`vpp\.interface/weft-\S+-` + link).FindString(s.weftctl("objects"))
	if ref == "" {
		s.Fatal("the pod has no interface")
	}
	return ref
}

// planted returns an input with a secret in all tolerated places.
func (s *scene) planted() *input {
	in := s.input()
	for where, plant := range tolerated {
		plant(in, s.markers.add(where))
	}
	return in
}

// refuse makes a call for each refused place.
func (s *scene) refuse() {
	s.Helper()
	for where, plant := range refused {
		in := s.input()
		plant(in, s.markers.add(where))
		if out, ok := s.call("ADD", in); ok {
			s.Errorf("%s is not refused: %s", where, out)
		}
		_, _ = s.call("CHECK", in)
	}
}

// leaveFiles writes an external file for each kind of invalid file.
func (s *scene) leaveFiles() {
	s.Helper()
	must.Succeed(s.T, os.WriteFile(filepath.Join(s.outside, "waiting.yaml"), []byte(waitingFile), 0o600))
	for where, content := range external {
		name := strings.ReplaceAll(where, " ", "-") + ".yaml"
		text := inFile(content, s.markers.add("a file with "+where), s.outside)
		must.Succeed(s.T, os.WriteFile(filepath.Join(s.outside, name), []byte(text), 0o600))
	}
}

// configure passes the same files to weftctl configure.
func (s *scene) configure() {
	s.Helper()
	for where, content := range external {
		path := filepath.Join(s.TempDir(), "values.yaml")
		must.Succeed(s.T,
			os.WriteFile(path, []byte(inFile(content, s.markers.add("values with "+where), s.outside)), 0o600))
		s.weftctl("configure", "lab", path)
	}
}

// remembering returns a result of ADD with secrets.
func (s *scene) remembering(result []byte) map[string]any {
	s.Helper()
	var prev map[string]any
	must.Succeed(s.T, json.Unmarshal(result, &prev))
	for where, plant := range remembered {
		plant(prev, s.markers.add(where))
	}
	return prev
}

// A new command of weftctl has to be added to readers or others.
func TestOutputOfEveryCommandIsScanned(t *testing.T) {
	netnstest.RequireTap(t)
	s := newScene(t)
	known := slices.Clone(others)
	for command := range s.readers() {
		known = append(known, strings.Fields(command)[0])
	}
	help, err := s.node.Weftctl(t.Context(), "help")
	must.Succeed(t, err)
	_, list, _ := strings.Cut(help, "Available Commands:")
	list, _, _ = strings.Cut(list, "Flags:")
	names := regexp.MustCompile(`(?m)^  ([a-z-]+) `).FindAllStringSubmatch(list, -1)
	if len(names) < len(others) {
		t.Fatalf("no commands in %s", help)
	}
	for _, name := range names {
		if !slices.Contains(known, name[1]) {
			t.Errorf("no test scans the output of weftctl %s", name[1])
		}
	}
}
