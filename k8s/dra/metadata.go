package dra

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcmetadata "google.golang.org/grpc/metadata"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/ptr"

	"github.com/weftnet/weft/pod"
)

// attributes that only the metadata of a device have, because they are known when it is prepared, or after the ADD.
const (
	// its path in the container; of a server on a direct network the name that it listens on
	attributeSocket    = "socket"
	attributeSecret    = "secret" // path of the file in the container
	attributeID        = "id"
	attributeMode      = "mode"
	attributeNetwork   = "network"
	attributeMTU       = "mtu"
	attributeRingSize  = "ringSize"
	attributeBuffers   = "bufferSize"
	attributeRxQueues  = "rxQueues"
	attributeTxQueues  = "txQueues"
	attributeInterface = "interfaces" // path of interfaces.json in the container
)

// metadata writes the files with the devices of a claim that containers have (KEP-5304). The library makes a file for
// each request of a claim when kubelet prepares it, and deletes them when kubelet releases it. The interfaces of the
// devices are known after the ADD.
type metadata struct {
	config *Config
	offer  *offer

	// writing is held while update writes files, and while files are read: the library does not replace them at once,
	// so a file that is being written looks lost. The event loop waits for it: a goroutine that waits for the loop must
	// not hold it.
	writing sync.Mutex

	mu         sync.Mutex
	helper     *kubeletplugin.Helper    // nil: kubelet is not served
	interfaces map[string]pod.Interface // by allocation
	unwritten  map[requestOf]bool       // the last write failed
}

// note remembers whether the file of a request has to be written again.
func (m *metadata) note(of requestOf, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.unwritten, of)
		return
	}
	m.unwritten[of] = true
}

// isUnwritten reports whether the file with an allocation has to be written again.
func (m *metadata) isUnwritten(a *pod.Allocation) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unwritten[requestOf{a.Claim.ClaimID, a.Claim.Request}]
}

// prepared returns the device of an allocation as the library has it.
func (m *metadata) prepared(a *pod.Allocation) kubeletplugin.Device {
	return kubeletplugin.Device{
		Requests:     []string{a.Claim.Request},
		PoolName:     m.config.Node,
		DeviceName:   a.Claim.Device,
		CDIDeviceIDs: []string{m.config.CDIDevice(a)},
		Metadata:     m.of(a),
	}
}

// of returns the attributes of a device's ResourceSlice, where a container has its files, and, after the ADD,
// its interface.
func (m *metadata) of(a *pod.Allocation) *kubeletplugin.DeviceMetadata {
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	number := func(n int) resourceapi.DeviceAttribute {
		return resourceapi.DeviceAttribute{IntValue: ptr.To(int64(n))}
	}
	device := &kubeletplugin.DeviceMetadata{Attributes: make(map[string]resourceapi.DeviceAttribute)}
	for name, value := range m.offer.device(a.Claim.Device).Attributes {
		device.Attributes[string(name)] = value
	}
	directory := m.config.Mount(a)
	device.Attributes[attributeSocket] = text(directory + "/memif.sock")
	device.Attributes[attributeSecret] = text(directory + "/secret")
	device.Attributes[attributeInterface] = text(directory + "/interfaces.json")
	m.mu.Lock()
	defer m.mu.Unlock()
	i, connected := m.interfaces[a.ID]
	if !connected {
		return device
	}
	device.NetworkData = networkData(i)
	for name, value := range map[string]int{
		attributeID: int(i.Memif.ID), attributeMTU: i.MTU, attributeRingSize: i.Memif.RingSize,
		attributeBuffers:  i.Memif.BufferSize,
		attributeRxQueues: i.Memif.RxQueues, attributeTxQueues: i.Memif.TxQueues,
	} {
		device.Attributes[name] = number(value)
	}
	device.Attributes[attributeMode] = text(i.Memif.Mode)
	device.Attributes[attributeNetwork] = text(i.Network)
	if i.Network == "" {
		device.Attributes[attributeNetwork] = text(pod.DefaultNetwork)
	}
	switch i.Memif.Role {
	case pod.RoleClient:
		device.Attributes[attributeSocket] = text(directory + "/" + path.Base(i.Memif.DirectSocket()))
	case pod.RoleServer:
		device.Attributes[attributeRole] = text(i.Memif.Role)
		device.Attributes[attributeSocket] = text(i.ServerSocket())
	}
	return device
}

