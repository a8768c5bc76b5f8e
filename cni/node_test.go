package cni

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// private is a node whose network configurations may have any paths.
var private = node{nodeSettings: defaultSettings(), configurable: true}

// settingsOf returns the fields of the node's settings by their keys.
func settingsOf(s *nodeSettings) map[string]reflect.Value {
	fields := make(map[string]reflect.Value)
	for i := range reflect.TypeFor[nodeSettings]().NumField() {
		fields[reflect.TypeFor[nodeSettings]().Field(i).Tag.Get("json")] = reflect.ValueOf(s).Elem().Field(i)
	}
	return fields
}

// Each setting that the node has can be repeated by a configuration, and no configuration can change it: an ADD is
// refused, a DEL ignores the key. That is so for all modes, and for weft-ipam.
func TestNoConfigurationChangesSettingsOfTheNode(t *testing.T) {
	n := node{nodeSettings: defaultSettings(), file: "/opt/cni/bin/weft-cni.json"}
	for key, has := range settingsOf(&n.nodeSettings) {
		for _, mode := range modes {
			other := nodeSettings{
				Socket:      "/tmp/a.sock",
				DeleteQueue: "/tmp/q",
				LogLevel:    "debug",
				LogFile:     "/etc/ld.so.preload",
			}
			value := settingsOf(&other)[key].String()
			own := `{"cniVersion":"1.0.0","name":"x","type":"weft-cni","mode":"` + mode + `","` + key + `":"` + value +
				`"}`
			ipam := `{"cniVersion":"1.0.0","name":"x","type":"macvlan","ipam":{"type":"weft-ipam","` + key + `":"` +
				value + `"}}`
			for r, conf := range map[role]string{{}: own, {ipam: true}: ipam} {
				_, err := n.parse([]byte(conf), r)
				if err == nil || !strings.Contains(err.Error(), key+` "`+value+`" is not the node's`) ||
					!strings.Contains(err.Error(), n.file) {
					t.Errorf("%s: %v", conf, err)
				}
				if got := n.parseForDel([]byte(conf), r).nodeSettings; got != n.nodeSettings {
					t.Errorf("%s: a DEL uses %+v", conf, got)
				}
				if _, err := n.parse([]byte(strings.Replace(conf, value, has.String(), 1)), r); err != nil {
					t.Errorf("%s with the value of the node: %v", conf, err)
				}
			}
		}
	}
}

// The program itself, started as Multus starts it, on a node with settings of its own: a DEL without an agent is queued
// there.
func TestDelegateConfigurationDoesNotWriteFiles(t *testing.T) {
	for _, verb := range []string{"ADD", "CHECK", "STATUS", "GC", "DEL"} {
		onNode := t.TempDir()
		tenants := t.TempDir()
		program := filepath.Join(onNode, "weft-cni")
		if err := os.Link(filepath.Join(binaries, "weft-cni"), program); err != nil {
			t.Fatal(err)
		}
		settings, err := json.Marshal(nodeSettings{
			Socket:      onNode + "/agent.sock",
			DeleteQueue: onNode + "/queue",
			LogLevel:    "info",
			LogFile:     onNode + "/log",
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(onNode, nodeFile), settings, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = []string{
			"CNI_COMMAND=" + verb, "CNI_CONTAINERID=c1", "CNI_IFNAME=net1", "CNI_NETNS=/proc/self/ns/net",
			"CNI_PATH=/opt/cni/bin",
		}
		cmd.Stdin = strings.NewReader(`{"cniVersion":"1.1.0","name":"tenant","type":"weft-cni","mode":"delegate","logFile":"` + tenants +
			`/ld.so.preload","logLevel":"debug","socket":"` + tenants + `/s","deleteQueue":"` + tenants +
			`/q","prevResult":{"cniVersion":"1.1.0"}}`)
		out, err := cmd.Output()
		queued, _ := filepath.Glob(onNode + "/queue/*.json")
		switch {
		case verb == "DEL" && (err != nil || len(queued) != 1):
			t.Errorf("DEL: %v, queued %q: %s", err, queued, out)
		case verb != "DEL" && (err == nil || !strings.Contains(string(out), "is not the node's")):
			t.Errorf("%s: %v: %s", verb, err, out)
		}
		if left, err := os.ReadDir(tenants); err != nil || len(left) > 0 {
			t.Errorf("%s left %v, %v", verb, left, err)
		}
	}
}

func TestSettingsComeFromTheFileOfTheNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), nodeFile)
	want := nodeSettings{
		Socket:      "/run/other/agent.sock",
		DeleteQueue: "/var/lib/other",
		LogLevel:    "warn",
		LogFile:     "/var/log/weft-cni.log",
	}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		content string
		mode    os.FileMode
		want    string
	}{
		"valid":               {string(raw), 0o644, ""},
		"written by others":   {string(raw), 0o646, "only root can write"},
		"written by a group":  {string(raw), 0o664, "only root can write"},
		"an unknown key":      {`{"sokcet":"/x"}`, 0o600, "sokcet"},
		"a relative path":     {`{"deleteQueue":"q"}`, 0o600, `deleteQueue "q" is not an absolute path`},
		"a device as the log": {`{"logFile":"/dev/null"}`, 0o600, "is not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			n, err := readNodeFile(path)
			switch {
			case c.want == "" && (err != nil || n.nodeSettings != want):
				t.Errorf("%+v, %v", n, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if n, err := readNodeFile(path + ".none"); err != nil || n.nodeSettings != defaultSettings() {
		t.Errorf("without a file: %+v, %v", n, err)
	}
}

// The file is opened by root, and its directory may be wrong: what is not a regular file is neither followed nor waited
// for.
func TestSettingsComeFromARegularFile(t *testing.T) {
	raw, err := json.Marshal(defaultSettings())
	if err != nil {
		t.Fatal(err)
	}
	valid := filepath.Join(t.TempDir(), "valid")
	if err := os.WriteFile(valid, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(path string) error{
		"link":      func(other string) error { return os.Symlink(valid, other) },
		"FIFO":      func(other string) error { return unix.Mkfifo(other, 0o600) },
		"directory": func(other string) error { return os.Mkdir(other, 0o700) },
		"socket":    func(other string) error { return unix.Mknod(other, unix.S_IFSOCK|0o600, 0) },
	} {
		other := filepath.Join(t.TempDir(), nodeFile)
		if err := plant(other); err != nil {
			t.Fatal(err)
		}
		read := make(chan error, 1)
		go func() { _, err := readNodeFile(other); read <- err }()
		select {
		case err := <-read:
			if err == nil {
				t.Errorf("a %s is accepted", name)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("a %s blocks the plugin", name)
		}
	}
}
