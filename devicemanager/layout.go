package devicemanager

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

func secretPath(directory string) string { return directory + "/secret" }
func recordPath(directory string) string { return directory + ".json" }

// layout names the files of an allocation, with their paths and contents. It has no side effects.
type layout struct {
	directories Directories
	mounts      Mounts
}

// deviceInfoPath is the path of a device's file by the device information specification, 1.1.0, section 4.1.
func (l *layout) deviceInfoPath(device string) string {
	name := strings.ReplaceAll(pod.Resource, "/", "-") + "-" + device + "-device.json"
	return filepath.Join(l.directories.DeviceInfo, name)
}

// file is one desired file of an allocation.
type file struct {
	path  string
	value wire.File
}

// files returns the desired files of an allocation in the order of their creation. Before the grant only root may enter
// the directory. After it the pod's user and group may, or every user where the group is unknown.
func (l *layout) files(a *allocation) ([]file, error) {
	directory := wire.File{Type: wire.Directory, Mode: 0o700}
	text := wire.File{Type: wire.RegularFile, Mode: 0o400, Secret: a.Secret, On: wire.FileKey(a.Directory)}
	if a.Granted {
		directory.UID = a.UID
		text.UID = a.UID
		directory.Mode = 0o755
		text.Mode = 0o444
	}
	if a.Granted && a.GID != pod.UnknownGroup {
		directory.GID = a.GID
		text.GID = a.GID
		directory.Mode = fs.ModeSetgid | 0o750
		text.Mode = 0o440
	}
	record, err := json.Marshal(recordOf(a))
	if err != nil {
		return nil, fmt.Errorf("owner record of allocation %s: %w", a.ID, err)
	}
	files := []file{
		{a.Directory, directory},
		{secretPath(a.Directory), text},
		{recordPath(a.Directory), wire.File{Type: wire.RegularFile, Mode: 0o600, Content: string(record)}},
	}
	if a.Claim != nil {
		cdi, err := l.cdiFile(a)
		if files = append(files, cdi); err != nil || !a.Claim.Parameters.Delegate {
			return files, err
		}
	}
	if a.direct { // the assignment of devices to memifs is unknown
		return files, nil
	}
	for _, device := range a.Devices {
		info, err := deviceInfo(a)
		if err != nil {
			return nil, err
		}
		files = append(files, file{
			l.deviceInfoPath(device), wire.File{Type: wire.RegularFile, Mode: 0o644, Content: info},
		})
	}
	return files, nil
}

// deviceInfo returns the content of a device information file, specification 1.1.0. The container's role is slave: the
// host creates the socket and the container connects.
func deviceInfo(a *allocation) (string, error) {
	type memif struct {
		Role string `json:"role"`
		Path string `json:"path"`
		Mode string `json:"mode"`
	}
	info, err := json.Marshal(struct {
		Type    string `json:"type"`
		Version string `json:"version"`
		Memif   memif  `json:"memif"`
	}{"memif", "1.1.0", memif{"slave", a.SocketPath(), pod.MemifEthernet}})
	if err != nil {
		return "", fmt.Errorf("device information of allocation %s: %w", a.ID, err)
	}
	return string(info), nil
}

// put puts the desired files of an allocation.
func (l *layout) put(a *allocation, txn *eventloop.Txn) error {
	files, err := l.files(a)
	if err != nil {
		return err
	}
	for _, f := range files {
		txn.Put(wire.FileKey(f.path), f.value)
	}
	return nil
}

// CDIKind is the kind of the devices in CDI files. The name of a device is the id of its allocation, which is never
// used again: runtimes cache the files by name.
const CDIKind = pod.Resource

// cdiVersion is the first version of CDI files with device names that begin with a digit.
const cdiVersion = "0.5.0"

// CDIDevice returns the name by which a runtime finds the mount and the environment of an allocation.
func CDIDevice(a *pod.Allocation) string { return CDIKind + "=" + a.ID }

// claimDirectory is the directory of a claim's allocation in its containers.
func (l *layout) claimDirectory(a *pod.Allocation) string {
	return l.mounts.Claims + "/" + a.Claim.Parameters.Interface
}

// cdiPath is the path of an allocation's CDI file, with a name as the specification recommends for transient files.
func (l *layout) cdiPath(a *allocation) string {
	return filepath.Join(l.directories.CDI, strings.ReplaceAll(CDIKind, "/", "-")+"_"+a.ID+".json")
}

// cdiFile returns the CDI file of a claim's allocation: the mount of its directory, at a path that no other memif of
// the pod has, and the environment. It does not have the secret, which is in the directory.
func (l *layout) cdiFile(a *allocation) (file, error) {
	target := l.claimDirectory(&a.Allocation)
	options := []string{"bind", "nosuid", "nodev", "noexec"}
	if !l.mounts.Writable {
		options = append(options, "ro")
	}
	content, err := json.Marshal(specs.Spec{
		Version: cdiVersion, Kind: CDIKind,
		Devices: []specs.Device{{Name: a.ID, ContainerEdits: specs.ContainerEdits{
			Env:    []string{pod.SocketVariable(a.Claim.Parameters.Interface) + "=" + target + "/memif.sock"},
			Mounts: []*specs.Mount{{HostPath: a.Directory, ContainerPath: target, Options: options}},
		}}},
	})
	if err != nil {
		return file{}, fmt.Errorf("CDI file of allocation %s: %w", a.ID, err)
	}
	return file{l.cdiPath(a), wire.File{Type: wire.RegularFile, Mode: 0o600, Content: string(content)}}, nil
}