// networkData describes an interface in the status of a claim and in its metadata.
func networkData(i pod.Interface) *resourceapi.NetworkDeviceData {
	data := &resourceapi.NetworkDeviceData{InterfaceName: i.Name, HardwareAddress: i.MAC.String()}
	for _, p := range i.Addresses {
		data.IPs = append(data.IPs, p.String())
	}
	return data
}

// connected adds the interfaces of an attachment, by allocation, to the metadata, before the ADD returns: the
// containers start afterwards.
func (m *metadata) connected(interfaces map[string]pod.Interface) {
	if len(interfaces) == 0 {
		return
	}
	m.mu.Lock()
	for allocation, i := range interfaces {
		m.interfaces[allocation] = i
	}
	m.mu.Unlock()
	m.update(func(a *pod.Allocation) bool { _, is := interfaces[a.ID]; return is })
}

// serve starts to write metadata, with the interfaces from before.
func (m *metadata) serve(helper *kubeletplugin.Helper) {
	m.mu.Lock()
	m.helper = helper
	m.mu.Unlock()
	m.update(m.isConnected)
}

// requestOf is a request of a claim, without the chosen alternative: it has one file.
type requestOf struct {
	pod.ClaimID
	request string
}

// update writes the metadata of the requests with one of the chosen allocations. All devices of a request are in one
// file.
func (m *metadata) update(isChosen func(*pod.Allocation) bool) {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.mu.Lock()
	helper := m.helper
	m.mu.Unlock()
	if helper == nil {
		return
	}
	devices := make(map[requestOf][]kubeletplugin.Device)
	chosen := make(map[requestOf]bool)
	for _, a := range m.config.Devices.Allocations() {
		if a.Claim == nil {
			continue
		}
		of := requestOf{a.Claim.ClaimID, a.Claim.Request}
		devices[of] = append(devices[of], m.prepared(&a))
		chosen[of] = chosen[of] || isChosen(&a)
	}
	for of := range chosen {
		if !chosen[of] {
			continue
		}
		err := helper.UpdateRequestMetadata(context.Background(), of.Namespace, of.Name, types.UID(of.UID), of.request,
			devices[of])
		if err != nil {
			m.config.Log.Warn("metadata of a claim not written, retrying", "claim", of.String(), "err", err)
		}
		m.note(of, err)
	}
}

// files returns the paths of the library's files for a claim: the directory of its metadata, and the beginning
// of its CDI files.
func (m *metadata) files(id pod.ClaimID) (directory, cdi string) {
	directory = filepath.Join(m.config.directory(), "dra-device-metadata", id.Namespace+"_"+id.Name)
	return directory, filepath.Join(m.config.CDIDir, pod.ClaimDriver+"_metadata_"+id.UID+"_")
}

// ownRequest marks the requests of the driver itself among the requests of kubelet.
const ownRequest = "weft-restore"

// errNotLost answers a request of the driver itself for a claim that has all its files.
var errNotLost = errors.New("its metadata is complete")

// isNeedless reports whether a request comes from the driver itself, and the claim has all its files: kubelet prepared
// it meanwhile. The library writes the files of one request after the other, so none is being written now.
func (m *metadata) isNeedless(ctx context.Context, claim pod.ClaimID) bool {
	isOwn := len(grpcmetadata.ValueFromIncomingContext(ctx, ownRequest)) > 0
	return isOwn && !m.lostClaims()[claim]
}

// lostClaims returns the prepared claims that lack metadata.
func (m *metadata) lostClaims() map[pod.ClaimID]bool {
	m.writing.Lock()
	defer m.writing.Unlock()
	lost := make(map[pod.ClaimID]bool)
	for _, a := range m.config.Devices.Allocations() {
		if a.Claim == nil {
			continue
		}
		request := resourceclaim.BaseRequestRef(a.Claim.Request)
		directory, cdi := m.files(a.Claim.ClaimID)
		for _, file := range []string{filepath.Join(directory, request, "metadata.json"), cdi + request + ".json"} {
			if isLost(file) {
				lost[a.Claim.ClaimID] = true
			}
		}
	}
	return lost
}

// restore recreates lost metadata of prepared claims: a container that restarts needs them. Only the library's answer
// to kubelet makes them, so the driver repeats kubelet's request. An ADD may connect the devices meanwhile, so their
// interfaces are added afterwards. It also writes again what an ADD could not write.
func (m *metadata) restore(ctx context.Context) {
	for id := range m.lostClaims() {
		if err := m.prepareAgain(ctx, id); err != nil && ctx.Err() == nil {
			m.config.Log.Warn("lost metadata of a claim not recreated, retrying", "claim", id.String(), "err", err)
			continue
		}
		m.update(func(a *pod.Allocation) bool { return a.Claim.ClaimID == id && m.isConnected(a) })
	}
	m.update(m.isUnwritten)
}

// isConnected reports whether the interface of an allocation is known.
func (m *metadata) isConnected(a *pod.Allocation) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, is := m.interfaces[a.ID]
	return is
}

// isLost reports whether a file of JSON is missing or incomplete: the library does not replace its files at once, so a
// full disk may cut them.
func isLost(file string) bool {
	content, err := os.ReadFile(file)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	documents := json.NewDecoder(bytes.NewReader(content))
	for n := 0; ; n++ {
		var document json.RawMessage
		if err := documents.Decode(&document); err != nil {
			return n == 0 || !errors.Is(err, io.EOF)
		}
	}
}

// prepareAgain is a request of kubelet.
func (m *metadata) prepareAgain(ctx context.Context, id pod.ClaimID) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(m.config.directory(), "dra.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(grpcmetadata.AppendToOutgoingContext(ctx, ownRequest, "1"), writeTimeout)
	defer cancel()
	reply, err := drapb.NewDRAPluginClient(conn).NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{
		Claims: []*drapb.Claim{{Namespace: id.Namespace, Name: id.Name, Uid: id.UID}},
	})
	if err != nil {
		return err
	}
	if why := reply.GetClaims()[id.UID].GetError(); why != "" && why != errNotLost.Error() {
		return errors.New(why)
	}
	return nil
}

// released forgets the interfaces of released allocations, and their files.
func (m *metadata) released() {
	left := make(map[string]bool)
	requests := make(map[requestOf]bool)
	for _, a := range m.config.Devices.Allocations() {
		left[a.ID] = true
		if a.Claim != nil {
			requests[requestOf{a.Claim.ClaimID, a.Claim.Request}] = true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for allocation := range m.interfaces {
		if !left[allocation] {
			delete(m.interfaces, allocation)
		}
	}
	maps.DeleteFunc(m.unwritten, func(of requestOf, _ bool) bool { return !requests[of] })
}

// remove deletes the library's files for a claim that was released without kubelet. Another claim may have its
// name.
func (m *metadata) remove(id pod.ClaimID) error {
	m.released()
	if strings.ContainsRune(id.Namespace+id.Name, '/') {
		return fmt.Errorf("claim %q has a name that is no file name", id)
	}
	directory, cdi := m.files(id)
	entries, err := os.ReadDir(m.config.CDIDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("CDI files of the metadata of claim %s: %w", id, err)
	}
	var errs []error
	for _, e := range entries {
		if file := filepath.Join(m.config.CDIDir, e.Name()); strings.HasPrefix(file, cdi) {
			errs = append(errs, os.Remove(file))
		}
	}
	for _, other := range m.config.Devices.Claims() {
		if other.String() == id.String() {
			return errors.Join(errs...)
		}
	}
	return errors.Join(append(errs, os.RemoveAll(directory))...)
}
